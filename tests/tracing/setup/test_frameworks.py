"""Agents of frameworks under `art-otel run`: the tools that they run are in the trajectory, with each call once."""

from collections import Counter

import pytest

from tests.conversions import convert_files
from tests.dialects.recording.server import RecordingServer
from tests.tracing.setup.programs import ROOT, run_command
from tests.trainers.environment import trainer_python

APP = ROOT / "tests" / "tracing" / "apps" / "framework_agents.py"
PACKAGES = (
    *("openai-agents", "openinference-instrumentation-openai-agents"),
    *("langchain", "langchain-openai", "langgraph", "openinference-instrumentation-langchain"),
    *("smolagents[openai]", "openinference-instrumentation-smolagents"),
)


@pytest.mark.live
@pytest.mark.parametrize("framework", ["openai-agents", "langgraph", "smolagents"])
def test_the_tools_of_a_framework_are_recorded(framework, tmp_path):
    python = trainer_python("frameworks", *PACKAGES, "-e", str(ROOT))
    with RecordingServer(port=0) as server:
        command = (python.parent / "art-otel", "run", "--", python, APP, framework, server.url)
        done = run_command(tmp_path, *command, ART_OTEL_DIR=str(tmp_path), NO_PROXY="127.0.0.1", OPENAI_API_KEY="k")
    assert done.code == 0, done.errors
    (found,), _ = convert_files(tmp_path / "out", tmp_path / "spool")
    assert found.complete, found.incomplete_reasons
    assert len(found.calls) == len(server.truth)
    assert [turn.text_untrained for turn in found.turns] == [None] * len(server.truth)
    asked = sum(len(call.choices[0].message.tool_calls or ()) for call in found.calls)
    results = Counter(tool.result for tool in found.tool_calls if tool.name == "get_weather")
    assert set(results) == {"sunny", "rainy"}
    assert results["sunny"] == results["rainy"]
    assert results.total() <= asked
    assert found.tool_calls[0].turn == 0
