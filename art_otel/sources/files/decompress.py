"""Decompression: gzip, zstd, and the collector's zstd a message at a time.

Invariant: a stream that is cut or broken gives all bytes before that place. It then says so by raising (gzip) or
through `fail` (zstd), and ends.
"""

import gzip
import io
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple, TypeAlias, cast

from art_otel.sources.files.bounded_read import read_up_to
from art_otel.sources.limits import advice
from art_otel.spans import QuarantineReason

CHUNK_BYTES: Final = 64 << 10
GZIP_MAGIC: Final = b"\x1f\x8b"
PARQUET_MAGICS: Final = (b"PAR1", b"PARE")
"""The second one begins a file whose footer is encrypted."""

ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"
LENGTH_BYTES: Final = 4
_USUAL_RATIO: Final = 16
_SKIPPABLE: Final = frozenset(bytes([low]) for low in range(0x50, 0x60))

Fill: TypeAlias = Callable[[memoryview], int]
"""Writes bytes into a buffer and says how many; 0 at the end."""


class Failure(NamedTuple):
    """What could not be read of a stream; `place` is inside the file, empty for its end."""

    reason: QuarantineReason
    detail: str
    place: str = ""


Fail: TypeAlias = Callable[[Failure], None]


def gunzip(raw: io.RawIOBase) -> Fill:
    """Several members one after the other are one stream."""
    stream = gzip.GzipFile(fileobj=io.BufferedReader(raw, CHUNK_BYTES))

    def fill(buffer: memoryview) -> int:
        data = stream.read1(len(buffer))  # read1 gives what there is before the next read raises
        buffer[: len(data)] = data
        return len(data)

    return fill


def unzstd(raw: io.RawIOBase, fail: Fail) -> Fill:
    """Several frames one after the other are one stream."""
    import pyarrow as pa  # noqa: PLC0415 # pyright: ignore[reportMissingTypeStubs] # slow to load, and it has none

    arrow = cast(Any, pa)
    stream: io.FileIO = arrow.CompressedInputStream(arrow.PythonFile(io.BufferedReader(raw, CHUNK_BYTES), "r"), "zstd")

    ended = False

    def fill(buffer: memoryview) -> int:
        nonlocal ended
        if ended:
            return 0
        # A read that fails has already written what it could, but does not say how much. 0xff ends neither a
        # text nor, but for a rare last number, a protobuf message, so it marks what was not written.
        buffer[:] = b"\xff" * len(buffer)
        try:
            return stream.readinto(buffer)
        except OSError as error:
            ended = True
            fail(Failure("torn", f"the zstd stream is cut or broken here: {error}"))
            return len(bytes(buffer).rstrip(b"\xff"))

    return fill


def is_zstd(head: bytes) -> bool:
    """Whether a zstd frame begins it, also a skippable one (RFC 8878, 3.1.2), which `pzstd` writes before each."""
    return head.startswith(ZSTD_MAGIC) or (head[:1] in _SKIPPABLE and head[1:4] == b"\x2a\x4d\x18")


def is_framed_zstd(head: bytes) -> bool:
    """Whether a length and a zstd frame begin it, as older file exporters with `compression: zstd` write."""
    return head[LENGTH_BYTES : LENGTH_BYTES + len(ZSTD_MAGIC)] == ZSTD_MAGIC


def unframe_zstd(raw: io.RawIOBase, limit: int, fail: Fail) -> Fill:
    """Messages that are a zstd frame each with its 4-byte big-endian length before it, as they would be uncompressed.

    JSON comes a message a line, protobuf with the length of the message before each. A message that is broken or
    larger than `limit` bytes comes empty, so that the others keep their numbers.
    """
    return pour(_reframed(io.BufferedReader(raw, CHUNK_BYTES), limit, fail))


def pour(pieces: Iterator[bytes]) -> Fill:
    """The pieces one after the other."""
    left = memoryview(b"")

    def fill(buffer: memoryview) -> int:
        nonlocal left
        while not left:
            piece = next(pieces, None)
            if piece is None:
                return 0
            left = memoryview(piece)
        count = min(len(buffer), len(left))
        buffer[:count] = left[:count]
        left = left[count:]
        return count

    return fill


def _reframed(stream: io.BufferedReader, limit: int, fail: Fail) -> Iterator[bytes]:
    is_json: bool | None = None
    empty = 0
    for message, is_torn in _messages(stream, limit, fail):
        if not message:
            empty += 1
            continue
        if is_json is None:
            is_json = message[:1] in (b"{", b"[")
        yield empty * (b"\n" if is_json else bytes(LENGTH_BYTES))
        empty = 0
        if is_json:
            yield message
            yield b"" if is_torn else b"\n"
        else:
            yield (len(message) + is_torn).to_bytes(LENGTH_BYTES)  # one byte too many tells that it is cut
            yield message


def _messages(stream: io.BufferedReader, limit: int, fail: Fail) -> Iterator[tuple[bytes, bool]]:
    """Each message, and whether the file ends inside it."""
    number = 0
    while prefix := stream.read(LENGTH_BYTES):
        number += 1
        size = int.from_bytes(prefix)
        if size > limit:
            _skip(stream, size)
            fail(_too_large(number, limit))
            yield b"", False
            continue
        frame = read_up_to(stream, size)
        problems: list[Failure] = []
        message = _inflate(frame, limit, problems.append)
        is_torn = len(prefix) < LENGTH_BYTES or len(frame) < size
        if is_torn:
            fail(Failure("torn", f"the file ends inside message {number}"))
        elif len(message) > limit:
            fail(_too_large(number, limit))
        elif problems:
            fail(Failure("torn", problems[0].detail, f"message {number}"))
        yield (b"" if len(message) > limit or (problems and not is_torn) else message), is_torn


def _inflate(frame: bytes, limit: int, fail: Fail) -> bytes:
    """At most one byte more than `limit` of what the frame holds."""
    found = bytearray()
    fill = unzstd(cast(io.RawIOBase, io.BytesIO(frame)), fail)
    chunk = memoryview(bytearray(min(CHUNK_BYTES, _USUAL_RATIO * len(frame))))  # filling it takes time
    while frame and len(found) <= limit and (count := fill(chunk)):
        found += chunk[:count]
    return bytes(found)


def _too_large(number: int, limit: int) -> Failure:
    detail = f"it is larger than {limit} bytes; {advice('max_message_bytes')}"
    return Failure("over a limit", detail, f"message {number}")


def _skip(stream: io.BufferedReader, size: int) -> None:
    while size and (skipped := len(stream.read(min(size, CHUNK_BYTES)))):
        size -= skipped
