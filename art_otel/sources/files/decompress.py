"""Decompression: gzip, zstd, and the collector's zstd a message at a time, as an iterator of pieces.

Invariant: a stream that is cut or broken gives what stands before that place, says so through `fail`, and ends. A piece
is at most what a few KiB of a file decompress to (some 100 MiB), so that no file exhausts the memory.
"""

import io
import zlib
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple, Protocol, TypeAlias

import zstandard

from art_otel.sources.limits import advice
from art_otel.spans import QuarantineReason

GZIP_MAGIC: Final = b"\x1f\x8b"
ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"
PARQUET_MAGICS: Final = (b"PAR1", b"PARE")
"""The second one begins a file whose footer is encrypted."""

_GZIP_BYTES: Final = 16 << 10
_ZSTD_BYTES: Final = 4 << 10
_GZIP_WINDOW: Final = 31
_LENGTH_BYTES: Final = 4
_SKIPPABLE: Final = frozenset(bytes([low]) for low in range(0x50, 0x60))
_SKIP_BYTES: Final = 1 << 20


class Failure(NamedTuple):
    """What could not be read of a stream; `location` is inside the file, empty for its end."""

    reason: QuarantineReason
    detail: str
    location: str = ""


Fail: TypeAlias = Callable[[Failure], None]


class _Member(Protocol):
    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, /) -> bytes: ...


def compression_of(head: bytes) -> str | None:
    """Name the compression of a file by its first bytes; None for none."""
    if head.startswith(GZIP_MAGIC):
        return "gzip"
    if head.startswith(PARQUET_MAGICS):
        return "parquet"
    return "zstd" if _is_zstd(head) or _is_framed_zstd(head) else None


def decompress(stream: io.BufferedReader, limit: int, fail: Fail) -> Iterator[bytes]:
    """Decompress a gzip or zstd stream. `limit` bounds each message that is a zstd frame of its own."""
    head = stream.peek(_LENGTH_BYTES + len(ZSTD_MAGIC))
    if head.startswith(GZIP_MAGIC):
        return _members(stream, _GZIP_BYTES, lambda: zlib.decompressobj(_GZIP_WINDOW), fail)
    return _unzstd(stream, fail) if _is_zstd(head) else _unframed(stream, limit, fail)


def bounded(pieces: Iterator[bytes], limit: int, fail: Fail) -> Iterator[bytes]:
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


def _is_zstd(head: bytes) -> bool:
    """Whether a zstd frame begins it, also a skippable one (RFC 8878, 3.1.2), which `pzstd` writes before each."""
    return head.startswith(ZSTD_MAGIC) or (head[:1] in _SKIPPABLE and head[1:4] == b"\x2a\x4d\x18")


def _is_framed_zstd(head: bytes) -> bool:
    """Whether a length and a zstd frame begin it, as older file exporters with `compression: zstd` write."""
    return head[_LENGTH_BYTES : _LENGTH_BYTES + len(ZSTD_MAGIC)] == ZSTD_MAGIC


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
        fail(Failure("torn", f"the compressed stream is broken here: {error}"))
    else:
        if member is not None:
            fail(Failure("torn", "the compressed stream is cut here"))


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
        message = b"".join(bounded(_unzstd(io.BytesIO(frame), problems.append), limit + 1, problems.append))
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
    while size and (skipped := len(stream.read(min(size, _SKIP_BYTES)))):
        size -= skipped
