"""What is received is scrubbed before it is written: no byte of a secret is in the spool; its call is not trained."""

import json

import pytest

from tests.dumps import attribute, chat_span, make_span, request_of
from tests.live.test_secrets import SECRETS, leaks, parts_of
from tests.receiver.consuming import consume
from tests.receiver.otlp import JSON, PROTOBUF, send
from tests.receiver.rollouts import rollout, root
from tests.receiver.serving import serving

pytestmark = pytest.mark.long

KEY = SECRETS["openai"]
PASSWORD = "correct-horse-battery"
NAMED = {"art.rollout.id": "r1"}


def pairs(**values) -> list[dict]:
    return [{"key": name.replace("_", "."), "value": attribute(value)} for name, value in values.items()]


def log_of(number: int, body: dict) -> dict:
    """An event of a call, whose body is the content."""
    ids = {"traceId": f"{number:032x}", "spanId": f"{2:016x}", "timeUnixNano": "1500000"}
    record = {**ids, "eventName": "gen_ai.choice", "body": body, "attributes": pairs(gen_ai_system="openai")}
    return {"resourceLogs": [{"scopeLogs": [{"scope": {"name": "test"}, "logRecords": [record]}]}]}


def spans_with(secret: str) -> list[dict]:
    """Spans with a secret in every place that a span has."""
    inner = json.dumps({"outer": json.dumps({"key": f"it is {secret}"})})
    event = {"name": f"told {secret}", "timeUnixNano": "1500000", "attributes": pairs(exception_message=secret)}
    link = {"traceId": f"{7:032x}", "spanId": f"{7:016x}", "attributes": pairs(why=secret)}
    return [
        root(1),
        chat_span(2, 1, [f"my key is {secret}"], "thanks", attributes=NAMED),
        chat_span(3, 1, ["hello"], f"use {secret}", attributes=NAMED),
        make_span(4, 1, name=f"tool {secret}", attributes={**NAMED, "input.value": inner, "password": PASSWORD}),
        make_span(5, 1, events=[event], links=[link], status={"code": 2, "message": secret}, attributes=NAMED),
        make_span(6, 1, attributes={**NAMED, "list": ["a", secret], "db.config": json.dumps({"password": PASSWORD})}),
        chat_span(7, 1, ["nothing"], "to hide", attributes=NAMED),
    ]


@pytest.mark.parametrize(("kind", "encoding"), [(PROTOBUF, "gzip"), (JSON, "")])
def test_no_secret_is_in_the_spool(tmp_path, kind, encoding):
    with serving(tmp_path / "art", "--grace", "1s") as server:
        for secret in SECRETS.values():
            send(server.url, request_of(*spans_with(secret), resource={"service.key": secret}), kind, encoding)
            message = {"stringValue": f"body {secret}"}
            send(
                server.url,
                log_of(1, {"kvlistValue": {"values": [{"key": "content", "value": message}]}}),
                kind,
                encoding,
            )
        server.wait_until_all_ended()
    words = [part for secret in SECRETS.values() for part in parts_of(secret)]
    assert not leaks(tmp_path / "art", [*words, PASSWORD])


def test_a_call_that_held_a_secret_is_not_trained(tmp_path):
    with serving(tmp_path / "art", "--grace", "1s") as server:
        send(server.url, request_of(*spans_with(KEY)))
        (trajectory,) = {one.trace_id: one for one in consume(server.url, 1)}.values()
    untrained = {trajectory.calls[turn.call].span_id[-1]: turn.text_untrained for turn in trajectory.turns}
    assert untrained == {"2": "scrubbed", "3": "scrubbed", "7": None}


def test_a_secret_in_a_log_record_marks_the_call_it_belongs_to(tmp_path):
    """Spans and log records come in different requests, so the mark on the record has to be enough."""
    with serving(tmp_path / "art", "--grace", "1s") as server:
        send(server.url, rollout(1))
        send(server.url, rollout(2))
        for number, text in ((1, f"say {KEY}"), (2, "say nothing")):
            message = {"key": "message", "value": {"kvlistValue": {"values": pairs(role="assistant", content=text)}}}
            send(server.url, log_of(number, {"kvlistValue": {"values": [message]}}))
        server.wait_until_all_ended()
        newest = {one.rollout_id: one for one in consume(server.url, 2)}
    assert {name: [each.has_gap("scrubbed") for each in one.calls] for name, one in newest.items()} == {
        "r1": [True],
        "r2": [False],
    }
    assert [turn.text_untrained for turn in newest["r1"].turns] == ["scrubbed"]
