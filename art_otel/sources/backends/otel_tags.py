"""Tags that stand for what OTel has fields for: status, kind, scope and dropped counts, as Jaeger and Zipkin keep them.

Invariant: a tag that is read into a field is no attribute any more; one with a value nobody defined stays one.

Source of the format: https://opentelemetry.io/docs/specs/otel/common/mapping-to-non-otlp/
"""

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from art_otel.sources.backends.store_spans import plain
from art_otel.sources.otlp import records as otlp
from art_otel.spans import Scope, Value

_CODE: Final = "otel.status_code"
_DESCRIPTION: Final = "otel.status_description"
_ERROR: Final = "error"
_KIND: Final = "span.kind"
_CODES: Final = frozenset({"UNSET", "OK", "ERROR"})
_KINDS: Final = frozenset({"INTERNAL", "SERVER", "CLIENT", "PRODUCER", "CONSUMER"})
_IS_COUNT: Final = re.compile("[0-9]{1,9}").fullmatch


class Tagged(NamedTuple):
    """What the tags of a span say: its scope, and a span of these fields; `rest` are the tags that are left."""

    span: otlp.OtlpSpan
    scope: Scope
    rest: dict[str, Value]


def read_tags(tags: Mapping[str, Value], kind: str | None = None) -> Tagged:
    """Sort the tags of a span; `kind` is its kind where the store has a field for it."""
    rest = dict(tags)
    span = otlp.OtlpSpan(
        kind=_take_enum(rest, _KIND, _KINDS, "SPAN_KIND_")
        if kind is None
        else _enum(kind, _KINDS, "SPAN_KIND_") or kind,
        status=_take_status(rest),
        dropped_attributes_count=_take_count(rest, "otel.dropped_attributes_count"),
        dropped_events_count=_take_count(rest, "otel.dropped_events_count"),
        dropped_links_count=_take_count(rest, "otel.dropped_links_count"),
        attributes=plain(rest),
    )
    return Tagged(span, _take_scope(rest), rest)


def _take_status(rest: dict[str, Value]) -> otlp.OtlpStatus:
    """Read the status. `error` is true, or in Zipkin the message; without a code of OTel's it is the status."""
    code = _take_enum(rest, _CODE, _CODES, "STATUS_CODE_")
    message = _take_text(rest, _DESCRIPTION)
    error = rest.get(_ERROR)
    flag = error.lower() if isinstance(error, str) else error
    if flag not in (None, False, "false") and code in (None, "STATUS_CODE_ERROR"):
        del rest[_ERROR]
        code = "STATUS_CODE_ERROR"
        if isinstance(error, str) and flag != "true":
            message = message or error
    return otlp.OtlpStatus(message=message, code=code)


def _take_enum(rest: dict[str, Value], tag: str, names: frozenset[str], prefix: str) -> str | None:
    """Read a tag that names a member of an enum of OTLP's; another value stays a tag."""
    value = rest.get(tag)
    name = _enum(value, names, prefix) if isinstance(value, str) else None
    if name is not None:
        del rest[tag]
    return name


def _enum(value: str, names: frozenset[str], prefix: str) -> str | None:
    """Give OTLP's name of a member of an enum; None for what is none."""
    name = value.upper().removeprefix(prefix)
    return prefix + name if name in names else None


def _take_scope(rest: dict[str, Value]) -> Scope:
    """Read the scope. The newer names win; the older ones repeat them."""
    newer = _take_text(rest, "otel.scope.name"), _take_text(rest, "otel.scope.version")
    older = _take_text(rest, "otel.library.name"), _take_text(rest, "otel.library.version")
    name, version = newer if newer[0] or not older[0] else older
    return Scope(name=name or "", version=version or "")


def _take_text(rest: dict[str, Value], tag: str) -> str | None:
    value = rest.get(tag)
    if not isinstance(value, str):
        return None
    del rest[tag]
    return value


def _take_count(rest: dict[str, Value], tag: str) -> int:
    text = str(rest.get(tag))
    if not _IS_COUNT(text):
        return 0
    del rest[tag]
    return int(text)
