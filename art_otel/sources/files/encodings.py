"""Encodings: decode the bytes of a file to its content: compressed, in a container's log, as UTF-16.

Invariant: the encoding is detected by the bytes, not by the file's name. A stream that is broken or ends too early
gives all content before this place; a `Failure` reports the problem. Memory has at most one message, or the content
that a few KiB of a file decompress to (some 100 MiB).

    gzip, zstd    members one after the other
    zstd frames   an older collector's file exporter with `compression: zstd`: a length before each message
    docker        the log of a container, a line is `{"log": "…", "stream": "stdout", "time": "…"}` (driver json-file)
    utf-16        with its mark, as PowerShell writes what a program prints (`>`)

Each of them may be inside of a gzip or zstd stream.
Sources: RFC 8878; the collector's `exporter/fileexporter` (`file_writer.go`);
https://docs.docker.com/engine/logging/drivers/json-file/.
"""

import codecs
import io
import re
import zlib
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple, Protocol, TypeAlias

import msgspec
import zstandard

from art_otel.sources.format import Limits, advice
from art_otel.spans import QuarantineReason

GZIP_MAGIC: Final = b"\x1f\x8b"
ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"
PARQUET_MAGICS: Final = (b"PAR1", b"PARE")
"""The second one begins a file whose footer is encrypted."""

HEAD_BYTES: Final = 64
"""How many first bytes decide the encoding."""

_LENGTH_BYTES: Final = 4
_SKIPPABLE: Final = frozenset(bytes([low]) for low in range(0x50, 0x60))
_UTF16: Final = re.compile(rb"\xff\xfe(?:[\t\n\r -~]\x00){2}|\xfe\xff(?:\x00[\t\n\r -~]){2}")
_DOCKER: Final = re.compile(rb'\s*\{\s*"(?:log"\s*:\s*"|stream"\s*:\s*"std(?:out|err)")')
_CRI: Final = re.compile(rb"\d{4}-\d\d-\d\dT[^ ]+ (std(?:out|err)) ([PF])(?::[^ ]*)? ")
_GZIP_BYTES: Final = 16 << 10
_ZSTD_BYTES: Final = 4 << 10
_GZIP_WINDOW: Final = 31
_BLOCK_BYTES: Final = 1 << 20


class Failure(NamedTuple):
    """A part of a stream that could not be read. `location` is its place in the file, empty for the end."""

    reason: QuarantineReason
    detail: str
    location: str = ""


Fail: TypeAlias = Callable[[Failure], None]


def compression_of(head: bytes) -> str | None:
    """The name of a file's compression or encoding, by its first bytes; None for plain content."""
    if head.startswith(GZIP_MAGIC):
        return "gzip"
    if head.startswith(PARQUET_MAGICS):
        return "parquet"
    return "zstd" if _is_zstd(head) or _is_framed_zstd(head) else text_encoding_of(head)


def text_encoding_of(head: bytes) -> str | None:
    """The name of the text encoding that `decoded` must undo, by the first bytes; None for plain UTF-8."""
    if _UTF16.match(head):
        return "utf-16"
    return "container log" if _DOCKER.match(head) or _CRI.match(head) else None


def _is_zstd(head: bytes) -> bool:
    """Whether the bytes begin with a zstd frame, or a skippable one (RFC 8878, 3.1.2), which `pzstd` writes first."""
    return head.startswith(ZSTD_MAGIC) or (head[:1] in _SKIPPABLE and head[1:4] == b"\x2a\x4d\x18")


def _is_framed_zstd(head: bytes) -> bool:
    """Whether a length and a zstd frame begin it."""
    return head[_LENGTH_BYTES : _LENGTH_BYTES + len(ZSTD_MAGIC)] == ZSTD_MAGIC


def unpacked(stream: io.BufferedReader, limits: Limits, fail: Fail) -> Iterator[bytes]:
    """Decompress a gzip or zstd stream."""
    head = stream.peek(HEAD_BYTES)[:HEAD_BYTES]
    if head.startswith(GZIP_MAGIC):
        pieces = _members(stream, _GZIP_BYTES, lambda: zlib.decompressobj(_GZIP_WINDOW), fail)
    else:
        pieces = _unzstd(stream, fail) if _is_zstd(head) else _unframed(stream, limits.max_message_bytes, fail)
    return _bounded(pieces, limits.max_decompressed_bytes, fail)


def decoded(stream: io.BufferedReader, limits: Limits, fail: Fail) -> Iterator[bytes]:
    """Decode a stream that has what `text_encoding_of` names."""
    if text_encoding_of(stream.peek(HEAD_BYTES)[:HEAD_BYTES]) == "utf-16":
        return _from_utf16(stream, fail)
    return _printed(stream, limits.max_message_bytes)


class _Member(Protocol):
    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, /) -> bytes: ...


def _unzstd(stream: io.BufferedIOBase, fail: Fail) -> Iterator[bytes]:
    return _members(stream, _ZSTD_BYTES, zstandard.ZstdDecompressor().decompressobj, fail)


