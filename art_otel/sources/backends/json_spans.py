"""Spans that a store writes as JSON objects of its own: from the bytes of a dump to Span and Quarantined.

Invariant: a bad object is quarantined and costs no other. What is lost of the list around them (its end, or text that
is no JSON) is one `Quarantined` of kind "unknown".
"""

import codecs
import io
import json
import re
from collections.abc import Callable, Iterator
from typing import Final, Generic, TypeAlias, TypeVar

import msgspec

from art_otel.sources.backends.plain_records import PlainRecords, plain
from art_otel.sources.format import Reading, Record
from art_otel.sources.json_text.brackets import Brackets
from art_otel.sources.json_text.faults import fault_path, is_utf8, json_problem
from art_otel.sources.json_text.frame import SEPARATORS, Frame
from art_otel.sources.json_text.objects import Piece, read_objects
from art_otel.sources.large_values import without_large_values
from art_otel.sources.limits import advice
from art_otel.sources.otlp import messages as otlp
from art_otel.sources.otlp.json_records import hex_id
from art_otel.sources.otlp.records import Batch
from art_otel.sources.refusals import Ids, Refused
from art_otel.spans import Quarantined

Message = TypeVar("Message")

_UNDECODABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_FIELDS: Final = rb'(?:\s*+,\s*+"\w*+"\s*+:\s*+(?:"(?:[^"\\]++|\\.)*+"|[\w.+-]++|\[\s*+\]))*+'
_AFTER_LIST: Final = re.compile(
    rb'\](?=\s*+[,}])%b(?P<mark>\s*+(?:\}|,\s*+"\w*+"\s*+:\s*+(?P<next>\[)))?' % _FIELDS, re.DOTALL
)
"""The end of a list with the fields behind it, up to the end of the object that it is in or to the next list there."""
_TRACE_DIGITS: Final = 32
_SPAN_DIGITS: Final = 16


class Spelling(msgspec.Struct, Generic[Message], frozen=True, kw_only=True):
    """How a store writes a span.

    `trace_id` and `span_id` find the ids in an object that cannot be decoded. `padded` ids may lack leading zeros.
    """

    frame: Frame
    decoder: msgspec.json.Decoder[Message]
    trace_id: re.Pattern[bytes]
    span_id: re.Pattern[bytes]
    padded: bool = False

    def trace(self, text: str | None) -> str | None:
        """A trace id as OTLP has it."""
        return self._id(text, _TRACE_DIGITS)

    def span(self, text: str | None) -> str | None:
        """A span id as OTLP has it."""
        return self._id(text, _SPAN_DIGITS)

    def ids(self, data: bytes, records: PlainRecords) -> Ids:
        """The ids of an object that cannot be decoded, as far as the first ones in it are good."""
        trace_id, span_id = self.trace_id.search(data), self.span_id.search(data)
        trace = self.trace(trace_id[1].decode(errors="replace")) if trace_id else None
        return records.known_ids(trace, self.span(span_id[1].decode(errors="replace")) if span_id else None)

    def _id(self, text: str | None, digits: int) -> str | None:
        if not text:
            return None
        if self.padded:
            return text.lower().zfill(digits)
        return hex_id(text.removeprefix("0x") if len(text) == digits + len("0x") else text)  # base64 may begin so too


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """The JSON of one object, at `place` (`file:line`)."""

    data: bytes
    place: str


Build: TypeAlias = Callable[[Message, str], tuple[otlp.Span, Batch]]
"""Makes OTLP's message of a store's; gets the place, may raise Refused."""


def read_each(
    stream: io.BufferedIOBase, reading: Reading, frame: Frame, read: Callable[[Found], Iterator[Record]]
) -> Iterator[Record]:
    """What `read` makes of every object of a dump that holds nothing but lists of them."""
    for found in _objects(stream, reading, frame):
        if isinstance(found, Quarantined):
            yield found
        else:
            yield from without_large_values(read(found), len(found.data), found.place, reading.limits)


