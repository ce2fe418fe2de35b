"""Apps of other clients under `art-otel run`, with the instrumentors of our extras: whole answers, streams, async."""

from pathlib import Path
from typing import Final

import pytest

from art_otel.trajectories import Trajectory
from tests.conversions import convert_files
from tests.dialects.judging import asked_and_answered, calls_of, told_by
from tests.dialects.recording.server import RecordingServer
from tests.tracing.setup.programs import ROOT, run_command
from tests.trainers.environment import trainer_python

CLIENTS = ("anthropic==2.14.0", "google-genai==3.6.1", "litellm==1.110.2", "mcp", "boto3==1.44.8")
REFUSING = "opentelemetry-instrumentation-google-genai==1.3b0"
"""OpenTelemetry's own is not started by anybody beside the one of our extra: it takes no google-genai 3."""

APP = ROOT / "tests" / "tracing" / "apps" / "other_clients.py"
WAYS: Final = {
    "anthropic": (
        *("whole", "stream", "text_stream", "final_message", "raw", "with_raw_response"),
        *("async_whole", "async_stream", "async_text_stream", "async_raw"),
        *("beta_whole", "beta_raw"),
    ),
    "google": ("whole", "stream", "async_whole", "async_stream"),
    "litellm": ("whole", "stream", "async_whole", "async_stream"),
    "bedrock": ("whole", "stream"),
    "invoke": ("whole",),
}
"""`tests/tracing/apps/clients/` has what each way calls."""

FLAGGED: Final = {
    ("invoke", "stream"): {"lossy recorder"},
    ("anthropic", "beta_stream"): {"no content", "lossy recorder"},
    ("anthropic", "async_beta_stream"): {"no content", "lossy recorder"},
}
"""What the instrumentor loses, and the reasons that say so."""

ABANDONED: Final = ("anthropic", "google", "litellm", "bedrock", "invoke")
WITHOUT_TOOLS: Final = "invoke"
"""Of InvokeModel the instrumentor records no tools."""


def clients_python() -> Path:
    """The environment of the clients, with the instrumentors of our extras."""
    return trainer_python("clients", *CLIENTS, REFUSING, "-e", f"{ROOT}[anthropic,bedrock,google,litellm]")


@pytest.fixture
def recorded(tmp_path: Path):
    """Run an app's way under `art-otel run`; the trajectory, and what the server was asked and said."""

    def run(client: str, way: str) -> tuple[Trajectory, list[dict]]:
        python = clients_python()
        settings = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "NO_PROXY": "127.0.0.1"}
        with RecordingServer(port=0) as server:
            command = (python.parent / "art-otel", "run", "--", python, APP, client, way, server.url)
            done = run_command(tmp_path, *command, ART_OTEL_DIR=str(tmp_path), **settings)
        assert done.code == 0, done.errors
        (trajectory,), _ = convert_files(tmp_path / "dataset", tmp_path / "spool")
        if way == "whole" and client != "anthropic":  # whose own span is beside that of OpenLLMetry
            assert "art-otel: 2 calls in " in done.errors, "a client's own span in an instrumentor's"
        return trajectory, server.truth

    return run


@pytest.mark.live
@pytest.mark.parametrize(("client", "way"), [(client, way) for client, ways in WAYS.items() for way in ways])
def test_an_app_of_another_client_is_recorded_whole(client, way, recorded):
    trajectory, truth = recorded(client, way)
    assert trajectory.complete, trajectory.incomplete_reasons
    assert len(truth) == 2
    assert [asked_and_answered(call) for call in calls_of([trajectory])] == told_by(truth)
    assert [turn.text_untrained for turn in trajectory.turns] == [None, None]
    tools = [] if client == WITHOUT_TOOLS else truth[0]["tools"]
    assert [tool["function"]["name"] for tool in trajectory.tools] == tools


@pytest.mark.live
def test_doctor_knows_which_instrumentor_takes_no_newest_client(tmp_path):
    told = "from art_otel.tracing.setup.instrument import installed_instrumentors as all\n"
    told += "print(*(f'{one.label} {one.refuses}' for one in all() if one.refuses), sep='\\n')"
    done = run_command(tmp_path, clients_python(), "-c", told)
    assert "google_genai:GoogleGenAiSdkInstrumentor google-genai<3,>=1.32.0 only, and google-genai 3.6" in done.output
    assert len(done.output.splitlines()) == 1, "the others take what is newest"


@pytest.mark.live
@pytest.mark.parametrize(("client", "way"), FLAGGED)
def test_what_the_instrumentor_loses_is_told(client, way, recorded):
    trajectory, _ = recorded(client, way)
    assert not trajectory.complete
    assert set(trajectory.incomplete_reasons) == FLAGGED[client, way]


@pytest.mark.live
@pytest.mark.parametrize("client", ABANDONED)
def test_a_stream_that_the_app_leaves_is_not_trained(client, recorded):
    trajectory, _ = recorded(client, "abandoned")
    assert all(turn.text_untrained == "stream broke" for turn in trajectory.turns)
    assert trajectory.turns or not trajectory.complete
