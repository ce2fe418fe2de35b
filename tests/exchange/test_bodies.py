"""The line of a call has the bodies as they were; what is read of it, and what a collector gets, is made from them."""

import json
import math
from codecs import BOM_UTF8

import pytest

from art_otel import attributes as names
from art_otel.conventions.content_names import CONTENT_NAMES
from art_otel.conventions.exchanges import BODIES, whole
from art_otel.exchange import api_dialects
from art_otel.exchange import exchange as exchanges
from art_otel.exchange.exchange import Exchange, response_body
from art_otel.model_gateway.addresses import RequestAddress
from art_otel.model_gateway.rollouts import call_span, gateway_resource
from art_otel.scrubbing import RecordScrubber, Scrubber
from art_otel.scrubbing.scrubber import scrub_span
from art_otel.spans import Span
from art_otel.trajectories import SpanGroup, build_trajectories
from tests.scrubbing.secrets import SECRETS

KEY = SECRETS["openai"][1]
AWS = "secret_access_key=wJalrXUtnFEMI/K7MDENG+bPxRfiCYzR4tVQ9aLm"
ANSWER = {
    "id": "c1",
    "model": "m",
    "prompt_token_ids": [1, 2, 3],
    "choices": [
        {
            "index": 0,
            "finish_reason": "stop",
            "token_ids": [7, 8],
            "logprobs": {"content": [{"token": "a", "logprob": -0.5}, {"token": "b", "logprob": -1.5}]},
            "message": {"role": "assistant", "content": "yes"},
        }
    ],
    "usage": {"prompt_tokens": 3, "completion_tokens": 2},
}
CHAT = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "temperature": 0.5}


def answered(request: bytes, answer: bytes, path: str = "/v1/chat/completions") -> Exchange:
    dialect = api_dialects.dialect_of(path)
    assert dialect is not None
    exchange = Exchange(dialect, path, request, 1)
    exchange.begin(200, b"application/json")
    exchange.take(answer)
    return exchange


def recorded(request: bytes, answer: bytes, path: str = "/v1/chat/completions") -> Span:
    """The span that is written of a call, scrubbed."""
    exchange = answered(request, answer, path)
    span = call_span(exchange, RequestAddress("path", "r"), "http://server", gateway_resource())
    return scrub_span(span, RecordScrubber(Scrubber(), CONTENT_NAMES))


def call_of(span: Span):
    (trajectory,) = build_trajectories(SpanGroup(spans=[span])).trajectories
    return trajectory.calls[0]


def test_a_line_has_the_bodies_as_they_were_and_a_collector_what_they_mean():
    request, answer = json.dumps(CHAT, indent=1).encode(), json.dumps(ANSWER).encode()
    span = recorded(request, answer)
    assert [span.attributes[name] for name in BODIES] == [request.decode(), answer.decode()]
    assert not any(name.startswith(("gen_ai.input", "gen_ai.output", "art.tokens")) for name in span.attributes)
    sent_on = whole(span)
    assert not any(name in sent_on.attributes for name in BODIES)
    assert {"gen_ai.input.messages", "gen_ai.output.messages", "art.tokens.prompt"} <= sent_on.attributes.keys()
    call = call_of(span)
    assert call == call_of(sent_on)
    assert (call.choices[0].message.content, [*call.choices[0].token_ids]) == ("yes", [7, 8])
    assert call.parameters["temperature"] == 0.5


@pytest.mark.parametrize(
    ("request_body", "answer"),
    [
        ({**CHAT, "messages": [{"role": "user", "content": "hi \ud83d"}]}, ANSWER),
        ({**CHAT, "\ud83d": 1}, ANSWER),
        (CHAT, {**ANSWER, "system_fingerprint": "\ud83d"}),
    ],
    ids=["in a message", "as a name", "in an answer"],
)
def test_half_an_emoji_costs_no_call(request_body, answer):
    span = recorded(json.dumps(request_body).encode(), json.dumps(answer).encode())
    for name in BODIES:
        assert json.loads(span.attributes[name].encode())
    assert call_of(span).choices[0].message.content == "yes"


@pytest.mark.parametrize("escape", ["\\u002d", "\\/"])
def test_broken_json_is_not_written_where_escapes_may_hide_a_secret(escape):
    for body in (json.dumps(CHAT)[:-1], "{" + escape):
        span = recorded(f'{body}, "a": "sk{escape}ant'.encode(), json.dumps(ANSWER).encode())
        assert names.REQUEST_BODY not in span.attributes


def test_a_stream_is_whole_for_who_leaves_it_only_if_all_its_choices_ended():
    for asked, closed in ((1, None), (2, "left")):
        exchange = Exchange("chat", "/v1/chat/completions", json.dumps({**CHAT, "n": asked}).encode(), 1)
        exchange.begin(200, b"text/event-stream")
        choice = {"index": 0, "delta": {"content": "yes"}, "finish_reason": "stop"}
        exchange.take(b"data: %b\n\n" % json.dumps({"id": "c", "model": "m", "choices": [choice]}).encode())
        exchange.note_closed("left")
        assert response_body(exchange).get(names.CLOSED_BY_APP) == closed


