"""verifiers' own graph of the same calls trains what the samples train, and its traces are read back."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from art_otel.calls import InferenceCall, Message
from art_otel.exporting import export
from art_otel.trajectories import token_histories
from tests.conversions import convert_files
from tests.exporting.samples import QUESTION, SYSTEM, asked, found, group, looking, prompt_ids, rollout, said
from tests.trainers.environment import trainer_python

pytestmark = pytest.mark.trainer

RELEASES = ("verifiers==0.4.1.dev86", "verifiers==0.4.0")
"""The next, whose streams of tokens are numpy arrays, and the newest."""
SCRIPT = Path(__file__).with_name("build_with_verifiers.py")


def forked() -> Any:
    """A rollout whose second question is asked twice, and a sub-agent in between."""
    first = (SYSTEM, QUESTION)
    second = (*first, looking("Zürich"), found("rain"))
    helper = (Message(role="system", content="You help."), Message(role="user", content="Is it rain?"))
    return rollout(
        "r-forked",
        [
            asked(0, first, second[2]),
            asked(1, helper, said("Yes."), agent="helper"),
            asked(2, second, said("Rain.")),
            asked(3, (*second, said("Rain."), QUESTION), said("Still rain.")),
            asked(4, (*second, said("Rain."), Message(role="user", content="And snow?")), said("No.")),
        ],
        reward=0.75,
    )


def rewritten() -> Any:
    """The app forgets the tool call, so the second prompt is no continuation of the first."""
    first = (SYSTEM, QUESTION)
    return rollout("r-new", [asked(0, first, looking("Zürich")), asked(1, (*first, QUESTION), said("Rain."))], reward=0)


def told(message: Message) -> dict[str, Any]:
    """The message as verifiers has it."""
    fields: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.role == "tool":
        fields["tool_call_id"] = message.tool_call_id
    if message.tool_calls:
        fields["tool_calls"] = [
            {"id": one.id, "name": one.name, "arguments": one.arguments} for one in message.tool_calls
        ]
    return fields


def call_of(call: InferenceCall) -> dict[str, Any]:
    (choice,) = call.choices
    return {
        "prompt": [told(message) for message in call.input_messages],
        "prompt_ids": prompt_ids(call.input_messages),
        "answer": told(choice.message),
        "completion_ids": choice.token_ids.tolist(),
        "logprobs": choice.logprobs.tolist(),
    }


@pytest.mark.parametrize("release", RELEASES)
def test_the_branches_of_a_trace_are_the_samples(release, tmp_path):
    rollouts = [*group(), forked(), rewritten()]
    (tmp_path / "calls.json").write_text(json.dumps([[call_of(call) for call in one.calls] for one in rollouts]))
    python = trainer_python("verifiers", release)
    done = subprocess.run(
        [python, SCRIPT, tmp_path / "calls.json", tmp_path / "traces.jsonl"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    theirs = json.loads(done.stdout.splitlines()[-1])
    export(rollouts, "primerl", tmp_path / "samples.jsonl")
    ours = [json.loads(line) for line in (tmp_path / "samples.jsonl").read_text().splitlines()]
    for one, branches in zip(rollouts, theirs, strict=True):
        samples = [
            {name: record[name] for name in ("token_ids", "mask", "logprobs")}
            for record in ours
            if record["rollout_id"] == one.rollout_id
        ]
        assert sorted(samples, key=json.dumps) == sorted(branches, key=json.dumps)
    assert [len(branches) for branches in theirs] == [1, 1, 1, 3, 2]
    read, _ = convert_files(tmp_path / "out", tmp_path / "traces.jsonl")
    histories = [
        (one.token_ids.tolist(), list(map(bool, one.loss_mask))) for each in read for one in token_histories(each)
    ]
    assert sorted(histories) == sorted((one["token_ids"], one["mask"]) for branches in theirs for one in branches)
