"""FileChecksum: what a checkpoint says of a file, so that whoever goes on knows that it is still the same.

Invariant: a file of which one was taken is on the disk.
"""

import os
import zlib
from pathlib import Path
from typing import Final

import msgspec

_READ: Final = 1 << 20


class FileChecksum(msgspec.Struct, frozen=True, kw_only=True):
    """The bytes of a file, counted and as CRC-32."""

    size: int
    crc32: int

    def matches(self, path: Path) -> bool:
        """Whether the file is there as it was."""
        try:
            return path.stat().st_size == self.size and _crc32(path) == self.crc32
        except OSError:
            return False


def synced_checksum(path: Path) -> FileChecksum:
    """Wait until the disk has the file; its checksum."""
    with path.open("rb+") as file:
        os.fsync(file.fileno())
    return FileChecksum(size=path.stat().st_size, crc32=_crc32(path))


def _crc32(path: Path) -> int:
    crc = 0
    with path.open("rb", buffering=0) as file:
        while piece := file.read(_READ):
            crc = zlib.crc32(piece, crc)
    return crc
