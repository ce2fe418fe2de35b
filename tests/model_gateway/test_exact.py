"""Exact tokens, over exchanges of a real vLLM 0.32 that `record_vllm` recorded."""

import json
import re
from collections.abc import Callable, Iterator

import httpx
import openai
import pytest

from art_otel.conventions.vocabulary import response_finish_reason
from art_otel.errors import UsageError
from art_otel.exchange.answer_shapes import CompletionShape, RequestFacts
from art_otel.exchange.response_shape import ResponseShape
from art_otel.model_gateway.sampled_choices import StreamedCalls
from art_otel.model_gateway.splice import as_ids
from tests.examples import daily
from tests.model_gateway.exact_cases import comparable, requests
from tests.model_gateway.gateways import gateway, recorded
from tests.model_gateway.record_vllm import CUT, MODEL, PATHS, VERSIONS, Reply, asked, read, replayed, serving

JSON = "application/json"


@pytest.mark.parametrize("version", daily(VERSIONS, one_in=2))
def test_to_the_agent_it_is_the_server_and_every_id_is_known(tmp_path, version):
    own_answers = read(version)["own"]
    with replayed(version=version) as url, gateway(tmp_path, url, tokens="exact") as running:
        for number, ((path, body), (status, kind, text)) in enumerate(zip(asked(version), own_answers, strict=True)):
            own = httpx.Response(status, headers={"content-type": kind}, content=text.encode())
            ours = httpx.post(f"{running.url}/rollout/{number}{path}", json=body, timeout=30)
            assert comparable(ours) == comparable(own), (path, body)
    calls = [call for trajectory in recorded(tmp_path) for call in trajectory.calls]
    assert len(calls) == len(own_answers)
    outcomes = [call.extra["prompt"] for call in calls]
    assert outcomes.count("passed_through") == sum(status != 200 for status, *_ in own_answers)
    for call in calls:
        if call.extra["prompt"] != "passed_through":
            assert call.prompt_token_ids is not None
            assert all(len(choice.token_ids) == len(choice.logprobs) > 0 for choice in call.choices)
            assert call.logprobs_mode == "raw"
            assert call.usage.input_tokens == len(call.prompt_token_ids)
            assert call.usage.output_tokens == sum(len(choice.token_ids) for choice in call.choices)


def test_a_server_that_does_not_sample_from_ids_is_an_error_at_the_start(tmp_path, address):
    with pytest.raises(UsageError, match="--enable-scale-out"), gateway(tmp_path, address, tokens="exact"):
        pass


ANSWER = {
    "id": "c",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "4"}, "finish_reason": "stop"}],
}


DISABLED = {
    "message": "Scale-out endpoints are disabled. Restart vllm serve with --enable-scale-out to enable them.",
    "type": "PermissionDeniedError",
    "code": 403,
}
"""What vLLM 0.32 answers to its paths that take and give ids, where it was started without them."""


def test_a_vllm_that_was_started_without_ids_is_asked_for_them_once(tmp_path):
    asks: list[str] = []

    def answer(path: str, _: str) -> tuple[int, str, str]:
        asks.append(path)
        is_chat = path == "/v1/chat/completions"
        return (200 if is_chat else 403, "application/json", json.dumps(ANSWER if is_chat else {"error": DISABLED}))

    with serving(answer) as url:
        with gateway(tmp_path, url) as running:
            body = {"model": "m", "messages": [{"role": "user", "content": "2 + 2?"}]}
            for _ in range(3):
                assert httpx.post(f"{running.url}/rollout/1/v1/chat/completions", json=body, timeout=30).is_success
        assert asks.count("/inference/v1/generate") == 1
        with pytest.raises(UsageError, match="--enable-scale-out"), gateway(tmp_path, url, tokens="exact"):
            pass


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
    assert "an unexpected form" in call.extra["prompt_reason"]


def test_what_cannot_be_parsed_behind_the_sampling_broke_off(tmp_path):
    path, body = next((path, body) for path, body in requests(MODEL) if path == "/v1/chat/completions")
    with (
        replayed(lambda asked, reply: (200, JSON, "{}") if asked.endswith("/derender") else reply) as url,
        gateway(tmp_path, url, tokens="exact") as running,
    ):
        answered = httpx.post(f"{running.url}/rollout/1{path}", json=body, timeout=30)
    assert answered.status_code == 502
    ((call,),) = [trajectory.calls for trajectory in recorded(tmp_path)]
    assert call.failed


DIED = {"message": "the engine died", "type": "ServiceUnavailableError", "param": None, "code": 503}
BREAKS = {
    "error": (f"data: {json.dumps({'error': DIED})}\n\ndata: [DONE]\n\n", "the engine died"),
    "cut": (CUT, "the model server broke off"),
    "end": ("", "the stream of generate ended too early"),
    "garbage": ("data: {torn\n\n", "the model server broke off"),
    "form": ('data: {"choices": [3]}\n\n', "the model server broke off"),
}


