"""Preference lines: one answer a side, the better one preferred."""

import pytest
from hypothesis import given

from art_otel.calls import Message
from art_otel.data.preferences import preference_batches
from art_otel.exporting import ExportStats
from art_otel_openai.fine_tuning import PreferenceConfig, encode_preferences
from tests.data.rollouts import agent_rollouts, assistant, call, chat, rollout, said, user
from tests.exporting.exported import encoded as encoded_by
from tests.exporting.openai_types import check_messages


def encoded(*rollouts, **config) -> tuple[list[dict], ExportStats]:
    pairs = preference_batches(rollouts, allow_incomplete=True).pairs()
    return encoded_by(encode_preferences, pairs, PreferenceConfig(**config))


def two_turns(rollout_id: str, reward: float, *answers: str):
    first, second = answers
    calls = chat(user("q"), assistant(first), user("and?"), assistant(second))
    return rollout(calls, rollout_id, group_id="g", reward=reward)


@given(agent_rollouts())
def test_every_line_is_what_openai_takes(rollouts):
    lines, stats = encoded(*rollouts)
    assert len(lines) + stats.skipped.total() == len(list(preference_batches(rollouts, allow_incomplete=True).pairs()))
    for line in lines:
        sides = line["preferred_output"], line["non_preferred_output"]
        assert sides[0] != sides[1]
        for messages in (line["input"]["messages"], *sides):
            assert messages
            check_messages(messages)
        assert [(len(side), side[0]["role"]) for side in sides] == [(1, "assistant")] * 2


def test_the_better_answer_is_preferred():
    (line,), _ = encoded(said("bad", "a", 0.0), said("good", "b", 1.0))
    assert line == {
        "input": {"messages": [{"role": "user", "content": "hello"}]},
        "preferred_output": [{"role": "assistant", "content": "good"}],
        "non_preferred_output": [{"role": "assistant", "content": "bad"}],
    }


def test_later_messages_are_cut_kept_or_leave_the_pair_out():
    rollouts = two_turns("a", 0.0, "x", "y"), two_turns("b", 1.0, "X", "Y")
    (cut,), stats = encoded(*rollouts)
    assert cut["preferred_output"] == [{"role": "assistant", "content": "X"}]
    assert stats.changed == {"messages after the first answer, cut": 2}
    (kept,), stats = encoded(*rollouts, later_messages="keep")
    assert [message["content"] for message in kept["preferred_output"]] == ["X", "and?", "Y"]
    assert not stats.changed
    lines, stats = encoded(*rollouts, later_messages="drop")
    assert (lines, stats.skipped) == ([], {"more than one message a side": 1})


def asked(prompt, answer, rollout_id: str, reward: float):
    return rollout([call(0, prompt, answer)], rollout_id, group_id="g", reward=reward)


@pytest.mark.parametrize(
    ("prompt", "good", "bad", "reason"),
    [
        ((user("q"),), user("a"), assistant("b"), "a sampled message is not from the assistant"),
        ((), assistant("a"), assistant("b"), "no prompt"),
        ((user("q"),), assistant("a", reasoning="hm"), assistant("a"), "both answers are equal"),
    ],
)
def test_what_openai_has_no_words_for_is_left_out_with_the_reason(prompt, good, bad, reason):
    lines, stats = encoded(asked(prompt, good, "a", 1.0), asked(prompt, bad, "b", 0.0))
    assert lines == []
    assert stats.skipped == {reason: 1}


def test_the_prompt_is_what_both_saw():
    prompt = (Message(role="developer", content="Be kind."), user("q"))
    (line,), _ = encoded(asked(prompt, assistant("good"), "a", 1.0), asked(prompt, assistant("bad"), "b", 0.0))
    assert [message["role"] for message in line["input"]["messages"]] == ["developer", "user"]
