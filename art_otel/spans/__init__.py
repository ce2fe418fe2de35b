"""Span and SpanTree: frozen records of what a source delivered, with grouping, duplicates and orphans."""

from art_otel.spans.quarantine import (
    MAX_LISTED,
    Quarantined,
    QuarantineReason,
    extend_sorted,
    first_sorted,
    list_quarantined,
)
from art_otel.spans.size import size_of
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
from art_otel.spans.tree import SpanTree, build_tree

__all__ = [
    "MAX_LISTED",
    "Attributes",
    "Event",
    "Link",
    "LogRecord",
    "QuarantineReason",
    "Quarantined",
    "Resource",
    "Scope",
    "Span",
    "SpanKey",
    "SpanKind",
    "SpanTree",
    "StatusCode",
    "Value",
    "build_tree",
    "extend_sorted",
    "first_sorted",
    "list_quarantined",
    "size_of",
]
