"""Span and SpanTree: frozen records of what a source delivered, with grouping, duplicates and orphans."""

from art_otel.spans.damage import Damage, DamageReason
from art_otel.spans.span import (
    Attributes,
    Event,
    Link,
    LogRecord,
    Resource,
    Scope,
    Span,
    SpanKey,
    SpanKind,
    StatusCode,
    Value,
)
from art_otel.spans.tree import SpanTree, grow_tree

__all__ = [
    "Attributes",
    "Damage",
    "DamageReason",
    "Event",
    "Link",
    "LogRecord",
    "Resource",
    "Scope",
    "Span",
    "SpanKey",
    "SpanKind",
    "SpanTree",
    "StatusCode",
    "Value",
    "grow_tree",
]
