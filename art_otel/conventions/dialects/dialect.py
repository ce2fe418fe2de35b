"""Dialect: one attribute convention, with all that the rest of the package asks of it.

Invariant: a new dialect is its module and its line in `DIALECTS`. What a span is at all, `roles` says by the names of
the oldest ones too.
"""

from collections.abc import Callable
from typing import Literal, TypeAlias

import msgspec

from art_otel.calls import Known
from art_otel.conventions.attributes import SpanRecording
from art_otel.conventions.facts import CallFacts
from art_otel.spans import Span

Role: TypeAlias = Literal["inference", "embeddings", "retrieval", "agent", "tool", "other", "uncaptured"]


Read: TypeAlias = Callable[[SpanRecording, CallFacts], CallFacts | None]
"""Reads a recording; the second argument is what more trusted dialects read already."""


class ToolAttributes(msgspec.Struct, frozen=True, kw_only=True):
    """The attributes of an execution of a tool; None for what the dialect does not write."""

    name: str | None = None
    call_id: str | None = None
    arguments: str | None = None
    result: str | None = None


class Dialect(msgspec.Struct, frozen=True, kw_only=True):
    """How a convention is read, and how its spans are recognized.

    `known` is how it knows the prompt and the answer, unless what it read says otherwise: content of a dialect that
    does not say it is not whole. `shown_by` are beginnings of names: a span of the convention has such an attribute;
    a dialect without any reads events and log records only. `role` gives the role of such a span, None where the
    convention does not say. Where `alone`, what was read excludes what less trusted dialects would read of the span's
    attributes. `recorder` is the attribute that tells apart the integrations of one tracer, which may record one call
    each.

    `prefixes` are how those attributes begin that may name a role or are the convention's own, `content` names those
    that hold content although their names do not say so, and `tools` those of an execution of a tool.
    """

    convention: str
    read: Read
    known: Known = "unknown"
    shown_by: tuple[str, ...] = ()
    role: Callable[[Span], Role | None] | None = None
    alone: bool = False
    recorder: str | None = None
    prefixes: tuple[str, ...] = ()
    content: tuple[str, ...] = ()
    tools: ToolAttributes | None = None
