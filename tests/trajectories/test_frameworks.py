"""Recordings of real frameworks under two instrumentors: each request is one call, as it was sent and answered."""

from pathlib import Path

import pytest

from tests.conversions import convert_files

FOLDER = Path(__file__).parent / "frameworks"


def convert(tmp_path, name):
    return convert_files(tmp_path / "out", FOLDER / f"{name}.jsonl")


@pytest.mark.parametrize(
    ("name", "requests"),
    [
        ("strands", 4),
        ("smolagents", 2),
        ("llamaindex", 2),
        ("llamaindex_stream", 2),
        ("logfire", 1),
        ("litellm_text", 1),
    ],
)
def test_each_request_is_one_call_and_trained_once(tmp_path, name, requests):
    (trajectory,), report = convert(tmp_path, name)
    assert trajectory.incomplete_reasons == {}
    assert report.hints == []
    ids = [call.response_id for call in trajectory.calls]
    assert (len(ids), len(set(ids)), None in ids) == (requests, requests, False)
    trained = [entry for history in trajectory.histories for entry in history.messages or () if entry.trained]
    assert len(trained) == len(trajectory.turns) == requests


def said(call):
    return [(message.role, message.content) for message in call.input_messages]


def test_strands_prompts_have_the_instructions_and_results_as_they_were_sent(tmp_path):
    (trajectory,), _ = convert(tmp_path, "strands")
    assert [said(call)[0] for call in trajectory.calls] == [("system", "main «»")] * 4
    answered = [message.content for message in trajectory.calls[-1].input_messages if message.role == "tool"]
    assert len(answered) > 0
    assert not any("[{" in content for content in answered)


@pytest.mark.parametrize(
    ("prompt", "reason"), [("redacted-by-litellm", "content masked"), ("You are kind. " * 146 + "Bye.", "content cut")]
)
def test_a_system_prompt_on_the_agents_span_is_judged_as_any_other(tmp_path, prompt, reason):
    recording = Path(__file__).parent.parent / "dialects" / "strands_v130_native.jsonl"
    dump = tmp_path / "in.jsonl"
    dump.write_text(recording.read_text().replace("You are a weather agent.", prompt))
    (trajectory,), _ = convert_files(tmp_path / "out", dump)
    assert [said(call)[0] for call in trajectory.calls] == [("system", prompt)] * 2
    assert set(trajectory.incomplete_reasons) == {reason}
    assert all(turn.text_untrained is not None for turn in trajectory.turns)


def test_smolagents_prompts_have_the_messages_as_they_were_sent(tmp_path):
    (trajectory,), _ = convert(tmp_path, "smolagents")
    assert [message.role for message in trajectory.calls[-1].input_messages] == ["system", "user", "assistant", "user"]


@pytest.mark.parametrize("name", ["llamaindex", "llamaindex_stream"])
def test_methods_of_llamaindex_are_used_and_no_calls(tmp_path, name):
    (trajectory,), report = convert(tmp_path, name)
    assert report.calls.total == 2
    assert report.spans.ignored == {}
    assert all(call.choices[0].token_ids for call in trajectory.calls)


def test_what_logfire_knows_of_a_request_is_of_the_one_call(tmp_path):
    (trajectory,), _ = convert(tmp_path, "logfire")
    assert trajectory.calls[0].parameters["logprobs"] is True


def test_a_call_that_litellm_wrote_on_the_rollout_is_the_one_below_it(tmp_path):
    trajectories, report = convert(tmp_path, "litellm_on_rollout")
    assert report.calls.completed == 6
    for trajectory in trajectories:
        assert trajectory.incomplete_reasons == {}
        assert [call.failed for call in trajectory.calls] == [False, True, False, False]
        assert trajectory.calls[-1].error is None


def test_calls_that_litellm_overwrote_on_the_rollout_are_missing(tmp_path):
    trajectories, report = convert(tmp_path, "litellm_alone")
    assert [trajectory.incomplete_reasons for trajectory in trajectories] == [{"call overwritten": 1}] * 2
    assert report.calls.total == 0


def verdicts(trajectory):
    return [(turn.tokens_untrained, turn.text_untrained) for turn in trajectory.turns]


def test_what_pydantic_ai_records_is_read_as_its_server_saw_it(tmp_path):
    """Each rollout is a question of its own, most with a good answer behind it; see the README beside the recording."""
    trajectories, _ = convert_files(tmp_path / "out", FOLDER.parent / "broken" / "pydantic_ai.jsonl")
    found = {one.rollout_id: one for one in trajectories}
    good, broken = (None, None), ("stream broke", "stream broke")
    assert {name: verdicts(one) for name, one in found.items()} == {
        "refused stream": [good],
        "left stream": [broken, good],
        "reasoning in tags": [good, (None, "content uncertain")],
        "unknown tool": [good, good],
        "empty list": [good, good],
        "refused": [good],
        "cut stream": [broken, good],
    }
    assert {name: one.incomplete_reasons for name, one in found.items() if not one.complete} == {
        "reasoning in tags": {"lossy recorder": 1}
    }
    for name in ("refused stream", "refused"):
        assert [call.failed for call in found[name].calls] == [True, False]
    unknown, empty = (found[name].calls[-1].input_messages[-1].content for name in ("unknown tool", "empty list"))
    assert (empty, unknown[:30]) == ("", '{"error":"Unknown tool name: \'')
