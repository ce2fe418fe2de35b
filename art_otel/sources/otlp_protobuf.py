"""OTLP protobuf: one request a file, or requests with a 4-byte big-endian length before each.

The first is what object-store exporters write, the second a collector's file exporter with `format: proto`. Traces
and logs are told apart on the wire. A request without a length before it is read one ResourceSpans at a time, because
that is what protobuf's concatenation of messages means; each counts as a message.

Invariant: a message that decodes at once takes the fast way; any other goes to `otlp_protobuf_salvage`.

Source of the format: https://opentelemetry.io/docs/specs/otlp/#binary-protobuf-encoding
"""

import io
import re
from collections.abc import Iterable, Iterator
from typing import Final, TypeAlias

from art_otel.sources.bounded_read import read_up_to
from art_otel.sources.format import Format, Reading, Record
from art_otel.sources.large_values import without_large_values
from art_otel.sources.limits import advice
from art_otel.sources.otlp_protobuf_records import ProtobufRecords
from art_otel.sources.otlp_protobuf_salvage import salvage_request
from art_otel.sources.otlp_protobuf_walk import signal_of
from art_otel.sources.protobuf_wire import LENGTH, Malformed, read_fields, read_varint
from art_otel.sources.refusals import Refused

_PREFIX_BYTES: Final = 4
_TAG: Final = b"\x0a"
_NO_TEXT: Final = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f]")
_TOLD_BYTES: Final = 256
"""A request has tags and lengths that are no text among its first bytes; blank lines before a text have none."""

_SKIP_BYTES: Final = 1 << 20
_MAX_TAG_BYTES: Final = 11

_Frame: TypeAlias = tuple[bytes, Refused | None]
"""A message as far as it could be read, and what was wrong with its frame."""


def _detects(head: bytes) -> bool:
    return _is_request(head) or _is_framed(head)


def _is_framed(head: bytes) -> bool:
    """Whether any of the messages that lengths lead to looks like a request."""
    position = 0
    while position + _PREFIX_BYTES < len(head):
        size = int.from_bytes(head[position : position + _PREFIX_BYTES])
        position += _PREFIX_BYTES
        if _is_request(head[position : position + size]):
            return True
        position += size
    return False


def _is_request(head: bytes) -> bool:
    """Whether it begins with field 1 that holds a resource (1), scopes (2) or a schema URL (3), as far as it goes."""
    if not head.startswith(_TAG) or not _NO_TEXT.search(head, 0, _TOLD_BYTES):
        return False
    try:
        size, start = read_varint(head, 1, len(head))
        inside = [(field.number, field.wire_type) for field in read_fields(head, start, min(start + size, len(head)))]
    except Malformed:
        return False
    return bool(inside) and all(number in (1, 2, 3, 1000) and wire == LENGTH for number, wire in inside)


def _reads(stream: io.BufferedReader, reading: Reading) -> Iterator[Record]:
    records = ProtobufRecords(reading)
    frames = _bare_frames if _is_request(stream.peek()) else _prefixed_frames
    number = 0
    for message, problem in frames(stream, reading.limits.max_message_bytes):
        number += 1  # noqa: SIM113 # enumerate() would hold the message
        place = f"{reading.path}:message {number}"
        if problem is None or message:
            found = read_message(message, place, records, problem)
            del message  # what it took is taken anew for the texts of its records
            yield from found
        else:
            yield problem.damage(place)


FORMAT: Final = Format(name="otlp-protobuf", detects=_detects, reads=_reads)


def _prefixed_frames(stream: io.BufferedReader, limit: int) -> Iterator[_Frame]:
    while prefix := stream.read(_PREFIX_BYTES):
        if len(prefix) < _PREFIX_BYTES:
            yield b"", Refused("torn", detail="the file ends inside a message's length")
            return
        yield _body(stream, b"", int.from_bytes(prefix), limit)


def _bare_frames(stream: io.BufferedReader, limit: int) -> Iterator[_Frame]:
    while tag := stream.read(1):
        if tag != _TAG:
            while stream.read(_SKIP_BYTES):  # nothing says where the next message begins
                pass
            yield b"", Refused("not OTLP", detail="no request begins here; the rest of the file cannot be read")
            return
        size, header = _read_length(stream)
        if size is None:
            yield b"", Refused("torn", detail="the file ends inside a message's length")
            return
        yield _body(stream, tag + header, size, limit)


def _read_length(stream: io.BufferedReader) -> tuple[int | None, bytes]:
    header = b""
    while len(header) < _MAX_TAG_BYTES and (byte := stream.read(1)):
        header += byte
        if byte < b"\x80":
            return read_varint(header, 0, len(header))[0], header
    return None, header


def _body(stream: io.BufferedReader, header: bytes, size: int, limit: int) -> _Frame:
    if size > limit:
        left = size
        while left and (skipped := len(stream.read(min(left, _SKIP_BYTES)))):
            left -= skipped
        return b"", Refused("over a limit", detail=f"a message of {size} bytes; {advice('max_message_bytes')}")
    body = read_up_to(stream, size)
    torn = Refused("torn", detail=f"the file ends {size - len(body)} bytes too early") if len(body) < size else None
    return header + body, torn


def read_message(message: bytes, place: str, records: ProtobufRecords, torn: Refused | None = None) -> Iterable[Record]:
    """Every record of one request. `place` names it, `torn` says that the file ended inside it."""
    found = _read(message, place, records) if torn is None else salvage_request(message, place, records, torn)
    return without_large_values(found, len(message), place, records.reading.limits)


def _read(message: bytes, place: str, records: ProtobufRecords) -> Iterable[Record]:
    if not message:
        return ()
    found = records.spans(message, place)  # as most requests are, and to look into one first costs a multiple
    if found is not None:
        return found
    signal = signal_of(message)
    if signal == "other":
        records.reading.account.other_signals += 1
        return ()
    found = records.request(message, signal, place) if signal else None
    return salvage_request(message, place, records, None) if found is None else found
