"""Spans that a store writes as JSON objects of its own: from the bytes of a dump to Span and Quarantined.

Invariant: a bad object is quarantined and costs no other. What is lost of the list around them (its end, or text that
is no JSON) is one `Quarantined` of kind "unknown".
"""

import io
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Final, Generic, NamedTuple, TypeAlias, TypeVar

import msgspec
from msgspec import UNSET

from art_otel.sources.backends.plain_records import PlainRecords, plain
from art_otel.sources.format import Reading, Record
from art_otel.sources.json_text.heads import items_of
from art_otel.sources.json_text.kinds import is_object
from art_otel.sources.json_text.lenient import RecordLists, pieces
from art_otel.sources.json_text.texts import Texts
from art_otel.sources.otlp import messages as otlp
from art_otel.sources.otlp.json_records import hex_id
from art_otel.sources.otlp.records import Batch
from art_otel.sources.refusals import NO_IDS, Ids, Refused, converted, too_long
from art_otel.spans import Quarantined, Value

Message = TypeVar("Message")

ToOtlp: TypeAlias = Callable[[Message, str], tuple[otlp.Span, Batch]]
"""Makes OTLP's message of a store's; gets the place, may raise Refused."""

_ANSWER: Final = RecordLists(names=frozenset({"data"}), lists=frozenset({"data"}))

_BLANKS: Final = b" \t\r\n\x1e\xef\xbb\xbf"
_ENDS: Final = 64
"""Bytes at both ends of a text that tell whether it opens or closes a list."""

_TRACE_DIGITS: Final = 32
_SPAN_DIGITS: Final = 16


class Translator(msgspec.Struct, Generic[Message], frozen=True, kw_only=True):
    """How a store writes a record: as a `message`, with its ids under these names, maybe in its `context`.

    `padded` ids may lack leading zeros, ids of traces may have a `prefix`; numbers may be texts where it is not
    `strict`.
    """

    message: type[Message]
    trace_id: str
    span_id: str
    padded: bool = False
    prefix: re.Pattern[str] = re.compile("")
    strict: bool = True

    def decode(self, value: Value) -> Message:
        """The message that a JSON object is. Raises Refused."""
        return converted(value, self.message, strict=self.strict)

    def trace(self, text: str | None) -> str | None:
        """A trace id as OTLP has it."""
        return self._id(text and self.prefix.sub("", text, count=1), _TRACE_DIGITS)

    def span(self, text: str | None) -> str | None:
        """A span id as OTLP has it."""
        return self._id(text, _SPAN_DIGITS)

    def ids(self, value: Mapping[str, Value], records: PlainRecords) -> Ids:
        """The ids of an object that is no message, as far as they are good."""
        context = value.get("context")
        ids = context if is_object(context) else value
        trace_id, span_id = ids.get(self.trace_id), ids.get(self.span_id)
        return records.known_ids(
            self.trace(trace_id) if isinstance(trace_id, str) else None,
            self.span(span_id) if isinstance(span_id, str) else None,
        )

    def _id(self, text: str | None, digits: int) -> str | None:
        if not text:
            return None
        if self.padded:
            return text.lower().zfill(digits)
        return hex_id(text.removeprefix("0x") if len(text) == digits + len("0x") else text)  # base64 may begin so too


class Found(NamedTuple):
    """A JSON object at `place` (`file:line`)."""

    value: dict[str, Value]
    place: str


def read_objects(
    stream: io.BufferedReader,
    records: PlainRecords,
    translator: Translator[Message],
    nested: RecordLists = _ANSWER,
    *,
    decode: Callable[[bytes | memoryview], Value] = msgspec.json.decode,
    is_ours: Callable[[str], object] | None = None,
) -> Iterator[Found | Quarantined]:
    """Every object of a dump that holds nothing but lists of them; of a torn one the `nested` records before the tear.

    `is_ours` says of a text that is no JSON whether it was a record; all else that is no object is passed over then.
    """
    reading, opened = records.reading, 0
    for text in Texts(stream, reading.limits.max_message_bytes, decode):
        place = f"{reading.path}:{text.line}"
        if text.data is None:
            yield too_long(place)
            continue
        reading.account.replaced += text.replaced
        opened += bytes(text.data[:_ENDS]).lstrip(_BLANKS).startswith(b"[")
        opened -= bytes(text.data[-_ENDS:]).rstrip(_BLANKS).endswith(b"]")
        if text.value is not UNSET:
            yield from _objects(text.value, place, amid_text=is_ours is not None)
            continue
        for piece in pieces(bytes(text.data)):
            place = f"{reading.path}:{text.line + piece.lines}"
            value, torn = (piece.value, None) if piece.problem is None else nested.split(piece.value)
            if value is not None:
                yield from _objects(value, place, amid_text=is_ours is not None)
            if piece.problem is not None and (is_ours is None or is_ours(piece.text)):
                opened = 0  # what follows may be the rest of it, also the end of a list
                yield piece.problem.damage(place, ids=translator.ids(torn, records) if is_object(torn) else NO_IDS)
    if opened > 0 and is_ours is None:
        yield Refused("torn", detail="the list of records has no end").damage(reading.path)


def read_span(
    found: Found, records: PlainRecords, translator: Translator[Message], to_otlp: ToOtlp[Message]
) -> Iterator[Record]:
    """The span in one object, with what it lost, or the Quarantined that says why there is none."""
    try:
        span, batch = to_otlp(translator.decode(found.value), found.place)
    except Refused as problem:
        yield problem.damage(found.place, "span", translator.ids(found.value, records))
        return
    resource, damages = records.resource(otlp.Resource(attributes=plain(batch.resource.attributes)), found.place)
    yield from damages
    yield from records.span(span, msgspec.structs.replace(batch, resource=resource))


def read_spans(
    stream: io.BufferedReader,
    reading: Reading,
    translator: Translator[Message],
    to_otlp: ToOtlp[Message],
    decode: Callable[[bytes | memoryview], Value] = msgspec.json.decode,
) -> Iterator[Record]:
    """Every span of a dump whose objects are spans."""
    records = PlainRecords(reading)
    for found in read_objects(stream, records, translator, decode=decode):
        yield from (found,) if isinstance(found, Quarantined) else read_span(found, records, translator, to_otlp)


def _objects(value: Value, place: str, *, amid_text: bool) -> Iterator[Found | Quarantined]:
    for item in items_of(value):
        if is_object(item):
            yield Found(item, place)
        elif not amid_text:
            yield Refused("bad field", detail="no object where a record should be").damage(place)
