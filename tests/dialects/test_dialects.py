"""What is made of a recording is what the model's server got and sent, or the trajectory says that it is not."""

import json
from pathlib import Path

import pytest

from art_otel.calls import InferenceCall, Message, canonical_arguments
from art_otel.trajectories import Trajectory
from tests.conversions import convert_files, with_logs
from tests.dialects.expected import DOUBTED, FLAGGED, WITHOUT_CALLS

HERE = Path(__file__).parent
NAMES = sorted(path.name.removesuffix(".truth.json") for path in HERE.glob("*.truth.json"))

Said = tuple[str, str | None, tuple[tuple[str, str], ...]]


def recorded(message: Message) -> Said:
    calls = tuple((call.name, canonical_arguments(call.arguments)) for call in message.tool_calls)
    return message.role, message.content or None, calls


def true(role: str, message: dict) -> Said:
    calls = tuple((name, canonical_arguments(arguments)) for _, name, arguments in message.get("tool_calls") or ())
    return role, message.get("content") or None, calls


def asked_and_answered(call: InferenceCall) -> tuple[list[Said] | None, Said | None]:
    prompt = None if call.input_messages is None else [recorded(message) for message in call.input_messages]
    return prompt, recorded(call.choices[0].message) if call.choices else None


def calls_of(trajectories: list[Trajectory]) -> list[InferenceCall]:
    return sorted((call for one in trajectories for call in one.calls), key=lambda call: call.start_ns)


def truth_of(name: str) -> list[tuple[list[Said], Said]]:
    requests = json.loads((HERE / f"{name}.truth.json").read_text())
    return [
        ([true(message["role"], message) for message in request["messages"]], true("assistant", request["answer"]))
        for request in requests
    ]


def test_what_is_expected_is_there():
    assert {*FLAGGED, *DOUBTED, *WITHOUT_CALLS} <= set(NAMES)


@pytest.mark.parametrize("name", [name for name in NAMES if name not in WITHOUT_CALLS])
def test_a_recording_is_right_or_says_that_it_is_not(name, tmp_path):
    trajectories, _ = convert_files(tmp_path, *with_logs(HERE / f"{name}.jsonl"))
    calls = [asked_and_answered(call) for call in calls_of(trajectories)]
    is_complete = bool(trajectories) and all(trajectory.complete for trajectory in trajectories)
    if name in FLAGGED:
        assert (is_complete, calls == truth_of(name)) == (False, False)
    else:
        assert calls == truth_of(name)
        assert is_complete == (name not in DOUBTED)


@pytest.mark.parametrize("name", WITHOUT_CALLS)
def test_a_recorder_without_llm_spans_gives_the_hint_what_to_add(name, tmp_path):
    trajectories, report = convert_files(tmp_path, *with_logs(HERE / f"{name}.jsonl"))
    assert not trajectories
    assert any(WITHOUT_CALLS[name] in hint for hint in report.hints)


@pytest.mark.parametrize("name", [path.name.removesuffix(".mlflow.json") for path in HERE.glob("*.mlflow.json")])
def test_mlflows_own_dump_says_what_its_spans_say(name, tmp_path):
    trajectories, _ = convert_files(tmp_path, HERE / f"{name}.mlflow.json")
    assert [asked_and_answered(call) for call in calls_of(trajectories)] == truth_of(name)
    assert all(trajectory.complete for trajectory in trajectories)