SAID = "what was said before"


def breaking(how: str) -> Callable[[str, Reply], Reply]:
    """Break an answer of generate: behind the first event of a stream, within the choices of another.

    What the parsers make of that event was not recorded; it is `SAID`.
    """
    parsed = {"stream_state": {}, "chunk": {"choices": [{"index": 0, "delta": {"content": SAID}}]}}

    def broken(asked: str, reply: Reply) -> Reply:
        status, kind, text = reply
        if status == 404 and asked.endswith("/derender"):
            return (200, JSON, json.dumps(parsed))
        if status != 200 or asked != "/inference/v1/generate":
            return reply
        begun, end, _ = text.partition("\n\n")
        return (200, kind, f"{begun}{end}{BREAKS[how][0]}" if end else text[: text.index("}]")])

    return broken


def asked_of(path: str) -> Iterator[dict]:
    """A request, and the same streamed: in this order it was recorded."""
    bodies = [body for asked, body in requests(MODEL) if asked == path]
    return iter(bodies[:2])


@pytest.mark.parametrize(
    ("dialect", "how"),
    [
        pytest.param(dialect, how, marks=[pytest.mark.long] * ((number + at) % 3 != 0))
        for number, dialect in enumerate(PATHS)
        for at, how in enumerate(BREAKS)
    ],
)
def test_a_sampling_that_breaks_off_is_an_error_of_the_dialect(tmp_path, dialect, how):
    """As the server's own, where it has begun to stream; before it has, by the status. Nothing of it is trained.

    What the server had streamed before it failed is there.
    """
    path = PATHS[dialect]
    with replayed(breaking(how)) as url, gateway(tmp_path, url, tokens="exact") as running:
        whole, streamed = (httpx.post(f"{running.url}/rollout/1{path}", json=body) for body in asked_of(path))
    (trajectory,) = recorded(tmp_path)
    said = "FailedError" if how == "error" else "BrokenOffError"
    assert [call.error_type for call in trajectory.calls] == ["BrokenOffError", said]
    assert {turn.tokens_untrained for turn in trajectory.turns} <= {"failed"}
    assert whole.status_code == 502
    assert "broke off" in whole.json()["error"]["message"]
    assert streamed.status_code == 200
    *begun, last = [line[5:].strip() for line in streamed.text.splitlines() if line.startswith("data:")]
    first = json.loads(begun[0])["choices"][0]["text"] if dialect == "completions" else SAID
    assert first
    assert first in streamed.text
    if dialect in ("chat", "completions"):
        assert last == "[DONE]"
        error = json.loads(begun[-1])["error"]
        assert error.items() >= (DIED if how == "error" else {"type": "InternalServerError", "code": 500}).items()
    elif dialect == "messages":
        assert streamed.text.splitlines()[-3] == "event: error"
        error = json.loads(last)["error"]
        assert error["type"] == "internal_error"
    else:
        failed = json.loads(last)
        assert (failed["type"], failed["sequence_number"]) == ("response.failed", len(begun))
        assert failed["response"]["status"] == "failed"
        error = failed["response"]["error"]
    assert BREAKS[how][1] in error["message"]


LAST = {
    "chat": '"finish_reason":"',
    "completions": '"finish_reason":"',
    "messages": "message_stop",
    "responses": "response.completed",
}


@pytest.mark.long
@pytest.mark.parametrize("dialect", PATHS)
def test_an_agent_may_leave_when_it_has_what_ends_its_answer(tmp_path, dialect):
    """It has that only when all is known and recorded."""
    path = PATHS[dialect]
    endless = [True]

    def without_end(asked: str, reply: Reply) -> Reply:
        is_cut = endless[0] and asked == "/inference/v1/generate"
        return (reply[0], reply[1], reply[2].replace("data: [DONE]", "")) if is_cut else reply

    with replayed(without_end) as url, gateway(tmp_path, url, tokens="exact") as running:
        whole, streamed = asked_of(path)
        httpx.post(f"{running.url}/rollout/whole{path}", json=whole)
        assert LAST[dialect] not in httpx.post(f"{running.url}/rollout/cut{path}", json=streamed).text
        endless[0] = False
        for number in range(5):
            with httpx.stream("POST", f"{running.url}/rollout/left-{number}{path}", json=streamed) as answer:
                assert any(LAST[dialect] in line for line in answer.iter_lines())
    turns = {one.rollout_id: [turn.tokens_untrained for turn in one.turns] for one in recorded(tmp_path)}
    assert turns.pop("cut") in ([], ["failed"])
    assert turns == {"whole": [None], **{f"left-{number}": [None] for number in range(5)}}


