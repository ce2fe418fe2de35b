"""Span and SpanTree: frozen records of what a source delivered, with grouping, duplicates and orphans."""

from art_otel.spans.span import MAX_LISTED as MAX_LISTED
from art_otel.spans.span import Attributes as Attributes
from art_otel.spans.span import Event as Event
from art_otel.spans.span import JsonObject as JsonObject
from art_otel.spans.span import Link as Link
from art_otel.spans.span import LogRecord as LogRecord
from art_otel.spans.span import Quarantined as Quarantined
from art_otel.spans.span import QuarantineReason as QuarantineReason
from art_otel.spans.span import Resource as Resource
from art_otel.spans.span import Scope as Scope
from art_otel.spans.span import Span as Span
from art_otel.spans.span import SpanKey as SpanKey
from art_otel.spans.span import SpanKind as SpanKind
from art_otel.spans.span import StatusCode as StatusCode
from art_otel.spans.span import Value as Value
from art_otel.spans.span import extend_sorted as extend_sorted
from art_otel.spans.span import first_sorted as first_sorted
from art_otel.spans.span import list_quarantined as list_quarantined
from art_otel.spans.span import size_of as size_of
from art_otel.spans.tree import SpanTree as SpanTree
from art_otel.spans.tree import build_tree as build_tree
