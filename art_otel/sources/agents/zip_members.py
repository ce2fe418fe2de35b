"""ZipMembers: the files in a zip archive, stored, deflated or zstd (method 93: zipfile reads it from 3.14 on).

Invariant: one that is broken, or larger than the limit, costs itself; no more than one is held.
"""

import io
import shutil
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from typing import IO, Final, NamedTuple

import zstandard

from art_otel.sources.limits import advice
from art_otel.sources.refusals import Refused

MAGIC: Final = b"PK\x03\x04"
_ZSTD: Final = 93
_LOCAL_HEADER: Final = struct.Struct("<26xHH")
"""The lengths of the name and of the extra field, behind which the data begins."""


class Member(NamedTuple):
    """A file of an archive, or why it cannot be read."""

    name: str
    data: bytes | Refused


def read_members(stream: io.BufferedReader, limit: int, wanted: Callable[[str], bool]) -> Iterator[Member]:
    """Read the wanted files, in the order of their names. Raises Refused for what is no archive."""
    with tempfile.TemporaryFile() as copy:  # the list of the files stands at the end
        shutil.copyfileobj(stream, copy)
        try:
            members = zipfile.ZipFile(copy).infolist()
        except (zipfile.BadZipFile, NotImplementedError, OSError) as error:
            raise Refused("torn", detail=f"is no whole zip archive: {error}") from None
        for info in sorted(members, key=lambda info: info.filename):
            if wanted(info.filename):
                yield Member(info.filename, _read(copy, info, limit))


def _read(file: IO[bytes], info: zipfile.ZipInfo, limit: int) -> bytes | Refused:
    if info.file_size > limit:
        return Refused("over a limit", detail=f"has {info.file_size:,} bytes; {advice('max_message_bytes')}")
    file.seek(info.header_offset)
    header = file.read(_LOCAL_HEADER.size)
    if len(header) < _LOCAL_HEADER.size:
        return Refused("torn", detail="has no header")
    file.seek(sum(_LOCAL_HEADER.unpack(header)), io.SEEK_CUR)
    packed = file.read(info.compress_size)
    try:
        data = _unpacked(packed, info.compress_type, limit)
    except (zlib.error, zstandard.ZstdError) as error:
        return Refused("torn", detail=str(error))
    if zlib.crc32(data) != info.CRC:
        return Refused("torn", detail="its checksum does not match")
    return data


def _unpacked(packed: bytes, method: int, limit: int) -> bytes:
    if method == _ZSTD:
        return zstandard.ZstdDecompressor().stream_reader(packed).read(limit)
    return zlib.decompressobj(-zlib.MAX_WBITS).decompress(packed, limit) if method == zipfile.ZIP_DEFLATED else packed
