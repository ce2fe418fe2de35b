"""Rollouts as requests: a root that counts its spans, one call, and rewards that come later."""

from typing import Any

from tests.dumps import Request, attribute, chat_span, make_span, request_of


def rollout(number: int, *, counted: bool = True, resource: dict[str, Any] | None = None, **attributes: Any) -> Request:
    """A rollout of one call in a trace of its own."""
    return request_of(call(number), root(number, counted=counted, **attributes), resource=resource)


def root(number: int, *, counted: bool = True, **attributes: Any) -> dict[str, Any]:
    """Only its root, which counts one span."""
    counts = {"art.rollout.spans.started": 1, "art.rollout.spans.ended": 1} if counted else {}
    named = {"art.rollout.id": f"r{number}", "art.rollout.name": "test", **counts, **attributes}
    return make_span(1, trace=number, name="rollout test", attributes=named)


def call(number: int) -> dict[str, Any]:
    """Only its call."""
    return chat_span(2, 1, [f"question {number}"], "yes", trace=number, attributes={"art.rollout.id": f"r{number}"})


def late_reward(number: int, value: float) -> Request:
    """A reward from any language, in a trace of its own: a span that links to the rollout's."""
    link = {"traceId": f"{number:032x}", "spanId": f"{1:016x}"}
    span = make_span(1, trace=1_000_000 + number, name="reward judge", attributes={"art.reward": value}, links=[link])
    return request_of(span)


def logged_reward(number: int, value: float) -> Request:
    """The same as an event of OpenTelemetry's logs, which names the rollout and is on no span."""
    said = {"gen_ai.evaluation.name": "reward", "gen_ai.evaluation.score.value": value, "art.rollout.id": f"r{number}"}
    pairs = [{"key": key, "value": attribute(each)} for key, each in said.items()]
    record = {"timeUnixNano": "2000", "eventName": "gen_ai.evaluation.result", "attributes": pairs}
    return {"resourceLogs": [{"scopeLogs": [{"logRecords": [record]}]}]}