@pytest.mark.long
def test_clients_of_openai_raise_the_error(tmp_path):
    with (
        replayed(breaking("error")) as url,
        gateway(tmp_path, url, tokens="exact") as running,
        openai.OpenAI(base_url=f"{running.url}/rollout/1/v1", api_key="none", max_retries=0) as client,
    ):
        for dialect, create in (("chat", client.chat.completions.create), ("completions", client.completions.create)):
            whole, streamed = asked_of(PATHS[dialect])
            with pytest.raises(openai.APIStatusError, match="broke off"):
                create(**whole)
            with pytest.raises(openai.APIError, match="the engine died"):
                list(create(**streamed))
        whole, streamed = ({"extra_body": {"seed": body.pop("seed")}, **body} for body in asked_of(PATHS["responses"]))
        with pytest.raises(openai.APIStatusError, match="broke off"):
            client.responses.create(**whole)
        *_, last = client.responses.create(**streamed)
    assert last.type == "response.failed"
    assert last.response.error.message == "the engine died"


@pytest.mark.long
def test_where_images_stand_in_a_prompt_is_said(tmp_path):
    """The rest of an answer with images is as of one without."""
    features = {"mm_hashes": {"image": ["h"]}, "mm_placeholders": {"image": [{"offset": 3, "length": 4}]}}

    def pictured(asked: str, reply: Reply) -> Reply:
        if not asked.endswith("/render"):
            return reply
        return (200, JSON, json.dumps({**json.loads(reply[2]), "features": features}))

    path, body = PATHS["chat"], next(asked_of(PATHS["chat"]))
    with replayed(pictured, but=("features",)) as url, gateway(tmp_path, url, tokens="exact") as running:
        assert httpx.post(f"{running.url}/rollout/1{path}", json=body).status_code == 200
    ((call,),) = [trajectory.calls for trajectory in recorded(tmp_path)]
    assert call.extra["placeholders"] == {"image": [[3, 4]]}
    assert call.extra["prompt"] != "passed_through"


NOT_SAMPLED = [
    ("responses", {}, "store"),
    ("responses", {"store": True}, "store"),
    ("responses", {"tools": [{"type": "code_interpreter"}], "store": False}, "a tool of type code_interpreter"),
    (
        "responses",
        {"include": ["message.output_text.logprobs"], "store": False},
        "include message.output_text.logprobs",
    ),
    ("responses", {"enable_response_messages": True, "store": False}, "enable_response_messages"),
    ("chat", {"logprobs": True, "return_tokens_as_token_ids": True}, "return_tokens_as_token_ids"),
    ("chat", {"logprobs": True, "logprob_token_ids": [3]}, "logprob_token_ids"),
    ("chat", {"stream_options": {"include_usage": True}}, "stream_options without stream"),
    ("completions", {"prompt_logprobs": 0}, "prompt_logprobs"),
]


@pytest.mark.long
def test_what_sampling_from_ids_does_not_give_is_asked_of_the_server_as_it_is(tmp_path):
    """So is what a server is to store, if it has a store: clients ask for that by its id."""

    def stores(asked: str, reply: Reply) -> Reply:
        is_there = asked != "/v1/responses" or b"VLLM_ENABLE_RESPONSES_API_STORE" not in reply[2].encode()
        return reply if is_there else (404, JSON, '{"error": {"message": "Response with id \'resp_none\' not found."}}')

    with replayed(stores) as url, gateway(tmp_path, url) as running:
        for dialect, ask, _ in NOT_SAMPLED:
            path = PATHS[dialect]
            body = {**next(asked_of(path)), **ask}
            if "store" not in ask:
                body.pop("store", None)
            answered = httpx.post(f"{running.url}/rollout/1{path}", json=body, timeout=30)
            assert (answered.status_code, answered.text) == (404, "not recorded")
    (trajectory,) = recorded(tmp_path)
    assert {call.extra["prompt"] for call in trajectory.calls} == {"passed_through"}
    assert [call.extra["prompt_reason"] for call in trajectory.calls] == [reason for *_, reason in NOT_SAMPLED]


@pytest.mark.long
@pytest.mark.parametrize("is_asked", [True, False])
@pytest.mark.parametrize("dialect", ["chat", "completions"])
def test_each_chunk_counts_its_choice_where_it_is_asked_to(tmp_path, dialect, is_asked):
    """As vLLM does: only where usage is asked for at all."""
    path, options = PATHS[dialect], {"include_usage": is_asked, "continuous_usage_stats": True}
    whole, streamed = asked_of(path)
    with replayed() as url, gateway(tmp_path, url, tokens="exact") as running:
        httpx.post(f"{running.url}{path}", json=whole)
        answered = httpx.post(f"{running.url}{path}", json={**streamed, "stream_options": options})
    events = [json.loads(line[6:]) for line in answered.text.splitlines() if line.startswith("data: {")]
    if is_asked:
        *chunks, last = [event["usage"]["completion_tokens"] for event in events]
        assert chunks == sorted(chunks)
        assert chunks[-1] == last > 0
    else:
        assert not any("usage" in event for event in events)


