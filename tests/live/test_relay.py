"""Law 2: live, the spool, and a relay through a real collector give equal trajectories; Phoenix shows a tree."""

import json
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from art_otel.store import read_trajectories
from tests.conversions import convert_files
from tests.live.environments import live_python, phoenix_program
from tests.live.receiver import receiver
from tests.live.rotel import free_port, rotel, wait_for_port
from tests.live.runs import APPS, KEY, alone, by_run, run_app, wait_until


def export_to(url: str) -> dict[str, str]:
    """The standard variables that send spans on."""
    return {
        "OTEL_TRACES_EXPORTER": "otlp",
        "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
        "OTEL_EXPORTER_OTLP_ENDPOINT": url,
    }


def relayed(server, folder: Path, command: list[str]):
    """A run whose spans also went through rotel, and the trajectories of what came out there."""
    with receiver(folder / "relayed.jsonl") as target, rotel(folder, target) as collector:
        run = run_app(server, folder, command, ART_OTEL_REQUEST_TOKENS="1", **export_to(collector))
    trajectories, _ = convert_files(folder / "relayed", folder / "relayed.jsonl")
    return run, trajectories


@pytest.mark.parametrize("app", ["weather_agent.py", "streams.py", "every_call.py", "pool.py"])
def test_spool_and_relay_are_equal(server, tmp_path, instrumentor, app):
    run, through_collector = relayed(server, tmp_path, by_run(live_python(instrumentor), str(APPS / app)))
    assert run.code == 0, run.errors
    assert run.trajectories
    assert through_collector == run.trajectories
    assert KEY.encode() not in (tmp_path / "relayed.jsonl").read_bytes()


def test_live_spool_and_relay_are_equal(server, tmp_path, instrumentor):
    live = tmp_path / "live.parquet"
    run, through_collector = relayed(
        server, tmp_path, alone(live_python(instrumentor), str(APPS / "fates.py"), str(live))
    )
    assert run.code == 0, run.errors
    assert through_collector == run.trajectories
    gathered = {found.rollout_id: found for found in read_trajectories(live)}
    assert len(gathered) == 3
    assert gathered == {one.rollout_id: one for one in run.trajectories if one.rollout_id in gathered}


@contextmanager
def phoenix(folder: Path) -> Iterator[str]:
    """The base URL of a Phoenix server whose data lies in the folder."""
    port, grpc = free_port(), free_port()
    settings = {
        "PHOENIX_PORT": str(port),
        "PHOENIX_GRPC_PORT": str(grpc),
        "PHOENIX_HOST": "127.0.0.1",
        "PHOENIX_WORKING_DIR": str(folder / "phoenix"),
        "PHOENIX_TELEMETRY_ENABLED": "false",
        "PATH": "/usr/bin:/bin",
        "HOME": str(folder),
    }
    with (folder / "phoenix.out").open("w") as output:
        process = subprocess.Popen([str(phoenix_program()), "serve"], env=settings, stdout=output, stderr=output)
    try:
        wait_for_port(port, process, 120)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(30)


def spans_of(url: str) -> list[dict]:
    """What Phoenix holds."""
    with urllib.request.urlopen(f"{url}/v1/projects/default/spans?limit=1000") as answer:
        return json.load(answer)["data"]


def test_phoenix_shows_a_tree(server, tmp_path):
    with phoenix(tmp_path) as url:
        command = by_run(live_python("openinference"), str(APPS / "weather_agent.py"))
        run = run_app(server, tmp_path, command, **export_to(url))
        assert run.code == 0, run.errors
        calls = run.only.calls
        wait_until(lambda: len(spans_of(url)) == len(calls) + 1, "all spans are in Phoenix")
        spans = spans_of(url)
    root = next(span for span in spans if span["parent_id"] is None)
    assert root["name"] == "rollout weather_agent.py"
    assert {span["span_kind"] for span in spans if span is not root} == {"LLM"}
    assert {span["context"]["span_id"] for span in spans} == {call.span_id for call in calls} | {
        root["context"]["span_id"]
    }
