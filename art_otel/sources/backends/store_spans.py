"""Store spans: read spans that a store writes as JSON objects or rows of its own form.

    {"traceId": "4bf9…", "attributes": {"a": 1}, …}   ->   `Translator.to_otlp`   ->   OtlpSpan   ->   Span

Stores write ids as text and attributes as plain values by name, which `PlainSpanBuilder` reads. Invariant: a bad object
or row is quarantined and costs no other one. A broken JSON document is quarantined as a whole; if it only ends too
early, the whole spans before its end are kept. All formats have the checks of `OtlpSpanBuilder`.
"""

import io
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from decimal import Decimal
from typing import Final, Generic, NamedTuple, TypeVar, cast

import msgspec
from msgspec import UNSET

from art_otel.sources.format import (
    NO_IDS,
    DroppedFields,
    Ids,
    Reading,
    Record,
    Refused,
    Site,
    TableRow,
    attribute_path,
    converted,
    too_long,
)
from art_otel.sources.json_documents import Piece, is_object, items_of, parse_values, read_documents, split_torn
from art_otel.sources.otlp import records as otlp
from art_otel.sources.otlp.json_format import hex_id
from art_otel.sources.otlp.records import OtlpSpanBuilder, ScopeBatch
from art_otel.spans import Quarantined, Resource, Scope, Value

_NO_PREFIX: Final = re.compile("")
MessageT = TypeVar("MessageT")
_NO_SCOPE: Final = Scope()
_BLANKS: Final = b" \t\r\n\x1e\xef\xbb\xbf"
_ANSWER: Final = frozenset({"data"})
_END_BYTES: Final = 64
"""How many bytes at both ends of a document are searched for the bracket of a list."""


class TranslatedSpan(NamedTuple):
    """A store's span as OTLP's message, with the attributes of its resource, and its scope."""

    span: otlp.OtlpSpan
    resource: Mapping[str, Value] = {}
    scope: Scope = _NO_SCOPE


class SpanContext(msgspec.Struct):
    """The ids of a span, if a store writes them in a separate object."""

    trace_id: str | None = None
    span_id: str | None = None


def _itself(value: dict[str, Value]) -> Iterable[dict[str, Value]]:
    return (value,)


class Translator(msgspec.Struct, Generic[MessageT], frozen=True, kw_only=True):
    """How the spans of a store become OTLP's.

    `spans_of` gives the spans in an object of the dump, `to_otlp` translates the `message` that a span is decoded into.
    Both may raise Refused. `holders` are the fields that lead to spans. The ids stand under `trace_id` and `span_id`,
    maybe in the span's `context`. `padded` and `prefix` are as in PlainSpanBuilder. Numbers may be texts where it is
    not `strict`.
    """

    message: type[MessageT]
    to_otlp: Callable[[MessageT], TranslatedSpan]
    spans_of: Callable[[dict[str, Value]], Iterable[dict[str, Value]]] = _itself
    holders: frozenset[str] = _ANSWER
    trace_id: str = "trace_id"
    span_id: str = "span_id"
    padded: bool = False
    prefix: re.Pattern[str] = re.compile("")
    strict: bool = True
    decode: Callable[[bytes | memoryview], Value] = msgspec.json.decode

    def builder(self, reading: Reading) -> "PlainSpanBuilder":
        """Make the builder of the records of one input."""
        return PlainSpanBuilder(reading, padded=self.padded, prefix=self.prefix)

    def ids(self, span: Value, builder: "PlainSpanBuilder") -> Ids:
        """Read the ids of an object that could not be decoded; a bad id is None."""
        if not is_object(span):
            return NO_IDS
        context = span.get("context")
        ids = context if is_object(context) else span
        return builder.known_ids(ids.get(self.trace_id), ids.get(self.span_id))


class LocatedObject(NamedTuple):
    """A JSON object at `location` (`file:line`)."""

    value: dict[str, Value]
    location: str


def read_spans(stream: io.BufferedReader, reading: Reading, translator: Translator[MessageT]) -> Iterator[Record]:
    """Read every span of a dump in JSON."""
    builder = translator.builder(reading)
    for item in read_objects(stream, builder, translator):
        if isinstance(item, Quarantined):
            yield item
            continue
        try:
            spans = translator.spans_of(item.value)
        except Refused as problem:
            yield problem.quarantine(item.location, ids=translator.ids(item.value, builder))
            continue
        for span in spans:
            yield from read_span(span, item.location, builder, translator)


def read_rows(rows: Iterable[TableRow], reading: Reading, translator: Translator[MessageT]) -> Iterator[Record]:
    """Read every span of a table."""
    builder = translator.builder(reading)
    for row in rows:
        location = f"{reading.path}:{row.number}"
        for span in translator.spans_of({name: value for name, value in row.values.items() if value is not None}):
            if row.problem is not None:
                yield row.problem.quarantine(location, "span", translator.ids(span, builder))
            else:
                yield from read_span(span, location, builder, translator)