def _objects(stream: io.BufferedIOBase, reading: Reading, frame: Frame) -> Iterator[Found | Quarantined]:
    opened, broken, noisy = 0, False, False
    for piece in read_objects(stream, frame, reading.limits.max_message_bytes):
        place = f"{reading.path}:{piece.line}"
        if piece.kind == "between":
            text = _list_marks(piece, frame)
            opened += text.count(b"[") - text.count(b"]")
            if text.strip(SEPARATORS):
                if not noisy:
                    yield Refused("not JSON", detail="text between the records").damage(place)
                noisy = True
            continue
        noisy = piece.kind != "object"
        broken = broken or noisy  # what follows may be the rest of it, also the end of a list
        yield Found(data=piece.data, place=place) if piece.kind != "too long" else too_long(place)
    if opened > 0 and not broken and not noisy:
        yield Refused("torn", detail="the list of records has no end").damage(reading.path)


def read_span(
    found: Found, records: PlainRecords, spelling: Spelling[Message], build: Build[Message]
) -> Iterator[Record]:
    """The span in one object, with its partial Damages, or the Quarantined that says why there is none."""
    try:
        span, batch = build(decode_object(spelling.decoder, found.data), found.place)
    except Refused as problem:
        yield problem.damage(found.place, "span", spelling.ids(found.data, records))
        return
    resource, damages = records.resource(otlp.Resource(attributes=plain(batch.resource.attributes)), found.place)
    yield from damages
    yield from records.span(span, msgspec.structs.replace(batch, resource=resource))


def read_spans(
    stream: io.BufferedIOBase, reading: Reading, spelling: Spelling[Message], build: Build[Message]
) -> Iterator[Record]:
    """Every span of a dump whose objects are spans."""
    records = PlainRecords(reading)
    return read_each(stream, reading, spelling.frame, lambda found: read_span(found, records, spelling, build))


def read_broken(
    found: Found, records: PlainRecords, spelling: Spelling[Message], build: Build[Message], problem: Refused | None
) -> Iterator[Record]:
    """The spans inside an object that did not decode because of `problem`, quarantined if no span explains it.

    The problem is None when something else has explained it already.
    """
    frame, data = spelling.frame, found.data
    match = frame.begins.search(data)
    named = frame.named_record(Brackets(data), 1, match.start() if match else len(data))
    first = match.start() if match and named is None else named
    stream = io.BytesIO(b"" if first is None else data[first:])
    for piece in read_objects(stream, frame, records.reading.limits.max_message_bytes):
        if frame.may_be_record(piece.data, 0, len(piece.data)):
            at = Found(data=piece.data, place=found.place)
            for record in read_span(at, records, spelling, build):
                problem = None if isinstance(record, Quarantined) else problem
                yield record
    if problem is not None:
        yield problem.damage(found.place)


def decode_object(decoder: msgspec.json.Decoder[Message], data: bytes) -> Message:
    """One object, also with a bare NaN or Infinity, as Python's `json` writes it. Raises Refused."""
    try:
        return decode_sound(decoder, data)
    except Refused as problem:
        if problem.reason != "not a finite number":
            raise
    try:
        return msgspec.convert(json.loads(data), decoder.type, strict=False)
    except (ValueError, RecursionError) as error:
        raise Refused("bad field", fault_path(str(error)), str(error)) from error


def decode_sound(decoder: msgspec.json.Decoder[Message], data: bytes) -> Message:
    """One object of sound JSON. Raises Refused."""
    if not is_utf8(data):
        raise Refused("invalid UTF-8")
    try:
        return decoder.decode(data)
    except _UNDECODABLE as error:
        raise json_problem(data) or Refused("bad field", fault_path(str(error)), str(error)) from error


def too_long(place: str) -> Quarantined:
    """The Quarantined of an object that is not held in memory."""
    problem = f"the object is longer than the limit; {advice('max_message_bytes')}"
    return Refused("over a limit", detail=problem).damage(place)


def _list_marks(piece: Piece, frame: Frame) -> bytes:
    """What stands between objects, with an object that is looked into as the list it holds."""
    text = piece.data.replace(codecs.BOM_UTF8, b"")  # joined files have one where each begins
    if frame.around is None:
        return text
    return _AFTER_LIST.sub(_without_fields, frame.around.sub(b"[", text))


def _without_fields(after: re.Match[bytes]) -> bytes:
    if after["mark"] is None:
        return after[0]
    return b"][" if after["next"] else b"]"
