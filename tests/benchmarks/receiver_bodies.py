"""Bodies of exports that were built before: rollouts that overlap, and the times at which each of them ends.

A period holds as many ticks as a rollout has spans. In each tick every slot sends one span of its rollout; the slots
begin one after the other, so rollouts end evenly over the period. The bodies of all periods are the same but for
`OLD` and `NEW`, the generations of the rollouts, which stand in all ids.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span

OLD, NEW = b"<<GEN-A>", b"<<GEN-B>"
_BEGAN = 1_800_000_000_000_000_000
_SENTENCE = "Tell me more of the river and of what it carries to the sea. "


@dataclass(frozen=True, kw_only=True)
class Shape:
    """What one client sends: `slots` rollouts at once of `spans` spans each, `batch` spans an export.

    `calls` of the spans are chat calls, each with a prompt of `prompt` bytes. `peer` are the rollout and attempt ids
    that Agent Lightning's store knows, one pair a slot.
    """

    slots: int
    spans: int
    batch: int
    calls: int
    prompt: int
    peer: list[tuple[str, str]] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Body:
    """An export, and the slots whose rollouts end in it with whether they are of the old generation."""

    template: bytes
    spans: int
    ends: list[tuple[int, bool]]

    def of(self, generation: int, client: int) -> bytes:
        """The bytes to send in a period."""
        old, new = generation_name(client, generation), generation_name(client, generation + 1)
        return self.template.replace(OLD, old.encode()).replace(NEW, new.encode())


def generation_name(client: int, generation: int) -> str:
    """Eight characters that stand in the ids of a client's rollouts."""
    return f"{client:02}{generation:06}"


def generation_of(rollout: str) -> int:
    """The generation of a rollout, by its id."""
    return int(rollout[2:8])


def rollout_id(client: int, generation: int, slot: int) -> str:
    """As the spans say."""
    return f"{generation_name(client, generation)}-{slot:07}"


def period(shape: Shape, *, old: bool = True, new: bool = True, ended: bool = True) -> list[Body]:
    """The bodies of a period: with the rollouts that began before it, with those that begin in it, or both.

    With `ended` false no rollout's own span comes.
    """
    bodies: list[Body] = []
    spans: list[tuple[int, int, bool]] = []
    for slot, number, is_old in _order(shape):
        if (old if is_old else new) and (ended or number < shape.spans - 1):
            spans.append((slot, number, is_old))
        if len(spans) == shape.batch:
            bodies.append(_body(shape, spans))
            spans = []
    return [*bodies, _body(shape, spans)] if spans else bodies


def _order(shape: Shape) -> Iterator[tuple[int, int, bool]]:
    for tick in range(shape.spans):
        for slot in range(shape.slots):
            at = tick + slot * shape.spans // shape.slots
            yield slot, at % shape.spans, at < shape.spans


def _body(shape: Shape, spans: list[tuple[int, int, bool]]) -> Body:
    request = ExportTraceServiceRequest()
    group = request.resource_spans.add()
    group.resource.attributes.append(_text("service.name", "agent"))
    group.resource.attributes.append(_text("telemetry.sdk.language", "python"))
    scope = group.scope_spans.add()
    scope.scope.name = "app"
    for slot, number, is_old in spans:
        _fill(scope.spans.add(), shape, slot, number, OLD if is_old else NEW)
    ends = [(slot, is_old) for slot, number, is_old in spans if number == shape.spans - 1]
    return Body(template=request.SerializeToString(), spans=len(spans), ends=ends)


def _fill(span: Span, shape: Shape, slot: int, number: int, mark: bytes) -> None:
    is_root = number == shape.spans - 1
    span.trace_id = mark + slot.to_bytes(8)
    span.span_id = (number + 1).to_bytes(8)
    span.start_time_unix_nano = _BEGAN + (0 if is_root else number * 1_000_000)
    span.end_time_unix_nano = _BEGAN + (number + 1) * 1_000_000
    span.attributes.append(_text("art.rollout.id", f"{mark.decode()}-{slot:07}"))
    for name, value in zip(("rollout_id", "attempt_id"), shape.peer[slot] if shape.peer else (), strict=False):
        span.attributes.append(_text(f"agentlightning.{name}", value))
    if is_root:
        span.name = "rollout bench"
        span.attributes.append(_text("art.rollout.name", "bench"))
        for name in ("art.rollout.spans.started", "art.rollout.spans.ended"):
            span.attributes.append(_number(name, shape.spans - 1))
        return
    span.parent_span_id = shape.spans.to_bytes(8)
    if number < shape.calls:
        span.name, span.kind = "chat m", Span.SPAN_KIND_CLIENT
        span.attributes.append(_text("gen_ai.operation.name", "chat"))
        span.attributes.append(_text("gen_ai.request.model", "m"))
        text = (_SENTENCE * (shape.prompt // len(_SENTENCE) + 1))[: shape.prompt]
        asked = f'[{{"role":"user","parts":[{{"type":"text","content":"{slot} {number} {text}"}}]}}]'
        span.attributes.append(_text("gen_ai.input.messages", asked))
        answer = '[{"role":"assistant","parts":[{"type":"text","content":"a"}],"finish_reason":"stop"}]'
        span.attributes.append(_text("gen_ai.output.messages", answer))
    else:
        span.name, span.kind = "GET /items", Span.SPAN_KIND_INTERNAL
        span.attributes.append(_text("http.request.method", "GET"))
        span.attributes.append(_text("url.path", f"/items/{number}"))
        span.attributes.append(_number("retry", 0))


def _text(key: str, value: str) -> KeyValue:
    pair = KeyValue(key=key)
    pair.value.string_value = value
    return pair


def _number(key: str, value: int) -> KeyValue:
    pair = KeyValue(key=key)
    pair.value.int_value = value
    return pair
