"""Exact tokens, over exchanges of a real vLLM 0.32 that `record_vllm` recorded."""

import json

import httpx
import pytest

from art_otel.errors import UsageError
from art_otel.model_gateway.answer_shapes import Asking
from art_otel.model_gateway.response_shape import ResponseShape
from art_otel.model_gateway.splice import as_ids
from tests.model_gateway.exact_cases import comparable, requests
from tests.model_gateway.gateways import gateway, recorded
from tests.model_gateway.record_vllm import MODEL, read, replayed, serving


def test_to_the_agent_it_is_the_server_and_every_id_is_known(tmp_path):
    with replayed() as url, gateway(tmp_path, url, tokens="exact") as running:
        for number, ((path, body), (status, kind, text)) in enumerate(zip(requests(MODEL), read()["own"], strict=True)):
            own = httpx.Response(status, headers={"content-type": kind}, content=text.encode())
            ours = httpx.post(f"{running.url}/rollout/{number}{path}", json=body, timeout=30)
            assert comparable(ours) == comparable(own), (path, body)
    calls = [call for trajectory in recorded(tmp_path) for call in trajectory.calls]
    assert len(calls) == len(requests(MODEL))
    outcomes = [call.extra["prompt"] for call in calls]
    assert outcomes.count("passed_through") == sum(status != 200 for status, *_ in read()["own"])
    for call in calls:
        if call.extra["prompt"] != "passed_through":
            assert call.prompt_token_ids is not None
            assert all(len(choice.token_ids) == len(choice.logprobs) > 0 for choice in call.choices)


def test_a_server_that_does_not_sample_from_ids_is_an_error_at_the_start(tmp_path, address):
    with pytest.raises(UsageError, match="--enable-scale-out"), gateway(tmp_path, address, tokens="exact"):
        pass


ANSWER = {
    "id": "c",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "4"}, "finish_reason": "stop"}],
}


@pytest.mark.parametrize("form", ["{}", "[]", "no JSON"])
def test_a_server_of_another_version_is_asked_as_the_agent_asked(tmp_path, form):
    def answer(path: str, _: str) -> tuple[int, str, str]:
        if path == "/inference/v1/generate":
            return (400, "application/json", '{"error": "token_ids"}')
        is_ours = path == "/v1/chat/completions"
        return (200, "application/json", json.dumps(ANSWER) if is_ours else form)

    with serving(answer) as url, gateway(tmp_path, url) as running:
        body = {"model": "m", "messages": [{"role": "user", "content": "2 + 2?"}]}
        answered = httpx.post(f"{running.url}/rollout/1/v1/chat/completions", json=body, timeout=30)
    assert answered.json() == ANSWER
    ((call,),) = [trajectory.calls for trajectory in recorded(tmp_path)]
    assert call.extra["prompt"] == "passed_through"
    assert "another form" in call.extra["prompt_reason"]


def test_what_cannot_be_parsed_behind_the_sampling_broke_off(tmp_path):
    path, body = next((path, body) for path, body in requests(MODEL) if path == "/v1/chat/completions")
    unknown = {f"{path}/derender": (200, "application/json", "{}")}
    with replayed(unknown) as url, gateway(tmp_path, url, tokens="exact") as running:
        answered = httpx.post(f"{running.url}/rollout/1{path}", json=body, timeout=30)
    assert answered.status_code == 502
    ((call,),) = [trajectory.calls for trajectory in recorded(tmp_path)]
    assert call.failed


def test_tools_that_only_the_server_knows_and_stored_responses_go_to_it_as_they_are(tmp_path):
    asks = [
        {"tools": [{"type": "custom", "name": "apply_patch"}]},
        {"store": True},
        {"include": ["reasoning.encrypted_content"]},
    ]
    with replayed() as url, gateway(tmp_path, url) as running:
        for ask in asks:
            body = {"model": MODEL, "input": "Hi", **ask}
            assert httpx.post(f"{running.url}/rollout/1/v1/responses", json=body, timeout=30).status_code == 404
    (trajectory,) = recorded(tmp_path)
    assert {call.extra["prompt"] for call in trajectory.calls} == {"passed_through"}
    assert [call.extra["prompt_reason"] for call in trajectory.calls] == ["a tool of type custom", "store", "include"]


def test_text_between_the_pieces_of_a_tool_call_stands_behind_it():
    asking = Asking(
        answer_id="r",
        created=0,
        model=MODEL,
        dialect="responses",
        request={"input": "Hi"},
        sampling={},
        prompt_ids=as_ids([1]),
    )
    shape = ResponseShape(asking)
    call = {"index": 0, "id": "c", "function": {"name": "look", "arguments": '{"a":'}}
    shape.begin()
    shape.piece({"index": 0, "delta": {"tool_calls": [call]}})
    shape.piece({"index": 0, "delta": {"content": "\n", "tool_calls": [{"index": 0, "function": {"arguments": "1}"}}]}})
    last = shape.end({"prompt_tokens": 1, "completion_tokens": 2}).decode().rstrip().rpartition("data: ")[2]
    called, said = json.loads(last)["response"]["output"]
    assert (called["arguments"], said["content"][0]["text"]) == ('{"a":1}', "\n")