def read_span(
    value: dict[str, Value], location: str, builder: "PlainSpanBuilder", translator: Translator[MessageT]
) -> Iterator[Record]:
    """Read one span, with a Quarantined for what it lost, or the Quarantined that says why there is none."""
    try:
        translated = translator.to_otlp(converted(value, translator.message, strict=translator.strict))
    except Refused as problem:
        yield problem.quarantine(location, "span", translator.ids(value, builder))
        return
    resource, quarantined = Resource(), ()
    if translated.resource:
        resource, quarantined = builder.resource(otlp.OtlpResource(attributes=plain(translated.resource)), location)
    yield from quarantined
    yield from builder.span(translated.span, ScopeBatch(location=location, resource=resource, scope=translated.scope))


def read_objects(
    stream: io.BufferedReader,
    builder: "PlainSpanBuilder",
    translator: Translator[MessageT],
    *,
    is_record: Callable[[str], object] | None = None,
) -> Iterator[LocatedObject | Quarantined]:
    """Read every object of a dump that holds nothing but objects and lists of them.

    With `is_record` the dump is the output of a program: what is no object is passed over, but for broken texts of
    which `is_record` says that they were records.
    """
    reading, open_lists = builder.reading, 0
    for document in read_documents(stream, reading.limits.max_message_bytes, translator.decode):
        if document.data is None:
            yield too_long(f"{reading.path}:{document.line}")
            continue
        reading.stats.replaced += document.replaced
        open_lists += bytes(document.data[:_END_BYTES]).lstrip(_BLANKS).startswith(b"[")
        open_lists -= bytes(document.data[-_END_BYTES:]).rstrip(_BLANKS).endswith(b"]")
        is_broken = document.value is UNSET
        for piece in parse_values(bytes(document.data)) if is_broken else (Piece(0, document.value),):
            location = f"{reading.path}:{document.line + piece.lines}"
            if not isinstance(piece.value, Refused):
                yield from _objects(piece.value, location, amid_output=is_record is not None)
            elif is_record is None or is_record(piece.text):
                open_lists = 0  # what follows may be the rest of it, also the end of a list
                whole, torn = split_torn(piece.text, translator.holders) if piece.value.reason == "torn" else ([], None)
                yield from _objects(whole, location, amid_output=is_record is not None)
                yield piece.value.quarantine(location, ids=translator.ids(torn, builder))
    if open_lists > 0 and is_record is None:
        yield Refused("torn", detail="the list of records does not end").quarantine(reading.path)


def _objects(value: Value, location: str, *, amid_output: bool) -> Iterator[LocatedObject | Quarantined]:
    for item in items_of(value):
        if is_object(item):
            yield LocatedObject(item, location)
        elif not amid_output:
            yield Refused("bad field", detail="expected an object as a record").quarantine(location)


def plain(attributes: Mapping[str, Value] | None) -> list[otlp.KeyValue]:
    """Pass attributes by name where OTLP's messages have a list of KeyValue; PlainSpanBuilder takes them so."""
    return cast(list[otlp.KeyValue], attributes)


class PlainSpanBuilder(OtlpSpanBuilder):
    """Builds records of messages whose attributes are dicts of plain values.

    `padded` ids may lack leading zeros, and a trace id may have a `prefix` before it.
    """

    def __init__(self, reading: Reading, *, padded: bool = False, prefix: re.Pattern[str] = _NO_PREFIX) -> None:
        super().__init__(reading)
        self._padded = padded
        self._prefix = prefix

    def hex(self, raw: object, digits: int) -> str:
        """Read an id, as `OtlpSpanBuilder.hex` asks."""
        if not isinstance(raw, str):
            return ""
        if self._padded:
            return raw.lower().zfill(digits)
        text = self._prefix.sub("", raw, count=1)
        return hex_id(text.removeprefix("0x") if len(text) == digits + len("0x") else text)  # base64 may begin so too

    def attributes(self, pairs: Iterable[otlp.KeyValue] | None, owner: str, dropped: DroppedFields) -> dict[str, Value]:
        """Read attributes, as `OtlpSpanBuilder.attributes` asks."""
        values = cast(Mapping[str, Value], pairs or {})
        return {
            name: value if isinstance(value, str) else self._checked(value, (owner, name), dropped, 1)
            for name, value in values.items()
        }

    def value(self, value: otlp.AnyValue | None, site: Site, dropped: DroppedFields) -> Value:
        """Read a value, as `OtlpSpanBuilder.value` asks."""
        return self._checked(value, site, dropped, 1)

    def _checked(self, value: Value, site: Site, dropped: DroppedFields, depth: int) -> Value:
        """Check that the numbers in a value are finite and fit; `depth` is that of a list or dict standing here."""
        if isinstance(value, Decimal):
            value = float(value)
        if isinstance(value, float) and not math.isfinite(value):
            dropped.note(attribute_path(site), "not a finite number")
            return None
        if isinstance(value, int) and not -(2**63) <= value < 2**63:
            raise Refused("bad field", attribute_path(site), "a whole number of more than 64 bits")
        if isinstance(value, dict):
            self.check_depth(depth, site)
            items = cast(dict[str, Value], value).items()
            return {name: self._checked(item, site, dropped, depth + 1) for name, item in items}
        if isinstance(value, (list, tuple)):
            self.check_depth(depth, site)
            return [self._checked(item, site, dropped, depth + 1) for item in cast(list[Value], value)]
        return value