def test_the_error_in_an_array_of_gemini_is_found_at_once():
    exchange = Exchange("gemini", "/v1beta/models/m:streamGenerateContent", b'{"contents": []}', 1)
    exchange.begin(200, b"application/json")
    exchange.take(b'[{"error": {"code": 503, "message": "overloaded", "status": "UNAVAILABLE"}}]')
    failure = exchange.why_failed()
    assert failure is not None
    assert "overloaded" in failure.message


@pytest.mark.parametrize("escape", [("+", "\\u002B"), ("/", "\\/")], ids=["as .NET", "as PHP"])
def test_a_secret_is_found_however_it_is_escaped(escape):
    request = json.dumps({**CHAT, "messages": [{"role": "user", "content": AWS}]}).replace(*escape).encode()
    span = recorded(request, json.dumps(ANSWER).encode())
    assert "[scrubbed:aws key]" in span.attributes[names.REQUEST_BODY]
    assert span.attributes[names.SCRUBBED_CONTENT] is True
    call = call_of(span)
    assert (call.prompt_token_ids, call.choices[0].token_ids, call.choices[0].logprobs) == (None, None, None)


def test_ids_of_a_prompt_go_with_a_secret_of_the_answer():
    answer = {"id": "c", "model": "m", "choices": [{"index": 0, "text": KEY, "finish_reason": "stop"}]}
    request = {"model": "m", "prompt": [5, 6], "max_tokens": 4}
    span = recorded(json.dumps(request).encode(), json.dumps(answer).encode(), "/v1/completions")
    assert KEY not in str(span.attributes)
    assert json.loads(span.attributes[names.REQUEST_BODY])["prompt"] is None
    assert call_of(span).prompt_token_ids is None


def test_a_secret_that_no_model_reads_costs_no_training():
    span = recorded(json.dumps({**CHAT, "metadata": {"key": KEY}}).encode(), json.dumps(ANSWER).encode())
    assert KEY not in str(span.attributes)
    assert (span.attributes[names.SCRUBBED], names.SCRUBBED_CONTENT in span.attributes) == (1, False)
    assert [*call_of(span).choices[0].token_ids] == [7, 8]


@pytest.mark.parametrize("answer", [b"<html>", b"", b'{"id": "c"', b"[]"])
def test_what_is_no_answer_is_not_recorded_as_one(answer):
    span = recorded(json.dumps(CHAT).encode(), answer)
    assert names.RESPONSE_BODY not in span.attributes
    assert call_of(span).choices in (None, ())


def test_an_answer_beyond_all_bounds_passes_and_is_missing(monkeypatch):
    monkeypatch.setattr(exchanges, "LONGEST_ANSWER", 100)
    exchange = Exchange("chat", "/v1/chat/completions", json.dumps(CHAT).encode(), 1)
    exchange.begin(200, b"application/json")
    pieces = [b'{"id": "c", "choices": [' + b" " * 60, b" " * 60, b"]}"]
    assert b"".join([exchange.take(piece) for piece in pieces]) + exchange.rest() == b"".join(pieces)
    span = call_span(exchange, RequestAddress("path", "r"), "http://server", gateway_resource())
    assert [(gap.kind, gap.field) for gap in call_of(span).gaps] == [("not logged", "answer")]


LENIENT = {
    **ANSWER,
    "choices": [{**ANSWER["choices"][0], "logprobs": {"content": [{"token": "a", "logprob": -math.inf}]}}],
}


@pytest.mark.parametrize(
    "answer",
    [b"\n \n" + json.dumps(ANSWER).encode(), json.dumps(LENIENT).encode(), BOM_UTF8 + json.dumps(ANSWER).encode()],
    ids=["blanks before it", "a number that is none in JSON", "a byte order mark"],
)
def test_an_answer_that_clients_read_is_recorded_with_its_id(answer):
    span = recorded(json.dumps(CHAT).encode(), answer)
    assert span.attributes["gen_ai.response.id"] == "c1"
    assert call_of(span).choices[0].message.content == "yes"
    assert span.attributes[names.RESPONSE_BODY] == answer.removeprefix(BOM_UTF8).decode().lstrip()


@pytest.mark.parametrize("answer", [ANSWER, LENIENT], ids=["JSON", "lenient JSON"])
def test_a_secret_of_other_letters_is_found_where_they_are_escaped(answer):
    choice = {**answer["choices"][0], "message": {"role": "assistant", "content": "see 项目-1234 now"}}
    exchange = answered(json.dumps(CHAT).encode(), json.dumps({**answer, "choices": [choice]}).encode())
    assert "项目-1234" in response_body(exchange)[names.RESPONSE_BODY]


@pytest.mark.parametrize(
    "ids",
    [
        {"sglext": {"input_ids": [1, 2], "output_ids": [777001]}},
        {"meta_info": {"output_token_logprobs": [[-0.5, 777001, None]]}},
        {"raw_output": {"completion_token_ids": [777001]}},
    ],
    ids=["SGLang", "SGLang's own API", "Fireworks"],
)
def test_ids_go_with_the_secret_that_they_spell_in_whatever_words_a_server_says_them(ids):
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": KEY}, **ids}
    span = recorded(json.dumps(CHAT).encode(), json.dumps({"id": "c1", "model": "m", "choices": [choice]}).encode())
    assert "777001" not in str(span.attributes)
