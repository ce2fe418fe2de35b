"""What is made of a recording is what the model's server got and sent, or the trajectory says that it is not."""

import json
from pathlib import Path

import pytest

from art_otel.trajectories import Trajectory
from tests.conversions import built, convert_files, read_records, with_logs
from tests.dialects.expected import DOUBTED, FLAGGED, UNTRAINED, WITHOUT_CALLS
from tests.dialects.judging import asked_and_answered, calls_of, is_trained, truth_of
from tests.examples import daily

HERE = Path(__file__).parent
NAMES = sorted(path.name.removesuffix(".truth.json") for path in HERE.glob("*.truth.json"))


def test_what_is_expected_is_there():
    assert {*FLAGGED, *DOUBTED, *UNTRAINED, *WITHOUT_CALLS} <= set(NAMES)


WITH_CALLS = [name for name in NAMES if name not in WITHOUT_CALLS]


@pytest.mark.parametrize("name", WITH_CALLS)
def test_a_recording_is_right_or_says_that_it_is_not(name):
    check_right(name, built(read_records(*with_logs(HERE / f"{name}.jsonl"))))


@pytest.mark.parametrize("name", daily(WITH_CALLS, one_in=40))
def test_a_conversion_says_the_same(name, tmp_path):
    trajectories, _ = convert_files(tmp_path, *with_logs(HERE / f"{name}.jsonl"))
    check_right(name, trajectories)


def check_right(name: str, trajectories: list[Trajectory]) -> None:
    calls = [asked_and_answered(call) for call in calls_of(trajectories)]
    is_complete = bool(trajectories) and all(trajectory.complete for trajectory in trajectories)
    if name in FLAGGED:
        assert (is_complete, calls == truth_of(HERE / f"{name}.truth.json")) == (False, False)
    else:
        assert calls == truth_of(HERE / f"{name}.truth.json")
        assert is_complete == (name not in DOUBTED)
        assert is_trained(trajectories) == (name not in UNTRAINED) or name in DOUBTED


def test_tools_on_an_agents_span_are_those_of_its_calls(tmp_path):
    trajectories, _ = convert_files(tmp_path, HERE / "strands_native_tools.jsonl")
    requests = json.loads((HERE / "strands_native_tools.truth.json").read_text(encoding="utf-8"))
    tools = [[tool["function"]["name"] for tool in call.tools or ()] for call in calls_of(trajectories)]
    assert tools == [request["tools"] for request in requests]


@pytest.mark.parametrize("name", WITHOUT_CALLS)
def test_a_recorder_without_llm_spans_gives_the_hint_what_to_add(name, tmp_path):
    trajectories, report = convert_files(tmp_path, *with_logs(HERE / f"{name}.jsonl"))
    assert not trajectories
    assert any(WITHOUT_CALLS[name] in hint for hint in report.hints)


@pytest.mark.parametrize("name", [path.name.removesuffix(".mlflow.json") for path in HERE.glob("*.mlflow.json")])
def test_mlflows_own_dump_says_what_its_spans_say(name, tmp_path):
    trajectories, _ = convert_files(tmp_path, HERE / f"{name}.mlflow.json")
    assert [asked_and_answered(call) for call in calls_of(trajectories)] == truth_of(HERE / f"{name}.truth.json")
    assert all(trajectory.complete for trajectory in trajectories)