def _members(stream: io.BufferedIOBase, size: int, make: Callable[[], _Member], fail: Fail) -> Iterator[bytes]:
    """Decompress the members (frames) of a file one after the other; `size` compressed bytes are read at once."""
    member: _Member | None = None
    try:
        while data := stream.read(size):
            while data := data if member else data.lstrip(b"\0"):  # some fill a file up with zeros
                member = member or make()
                yield member.decompress(data)
                data = member.unused_data if member.eof else b""
                member = None if member.eof else member
    except (zlib.error, zstandard.ZstdError) as error:
        fail(Failure("torn", f"the compressed stream is corrupt here: {error}"))
    else:
        if member is not None:
            fail(Failure("torn", "the compressed stream ends too early"))


def _bounded(pieces: Iterator[bytes], limit: int, fail: Fail) -> Iterator[bytes]:
    """Pass the pieces on, up to `limit` bytes."""
    left = limit
    for piece in pieces:
        if len(piece) > left:
            yield piece[:left]
            detail = f"it decompresses to more than {limit} bytes; {advice('max_decompressed_bytes')}"
            fail(Failure("over a limit", detail))
            return
        left -= len(piece)
        yield piece


def _unframed(stream: io.BufferedReader, limit: int, fail: Fail) -> Iterator[bytes]:
    """Decompress messages that are a zstd frame each with its 4-byte big-endian length before it.

    JSON comes a message a line, protobuf with the length of the message before each. A message that is broken or over
    the limit comes empty, so that the others keep their numbers.
    """
    is_json: bool | None = None
    empty = 0
    for message, is_torn in _messages(stream, limit, fail):
        if not message:
            empty += 1
            continue
        if is_json is None:
            is_json = message[:1] in (b"{", b"[")
        yield empty * (b"\n" if is_json else bytes(_LENGTH_BYTES))
        empty = 0
        if is_json:
            yield message + (b"" if is_torn else b"\n")
        else:
            yield (len(message) + is_torn).to_bytes(_LENGTH_BYTES) + message  # a byte too many says that it is torn


def _messages(stream: io.BufferedReader, limit: int, fail: Fail) -> Iterator[tuple[bytes, bool]]:
    """Decompress each message, and say whether the file ends inside it; one broken or over the limit is empty."""
    number = 0
    while prefix := stream.read(_LENGTH_BYTES):
        number += 1
        size = int.from_bytes(prefix)
        frame = stream.read(size) if size <= limit else b""
        is_torn = len(prefix) < _LENGTH_BYTES or len(frame) < size <= limit
        problems: list[Failure] = []
        message = b"".join(_bounded(_unzstd(io.BytesIO(frame), problems.append), limit + 1, problems.append))
        if size > limit or len(message) > limit:
            _skip(stream, size - len(frame))
            detail = f"it is larger than {limit} bytes; {advice('max_message_bytes')}"
            fail(Failure("over a limit", detail, f"message {number}"))
        elif is_torn:
            fail(Failure("torn", f"the file ends inside message {number}"))
        elif problems:
            fail(Failure("torn", problems[0].detail, f"message {number}"))
        is_kept = len(message) <= limit and (is_torn or not problems)
        yield message if is_kept else b"", is_torn


def _skip(stream: io.BufferedReader, size: int) -> None:
    while size and (skipped := len(stream.read(min(size, _BLOCK_BYTES)))):
        size -= skipped


def _from_utf16(stream: io.BufferedReader, fail: Fail) -> Iterator[bytes]:
    """Give a text in UTF-8. Halves of characters stay what they are: the reader of the format counts them."""
    decoder = codecs.getincrementaldecoder("utf-16")("surrogatepass")
    while block := stream.read(_BLOCK_BYTES):
        yield decoder.decode(block).encode(errors="surrogatepass")
    if decoder.getstate()[0]:
        fail(Failure("torn", "the file ends inside a character"))


class _Entry(msgspec.Struct):
    """What a container printed: a line, or a part of a long one, which has no end of line."""

    log: str
    stream: str = ""


_decode_entry: Final = msgspec.json.Decoder(_Entry).decode


def _printed(stream: io.BufferedReader, limit: int) -> Iterator[bytes]:
    """Give the lines that a container printed. What is no entry comes as it is, and so does a line over the limit."""
    begun: dict[str, bytearray] = {}
    while line := stream.readline(limit):
        entry = _entry_of(line)
        if entry is None:
            yield line
            continue
        source, text = entry
        printed = begun.setdefault(source, bytearray())
        printed += text
        if text.endswith(b"\n") or len(printed) > limit:
            yield bytes(printed)
            printed.clear()
    yield from map(bytes, begun.values())


def _entry_of(line: bytes) -> tuple[str, bytes] | None:
    """Say which stream of a container a line is of, and what was printed; None for what is no entry."""
    if cri := _CRI.match(line):
        text = line[cri.end() :]
        return cri[1].decode(), text.removesuffix(b"\n") if cri[2] == b"P" else text
    try:
        entry = _decode_entry(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return entry.stream, entry.log.encode()
