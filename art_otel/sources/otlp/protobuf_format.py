"""OTLP protobuf: one request a file, or requests with a 4-byte big-endian length before each, or answers of Tempo.

The first is what object-store exporters write, the second a collector's file exporter with `format: proto`. Traces
and logs are told apart on the wire. A request without a length before it is read one ResourceSpans at a time, because
that is what protobuf's concatenation of messages means; each counts as a message. So is an answer of Tempo's v2 API,
which has a whole request in its field 1 and says more about it in others.

Invariant: a message that is broken or over the limit costs no other, unless nothing says where the next one begins.

Source of the format: https://opentelemetry.io/docs/specs/otlp/#binary-protobuf-encoding, and for Tempo's answers
`TraceByIDResponse` in its `pkg/tempopb/tempo.proto`.
"""

import io
import re
import sys
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Final, TypeAlias

from art_otel.sources.format import Format, Reading, Record
from art_otel.sources.limits import advice
from art_otel.sources.otlp.protobuf_records import ProtobufSpanBuilder
from art_otel.sources.otlp.protobuf_split import LENGTH, Split, read_fields, read_varint
from art_otel.sources.refusals import Refused

_PREFIX_BYTES: Final = 4
_TAG: Final = b"\x0a"
_ANSWER_TAGS: Final = _TAG + b"\x12\x18\x22"
"""The trace, and Tempo's metrics, status and message."""

_NO_TEXT: Final = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f]")
_TEXT_BYTES: Final = 256
"""A request has tags and lengths that are no text among its first bytes; blank lines before a text have none."""

_SKIP_BYTES: Final = 1 << 20
_PIECE_BYTES: Final = 64 << 20
_MAX_SIZE_BYTES: Final = 10

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
    header = read_varint(head, 1, len(head))
    if not head.startswith(_TAG) or not _NO_TEXT.search(head, 0, _TEXT_BYTES) or header is None:
        return False
    size, start = header
    tags = [field[:2] for field in read_fields(head, start, min(start + size, len(head)))]
    return bool(tags) and all(number in (1, 2, 3, 1000) and wire == LENGTH for number, wire in tags)


def _reads(stream: io.BufferedReader, reading: Reading) -> Iterator[Record]:
    builder = ProtobufSpanBuilder(reading)
    head = stream.peek()
    read_frames = partial(_bare_frames, is_answer=Split(head).is_answer) if _is_request(head) else _prefixed_frames
    number = 0
    for message, problem in read_frames(stream, reading.limits.max_message_bytes):
        number += 1  # noqa: SIM113 # enumerate() would hold the message
        location = f"{reading.path}:message {number}"
        if problem is None:
            yield from builder.read(message, location)
        else:
            yield from builder.read_split(Split(message), location, problem)


FORMAT: Final = Format(name="otlp-protobuf", detects=_detects, reads=_reads)


def read_protobuf(request: bytes, reading: Reading) -> Iterable[Record]:
    """Read every record of one request that is in memory."""
    return ProtobufSpanBuilder(reading).read(request, reading.path)


def _prefixed_frames(stream: io.BufferedReader, limit: int) -> Iterator[_Frame]:
    """Read messages with a 4-byte length before each."""
    while prefix := stream.read(_PREFIX_BYTES):
        if len(prefix) < _PREFIX_BYTES:
            yield b"", Refused("torn", detail="the file ends inside a message's length")
            return
        yield _read_body(stream, b"", int.from_bytes(prefix), limit)


def _bare_frames(stream: io.BufferedReader, limit: int, *, is_answer: bool) -> Iterator[_Frame]:
    """Read what stands in field 1: a batch, which with its tag and length is a request; in an answer, a request."""
    tags = _ANSWER_TAGS if is_answer else _TAG
    while tag := stream.read(1):
        if tag not in tags:
            _skip(stream, sys.maxsize)  # nothing says where the next message begins
            yield b"", Refused("not OTLP", detail="no request begins here; the rest of the file cannot be read")
            return
        size, header = _read_size(stream)
        if size is None:
            yield b"", Refused("torn", detail="the file ends inside a message's length")
            return
        if tag == _TAG:
            yield _read_body(stream, b"" if is_answer else tag + header, size, limit)
        elif tag[0] & 7 == LENGTH:
            _skip(stream, size)


def _read_size(stream: io.BufferedReader) -> tuple[int | None, bytes]:
    """Read a length, None where the file ends inside it, and its bytes."""
    header = b""
    while len(header) < _MAX_SIZE_BYTES and (byte := stream.read(1)):
        header += byte
        if byte < b"\x80":
            break
    read = read_varint(header, 0, len(header))
    return read and read[0], header


def _read_body(stream: io.BufferedReader, header: bytes, size: int, limit: int) -> _Frame:
    if size > limit:
        _skip(stream, size)
        return b"", Refused("over a limit", detail=f"a message of {size} bytes; {advice('max_message_bytes')}")
    body = b"".join(_read_pieces(stream, size))
    torn = Refused("torn", detail=f"the file ends {size - len(body)} bytes too early") if len(body) < size else None
    return header + body, torn


def _read_pieces(stream: io.BufferedReader, size: int, piece_bytes: int = _PIECE_BYTES) -> Iterator[bytes]:
    """Read the next bytes, which take no more memory than there are: a length may be a lie."""
    while size > 0 and (piece := stream.read(min(size, piece_bytes))):
        size -= len(piece)
        yield piece


def _skip(stream: io.BufferedReader, size: int) -> None:
    for _ in _read_pieces(stream, size, _SKIP_BYTES):
        pass
