"""RolloutTrace: what each call saw, did and was worth, in raw numbers."""

import json

import pytest

from art_otel import rollout_traces
from art_otel.calls import Message, TokenIds
from art_otel.conventions.bodies.tokens import encode_ids
from art_otel.trajectories import Trajectory
from tests.conversions import RECORDINGS, convert_files, convert_spans
from tests.dumps import attribute, chat_span, make_span
from tests.trajectories.calls import asked


def evaluation(name: str, value: float | None = None):
    score = {"gen_ai.evaluation.score.label": "yes"} if value is None else {"gen_ai.evaluation.score.value": value}
    known = {"gen_ai.evaluation.name": name, **score}
    attributes = [{"key": key, "value": attribute(value)} for key, value in known.items()]
    return {"timeUnixNano": "5", "name": "gen_ai.evaluation.result", "attributes": attributes}


def test_a_trace_has_the_prompt_the_response_and_raw_rewards(tmp_path):
    progress = evaluation("progress", 0.1)
    spans = [
        make_span(1, name="rollout x", attributes={"art.rollout.id": "r", "art.reward": 1.0}),
        make_span(2, 1, attributes={"art.step.index": 0, "art.env_state": '{"left": 3}'}, events=[progress]),
        chat_span(3, 2, ["a"], "b", events=[evaluation("style", 1 / 3)], attributes={"art.extra.note": "n"}),
        chat_span(4, 1, ["a", "b", "c"], "d"),
    ]
    (trajectory,), _ = convert_spans(tmp_path, *spans)
    first, second = rollout_traces(trajectory)
    assert [message["content"] for message in first.prompt["messages"]] == ["a"]
    assert first.policy_response["choices"] == [
        {"index": 0, "message": {"role": "assistant", "content": "b"}, "finish_reason": "stop"}
    ]
    assert first.reward_data == {"style": 1 / 3, "step/progress": 0.1, "rollout/reward": 1.0}
    assert (first.env_state, first.extra) == ({"left": 3}, {"note": "n"})
    assert [message["content"] for message in second.prompt["messages"]] == ["a", "b", "c"]
    assert (second.reward_data, second.env_state, second.extra) == ({"rollout/reward": 1.0}, None, None)
    assert json.loads(json.dumps(first.policy_response)) == first.policy_response


def test_a_call_has_the_rewards_of_its_step_but_not_those_of_other_calls_agents_and_tools_in_it(tmp_path):
    scored = {"openinference.span.kind": "TOOL", "art.reward": 0.5}
    spans = [
        make_span(1, name="rollout x", attributes={"art.rollout.id": "r"}),
        make_span(2, 1, attributes={"art.step.index": 0}, events=[evaluation("progress", 0.1)]),
        chat_span(3, 2, ["a"], "b", events=[evaluation("style", 0.2), evaluation("style", 0.3)]),
        chat_span(4, 2, ["a", "b", "c"], "d", events=[evaluation("style", 0.4), evaluation("good")]),
        make_span(5, 2, name="tool", attributes=scored),
    ]
    (trajectory,), _ = convert_spans(tmp_path, *spans)
    assert [trace.reward_data for trace in rollout_traces(trajectory)] == [
        {"style": 0.3, "step/progress": 0.1},
        {"style": 0.4, "step/progress": 0.1},
    ]


def test_nobody_knows_in_which_of_two_steps_of_one_index_a_call_was(tmp_path):
    steps = [make_span(at, 1, attributes={"art.step.index": 0, "art.reward": at / 4}) for at in (2, 3)]
    spans = [make_span(1, name="rollout x"), *steps, chat_span(4, 2, ["a"], "b"), chat_span(5, 3, ["c"], "d")]
    (trajectory,), _ = convert_spans(tmp_path, *spans)
    assert [trace.reward_data for trace in rollout_traces(trajectory)] == [None, None]


def test_token_ids_tools_and_tool_calls_are_in_the_trace(tmp_path):
    (trajectory,), _ = convert_files(tmp_path / "out", RECORDINGS / "openinference" / "sync_tools.jsonl")
    first, second = rollout_traces(trajectory)
    assert len(first.prompt["token_ids"]) == 41
    assert first.prompt["tools"][0]["function"]["name"] == "get_weather"
    assert first.prompt["parameters"]["temperature"] == 0.7
    choice = first.policy_response["choices"][0]
    assert len(choice["token_ids"]) == len(choice["logprobs"]) == 19
    assert choice["message"]["tool_calls"][0]["function"]["arguments"] == '{"city": "Paris"}'
    assert choice["message"]["reasoning_content"].startswith("The user wants")
    assert second.prompt["messages"][-1] == {"role": "tool", "content": "Tokyo: sunny", "tool_call_id": "call_tokyo_0"}


def test_what_is_unknown_is_left_out(tmp_path):
    blind = make_span(2, 1, kind=3, attributes={"gen_ai.operation.name": "chat"})
    failed = chat_span(3, 1, ["a"], None, status={"code": 2, "message": "dead"}, attributes={"error.type": "E"})
    (trajectory,), _ = convert_spans(tmp_path, make_span(1, name="rollout x"), blind, failed)
    unknown, broken = rollout_traces(trajectory)
    assert (unknown.prompt, unknown.policy_response) == (None, None)
    assert broken.policy_response == {"error_type": "E", "error": "dead"}
    assert broken.prompt["model"] == "m"


def test_a_prompt_of_tokens_alone_is_in_the_trace(tmp_path):
    blind = {"gen_ai.operation.name": "chat", "art.tokens.prompt": encode_ids(TokenIds.of([5, 6]))}
    (trajectory,), _ = convert_spans(
        tmp_path, make_span(1, name="rollout x"), make_span(2, 1, kind=3, attributes=blind)
    )
    (trace,) = rollout_traces(trajectory)
    assert trace.prompt == {"token_ids": [5, 6]}


@pytest.mark.parametrize("text", ['[{"type": "image", "url": "u"}]', "no JSON"])
def test_content_that_is_more_than_text_is_in_the_trace(text):
    question = Message(role="user", content="see", parts=text)
    trajectory = Trajectory(rollout_id="r", trace_id="a", calls=(asked(1, [question], None, [], error_type="E"),))
    (trace,) = rollout_traces(trajectory)
    parts = json.loads(text) if text.startswith("[") else text
    assert trace.prompt["messages"] == [{"role": "user", "content": "see", "parts": parts}]
