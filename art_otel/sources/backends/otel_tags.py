"""Tags that stand for what OTel has fields for: status, kind, scope and dropped counts, as Jaeger and Zipkin keep them.

Invariant: a tag that is read into a field is no attribute any more; one with a value nobody defined stays one.

Source of the format: https://opentelemetry.io/docs/specs/otel/common/mapping-to-non-otlp/
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from art_otel.sources.otlp import messages as otlp
from art_otel.spans import Value

_CODE: Final = "otel.status_code"
_DESCRIPTION: Final = "otel.status_description"
_ERROR: Final = "error"
_KIND: Final = "span.kind"
_CODES: Final = frozenset({"UNSET", "OK", "ERROR"})
_KINDS: Final = frozenset({"INTERNAL", "SERVER", "CLIENT", "PRODUCER", "CONSUMER"})
_SCOPES: Final = (("otel.scope.name", "otel.scope.version"), ("otel.library.name", "otel.library.version"))
_COUNTS: Final = tuple(f"otel.dropped_{part}_count" for part in ("attributes", "events", "links"))
_IS_COUNT: Final = re.compile("[0-9]{1,9}").fullmatch


class Tagged(msgspec.Struct, frozen=True, kw_only=True):
    """What the tags of a span say; `attributes` are those that are left. `dropped` counts attributes, events, links."""

    attributes: dict[str, Value]
    kind: str | None
    status: otlp.Status
    scope: otlp.Scope
    dropped: tuple[int, int, int]


def read_tags(tags: Mapping[str, Value], kind: str | None = None) -> Tagged:
    """Sort the tags of a span; `kind` is its kind where the store has a field for it."""
    rest = dict(tags)
    attributes, events, links = (_count(rest, name) for name in _COUNTS)
    return Tagged(
        kind=_name(rest, _KIND, _KINDS, "SPAN_KIND_", kind),
        status=_status(rest),
        scope=_scope(rest),
        dropped=(attributes, events, links),
        attributes=rest,
    )


def _status(rest: dict[str, Value]) -> otlp.Status:
    """`error` is true, or in Zipkin the message; without a code of OTel's it is the status."""
    code = _name(rest, _CODE, _CODES, "STATUS_CODE_", None)
    message = next(_texts(rest, _DESCRIPTION), None)
    error = rest.get(_ERROR)
    if error is not None and not _is_flag(error, on=False) and code in (None, "STATUS_CODE_ERROR"):
        del rest[_ERROR]
        code = "STATUS_CODE_ERROR"
        if isinstance(error, str) and not _is_flag(error, on=True):
            message = message or error
    return otlp.Status(message=message, code=code)


def _is_flag(value: Value, *, on: bool) -> bool:
    return value is on or (isinstance(value, str) and value.lower() == str(on).lower())


def _name(rest: dict[str, Value], tag: str, known: frozenset[str], prefix: str, found: str | None) -> str | None:
    """A name of an enum with OTLP's prefix: the one that was found elsewhere, else the tag's."""
    value = rest.get(tag) if found is None else found
    name = value.upper().removeprefix(prefix) if isinstance(value, str) else ""
    if name not in known:
        return found
    if found is None:
        del rest[tag]
    return prefix + name


def _scope(rest: dict[str, Value]) -> otlp.Scope:
    """The newer names win; the older ones repeat them."""
    found = [
        otlp.Scope(name=next(_texts(rest, name), None), version=next(_texts(rest, version), None))
        for name, version in _SCOPES
    ]
    return next((scope for scope in found if scope.name), found[0])


def _texts(rest: dict[str, Value], tag: str) -> Iterator[str]:
    value = rest.get(tag)
    if isinstance(value, str):
        del rest[tag]
        yield value


def _count(rest: dict[str, Value], tag: str) -> int:
    text = str(rest.get(tag))
    if not _IS_COUNT(text):
        return 0
    del rest[tag]
    return int(text)
