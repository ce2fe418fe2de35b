"""Acknowledged: what one consumer has, on the disk.

Invariant: what `add` took is in the file when it returns, so that no restart hands it out again. A line that a crash
cut counts as never written.
"""

import errno
from pathlib import Path
from typing import Final

import msgspec

from art_otel.receiver.protocol.receipt import Receipt

_SUFFIX: Final = ".jsonl"


_decode: Final = msgspec.json.Decoder(Receipt).decode


class Acknowledged:
    """The file of the consumer `name` in `folder`."""

    def __init__(self, folder: Path, name: str) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = folder / f"{name}{_SUFFIX}"
        self.receipts = {receipt.key: receipt for receipt in _read(path)}
        self._file = path.open("ab", buffering=0)
        if self._file.tell() and not path.read_bytes().endswith(b"\n"):
            self._file.write(b"\n")

    def add(self, receipt: Receipt) -> None:
        """Note what the consumer has handled. Raises OSError where the disk refuses it."""
        line = msgspec.json.encode(receipt) + b"\n"
        before = self._file.tell()
        if self._file.write(line) < len(line):
            self._file.truncate(before)
            raise OSError(errno.ENOSPC, "the disk is full", self._file.name)
        self.receipts[receipt.key] = receipt

    def close(self) -> None:
        """Leave the file."""
        self._file.close()


def acknowledged_ids(folder: Path) -> frozenset[str]:
    """The ids of the rollouts that any consumer has handled, and of their traces."""
    receipts = (receipt for path in folder.glob(f"*{_SUFFIX}") for receipt in _read(path))
    return frozenset(each for receipt in receipts for each in (receipt.rollout_id, receipt.trace_id))


def _read(path: Path) -> list[Receipt]:
    receipts: list[Receipt] = []
    if path.exists():
        for line in path.read_bytes().splitlines():
            try:
                receipts.append(_decode(line))
            except msgspec.DecodeError:  # cut by a crash
                continue
    return receipts
