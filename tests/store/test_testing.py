"""art_otel.testing: its spans are what instrumentors write, its trajectories are valid."""

import subprocess
import sys
from contextlib import suppress
from random import Random

import pytest
from hypothesis import Phase, find, settings
from hypothesis.errors import NoSuchExample

from art_otel.calls import Choice, Logprobs, Message, TokenIds, ToolCall
from art_otel.testing import SpanBuilder, lineages
from art_otel.trajectories import SpanGroup, build_trajectories, in_order, message_ends, token_ends

ASK = Message(role="user", content="ask")
LOOK = Message(role="assistant", reasoning="hm", tool_calls=(ToolCall(id="c", name="look", arguments='{"a": 1}'),))
FOUND = Message(role="tool", content="rain", tool_call_id="c")
SAY = Message(role="assistant", content="say")


def rollout() -> SpanGroup:
    spans = SpanBuilder()
    root = spans.rollout("r1", attributes={"art.group.id": "g"})
    step = spans.step(root, 0)
    ids = {"token_ids": TokenIds.of([3, 4]), "logprobs": Logprobs.of([-0.5, -0.25])}
    first = spans.chat(
        step,
        [ASK],
        [Choice(index=0, message=LOOK, finish_reason="tool_calls", **ids)],
        prompt_token_ids=TokenIds.of([1]),
    )
    second = spans.chat(
        step, [ASK, LOOK, FOUND], [Choice(index=0, message=SAY, finish_reason="stop")], attributes={"extra": 1}
    )
    late = spans.reward(root, 0.5)
    judged = spans.reward(root, 1.0, name="style", target=second)
    return SpanGroup(spans=[root, step, first, second, late, judged])


def test_built_spans_become_a_trajectory():
    (built,) = build_trajectories(rollout()).trajectories
    assert (built.rollout_id, built.group_id, built.reward) == ("r1", "g", 0.5)
    assert [reward.target for reward in built.rewards if reward.name == "style"] == [built.calls[1].span_id]
    assert [turn.parent for turn in built.turns] == [None, 0]
    assert built.turns[0].token_ids == TokenIds.of([3, 4])
    assert built.turns[0].logprobs == Logprobs.of([-0.5, -0.25])
    assert [message.identity for message in built.calls[1].input_messages] == [
        message.identity for message in (ASK, LOOK, FOUND)
    ]
    assert built.calls[0].step == 0


def test_equal_calls_build_equal_spans():
    assert rollout() == rollout()


HAPPENS_TO_AGENTS = {
    "other words": lambda one: any(node.restates for node in in_order(message_ends(one.calls))),
    "tokenized anew": lambda one: any(call.drifted_at is not None for call in one.calls),
    "written anew": lambda one: any(call.rewritten_at is not None for call in one.calls),
    "a part of a path kept": lambda one: any(node.kept for node in in_order(token_ends(one.calls))),
    "trained": lambda one: any(turn.text_untrained is None for turn in one.turns),
    "failed": lambda one: any(turn.text_untrained == "failed" for turn in one.turns),
    "doubtful": lambda one: any(turn.text_untrained == "content uncertain" for turn in one.turns),
}


OFTEN = frozenset(HAPPENS_TO_AGENTS) - {"tokenized anew", "written anew"}
"""The others need hundreds of examples."""


@pytest.mark.long
@pytest.mark.parametrize("wanted", [OFTEN, pytest.param(frozenset(HAPPENS_TO_AGENTS), marks=pytest.mark.fuzz)])
def test_lineages_hold_what_happens_to_agents(wanted):
    happened: set[str] = set()

    def everything_happened(lineage) -> bool:
        happened.update(name for name, holds in HAPPENS_TO_AGENTS.items() if holds(lineage))
        return happened >= wanted

    enough = settings(max_examples=1000, derandomize=False, database=None, phases=[Phase.generate])
    with suppress(NoSuchExample):
        find(lineages(), everything_happened, settings=enough, random=Random(0))
    assert happened >= wanted


def test_without_hypothesis_the_import_says_what_to_install():
    code = "import sys; sys.modules['hypothesis'] = None; import art_otel.testing"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "art_otel.testing needs hypothesis: pip install hypothesis" in done.stderr
