"""Archives of Agent Lightning 1.0: what its gateway sent and got, with exact ids, and what an agent posted."""

import json
from copy import deepcopy

from art_otel import batches
from tests.conversions import convert_files

SERVER = {"model": "m", "endpoint": "http://10.0.0.1:8000/v1", "version": 3}
TOOL = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}
CALL = {"id": "call_1", "type": "function", "function": {"name": "add", "arguments": '{"a":2}'}}
FIRST = {"role": "user", "content": "2+2"}
SECOND = [FIRST, {"role": "assistant", "content": None, "tool_calls": [CALL]}]
SECOND.append({"role": "tool", "tool_call_id": "call_1", "content": "4"})


def request(at, messages, message, ids, prompt, finish="stop", attempt="0", **data):
    choice = {"index": 0, "message": message, "finish_reason": finish, "token_ids": ids}
    choice["logprobs"] = {"content": [{"token": "x", "logprob": -0.25 * place} for place, _ in enumerate(ids)]}
    usage = {"prompt_tokens": len(prompt), "completion_tokens": len(ids), "total_tokens": len(prompt) + len(ids)}
    body = {"model": "m", "messages": messages, "tools": [TOOL], "temperature": 1.0, "return_token_ids": True}
    response = {"id": f"chatcmpl-{at}", "object": "chat.completion", "model": "m", "choices": [choice], "usage": usage}
    response["prompt_token_ids"] = prompt
    data = {"request": body, "response": response, "server": SERVER, "latency_ms": 500.0, "model_version": 3, **data}
    return event(at, "model_request", {"http_status": 200, "status": "ok", **data}, attempt)


def event(at, kind, data, attempt="0"):
    return {"event_type": kind, "rollout_id": "r1", "attempt_id": attempt, "timestamp": 1775547600.0 + at, "data": data}


EVENTS = [
    request(1, [FIRST], {"role": "assistant", "content": None, "tool_calls": [CALL]}, [7, 8], [1, 2], "tool_calls"),
    request(2, SECOND, {"role": "assistant", "content": "4"}, [9, 10], [1, 2, 7, 8, 3]),
    event(3, "tests", {"passed": 2}),
    event(4, "reward", {"value": 0.5, "source": "agent"}),
    event(5, "reward", {"value": 1.0, "source": "agent", "message": "right"}),
]
STATUS = {"state": "succeeded", "last_attempt_id": "0", "version": 4, "created_at": 1775547600.0}
ROLLOUT = {
    "rollout_id": "r1",
    "input": {"question": "2+2"},
    "is_train": True,
    "config": {"timeout_seconds": 3600},
    "metadata": {"batch_idx": 1, "sample_idx_in_batch": None},
    "status": {**STATUS, "updated_at": 1775547606.0},
}


def converted(tmp_path, *lines):
    path = tmp_path / "archive.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return convert_files(tmp_path / "out", path)


def test_a_rollout_is_what_its_gateway_saw(tmp_path):
    (one,), report = converted(tmp_path, {"rollout": ROLLOUT, "events": EVENTS, "resources": None})
    assert report.files[0].format == "agent-lightning"
    assert (one.rollout_id, one.attempt, one.status, one.complete, one.split) == ("r1", None, "ok", True, "train")
    assert (one.reward, [reward.value for reward in one.rewards]) == (1.0, [0.5, 1.0])
    assert one.rewards[-1].explanation == "right; agent"
    assert one.policy_version.last == "3"
    assert one.metadata["input"] == {"question": "2+2"}
    assert one.metadata["events"] == [{"event_type": "tests", "timestamp": 1775547603.0, "data": {"passed": 2}}]
    first, second = one.calls
    assert [message.role for message in second.input_messages] == ["user", "assistant", "tool"]
    assert (first.end_ns - first.start_ns, first.usage.output_tokens, first.tools) == (500_000_000, 2, (TOOL,))
    assert [list(call.choices[0].token_ids) for call in one.calls] == [[7, 8], [9, 10]]
    assert [list(call.choices[0].logprobs) for call in one.calls] == [[0.0, -0.25]] * 2
    (batch,) = batches([one], advantage=None, batch_size=4)
    assert batch.input_ids[0][:7].tolist() == [1, 2, 7, 8, 3, 9, 10]
    assert batch.loss_mask[0][:7].tolist() == [0, 0, 1, 1, 0, 1, 1]


def test_attempts_share_the_id_and_a_failed_call_is_a_fact(tmp_path):
    failed = request(7, [FIRST], {}, [], [], attempt="1", http_status=400, status="error")
    failed["data"]["response"] = {"error": {"message": "too long", "code": 400}}
    again = request(8, [FIRST], {"role": "assistant", "content": "4"}, [9], [1, 2], attempt="1")
    reward = event(9, "reward", {"value": 0.0, "source": "fallback", "reason": "timeout"}, "1")
    rollout = {
        **ROLLOUT,
        "status": {**STATUS, "state": "failed", "error_message": "killed", "updated_at": 1775547610.0},
    }
    (first, last), _ = converted(tmp_path, {"rollout": rollout, "events": [*EVENTS, failed, again, reward]})
    assert [(one.rollout_id, one.attempt, one.status, one.reward) for one in (first, last)] == [
        ("r1", 0, "error", 1.0),
        ("r1", 1, "error", 0.0),
    ]
    assert last.error.endswith("killed")
    assert [(call.failed, call.error) for call in last.calls] == [(True, "too long"), (False, None)]


def test_the_status_of_earlier_versions_and_a_rollout_that_runs(tmp_path):
    flat = {**ROLLOUT, "status": "running", "created_at": 1775547600.0, "updated_at": 1775547606.0}
    other = deepcopy(EVENTS)
    (one,), _ = converted(tmp_path, {"rollout": flat, "events": other})
    assert (one.status, one.ended_at, one.incomplete_reasons) == ("unfinished", None, {"not ended": 1})


def test_completed_rollouts_say_their_group_and_step(tmp_path):
    completed = {"rollout_id": "r1", "data_id": "d1", "step": 7, "sample_idx_in_step": 0, "input": "2+2"}
    completed |= {"enqueue_time": 1775547590.0, "running_at": 1775547599.0, "finished_at": 1775547606.0}
    completed |= {"rollout_state": "succeeded", "events": EVENTS, "triplets": [], "final_reward": 1.0}
    (one,), _ = converted(tmp_path, completed)
    assert (one.group_id, one.training_step, one.status, one.complete) == ("d1", 7, "ok", True)


def test_an_answer_that_is_not_understood_is_missing(tmp_path):
    """Gateways before 1.0 stored the chunks of a stream."""
    streamed = deepcopy(EVENTS[1])
    streamed["data"]["response"] = [{"object": "chat.completion.chunk", "choices": []}]
    (one,), _ = converted(tmp_path, {"rollout": ROLLOUT, "events": [EVENTS[0], streamed]})
    assert one.incomplete_reasons == {"request not logged whole": 1}
    assert one.calls[1].choices is None
