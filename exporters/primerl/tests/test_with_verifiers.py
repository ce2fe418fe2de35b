"""verifiers' own graph of the same calls has the ids, the masks and the logprobs of the samples."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from art_otel.calls import InferenceCall, Message
from art_otel.exporting import export
from tests.exporting.samples import QUESTION, SYSTEM, asked, found, group, looking, prompt_ids, rollout, said
from tests.trainers.environment import trainer_python

pytestmark = pytest.mark.trainer

RELEASES = ("verifiers==0.4.0", "verifiers==0.3.1")
"""The newest and the one before."""
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
    done = subprocess.run([python, SCRIPT, tmp_path / "calls.json"], capture_output=True, text=True, check=False)
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
