"""Jaeger's JSON types as msgspec decodes them: every field that we read, and tags as values by name.

Invariant: a value has the type its tag names, or raises Refused.

Source of the format: `model/json/model.go` of Jaeger 1.
"""

import binascii
from collections.abc import Callable
from functools import partial
from typing import Final

import msgspec

from art_otel.sources.backends.times import Number
from art_otel.sources.refusals import MAX_NAME, Refused
from art_otel.spans import Value

_READ: Final[dict[str, Callable[[Value], Value]]] = {
    "int64": int,
    "float64": float,
    "bool": {"true": True, "false": False}.__getitem__,
    "binary": partial(binascii.a2b_base64, strict_mode=True),
}


class Tag(msgspec.Struct):
    """A named value."""

    key: str = ""
    type: str = ""
    value: Value = None


class Reference(msgspec.Struct, rename={"trace_id": "traceID", "span_id": "spanID", "kind": "refType"}):
    """A pointer to another span; `kind` is CHILD_OF or FOLLOWS_FROM."""

    trace_id: str | None = None
    span_id: str | None = None
    kind: str = ""


class Log(msgspec.Struct):
    """A moment in a span."""

    timestamp: Number | None = None
    fields: list[Tag] | None = None


class Process(msgspec.Struct, rename="camel"):
    """What produced spans: a service instance."""

    service_name: str | None = None
    tags: list[Tag] | None = None


_SPAN_NAMES: Final = {
    "trace_id": "traceID",
    "span_id": "spanID",
    "name": "operationName",
    "start_time": "startTime",
}


class Span(msgspec.Struct, rename=_SPAN_NAMES):
    """An operation. Times are microseconds. `resource` is made of its process."""

    trace_id: str | None = None
    span_id: str | None = None
    name: str | None = None
    start_time: Number | None = None
    duration: Number | None = None
    references: list[Reference] | None = None
    tags: list[Tag] | None = None
    logs: list[Log] | None = None
    resource: dict[str, Value] | None = None


class Trace(msgspec.Struct):
    """The spans of a trace, not decoded."""

    spans: list[dict[str, Value]]


def values_of(tags: list[Tag] | None) -> dict[str, Value]:
    """Give the values of tags by name. Raises Refused."""
    return {tag.key: _value(tag) for tag in tags or ()}


def _value(tag: Tag) -> Value:
    """Read a value. Whole numbers over 53 bits are texts, bytes base64, and a float64 may look like a whole number."""
    read = _READ.get(tag.type) if isinstance(tag.value, str) or tag.type == "float64" else None
    try:
        return tag.value if read is None else read(tag.value)
    except (ValueError, KeyError, TypeError, OverflowError) as error:
        raise Refused("bad field", f"tags[{tag.key[:MAX_NAME]!r}]", f"no {tag.type}: {error}") from None