FACTS = RequestFacts(
    answer_id="r",
    created=0,
    model=MODEL,
    dialect="responses",
    request={"input": "Hi"},
    sampling={},
    prompt_ids=as_ids([1]),
)


@pytest.mark.parametrize("finish", ["stop", "length", "abort"])
def test_a_response_says_why_it_ended(finish):
    """`abort` is what vLLM says where a trainer pauses it to load weights."""
    shape = ResponseShape(FACTS)
    shape.begin()
    shape.piece({"index": 0, "delta": {"content": "Hi"}, "finish_reason": finish})
    last = shape.end({"prompt_tokens": 1, "completion_tokens": 2}).decode().rstrip().rpartition("data: ")[2]
    response = json.loads(last)["response"]
    assert response["status"] == ("completed" if finish == "stop" else "incomplete")
    assert response_finish_reason(response, tool_calls=False) == finish


def test_offsets_of_completions_count_the_tokens_not_the_text():
    """As vLLM's do: the text of a token that ends inside a character comes with the next one."""
    shape = CompletionShape(FACTS)
    pieces = [("xt", "xt"), ("", ""), ("\ufffdcor", "cor"), ("rue", "rue")]
    sent = b"".join(
        shape.piece({"index": 0, "text": text, "logprobs": {"content": [{"token": token, "logprob": -1.0}]}})
        for text, token in pieces
    )
    chunks = [json.loads(line[6:]) for line in sent.decode().splitlines() if line]
    assert [chunk["choices"][0]["logprobs"]["text_offset"] for chunk in chunks] == [[0], [2], [2], [5]]


def test_text_that_comes_with_a_call_stands_before_it_and_later_text_behind_all():
    streamed = StreamedCalls()
    look = {"index": 0, "id": "c", "function": {"name": "look", "arguments": "{}"}}
    assert streamed.take({"content": "Let me.", "tool_calls": [look]}) == {"content": "Let me."}
    assert streamed.take({"content": "\n", "tool_calls": [{**look, "index": 1}]}) == {}
    assert (streamed.text_behind, len(streamed.calls)) == ("\n", 2)


def test_text_between_the_pieces_of_a_tool_call_stands_behind_it():
    shape = ResponseShape(FACTS)
    call = {"index": 0, "id": "c", "function": {"name": "look", "arguments": '{"a":'}}
    shape.begin()
    shape.piece({"index": 0, "delta": {"tool_calls": [call]}})
    shape.piece({"index": 0, "delta": {"content": "\n", "tool_calls": [{"index": 0, "function": {"arguments": "1}"}}]}})
    last = shape.end({"prompt_tokens": 1, "completion_tokens": 2}).decode().rstrip().rpartition("data: ")[2]
    called, said = json.loads(last)["response"]["output"]
    assert (called["arguments"], said["content"][0]["text"]) == ('{"a":1}', "\n")


@pytest.mark.parametrize("dialect", daily(PATHS, one_in=2))
def test_what_the_server_broke_off_is_not_trained(tmp_path, dialect):
    """A trainer pauses vLLM to load weights. Anthropic's API has no word for it: its reason is null."""
    choice = {"index": 0, "message": {"role": "assistant", "content": SAID}, "finish_reason": "abort"}
    parsed = {"choices": [choice], "stream_state": {}, "chunk": {"choices": [{"index": 0, "delta": {"content": SAID}}]}}

    def paused(asked: str, reply: Reply) -> Reply:
        status, kind, text = reply
        if status == 404 and asked.endswith("/derender"):
            return (200, JSON, json.dumps(parsed))
        if asked == "/inference/v1/generate":
            text = re.sub(r'("finish_reason": ?)"(?:stop|length)"', r'\1"abort"', text)
        return status, kind, text

    path = PATHS[dialect]
    with replayed(paused) as url, gateway(tmp_path, url, tokens="exact") as running:
        for body in asked_of(path):
            assert httpx.post(f"{running.url}/rollout/1{path}", json=body, timeout=30).status_code == 200
    (trajectory,) = recorded(tmp_path)
    assert [bool(turn.token_ids) for turn in trajectory.turns] == [True, True]
    streamed = "stream broke" if dialect == "messages" else "aborted"
    assert [turn.tokens_untrained for turn in trajectory.turns] == ["aborted", streamed]
    assert [turn.text_untrained for turn in trajectory.turns] == ["aborted", streamed]
