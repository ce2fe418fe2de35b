"""FileStats: what became of one input.

Invariant: `spans + log_records + quarantined` is the number of records that were read, so nothing is lost silently.
"""

from typing import Final

import msgspec

UNKNOWN_FORMAT: Final = "no known format"


class FileStats(msgspec.Struct, kw_only=True):
    """Filled while a file is read; final when the iterator of `read_file` ends.

    `bytes` counts what was read from the file (compressed). `quarantined` counts records and rubbish set aside whole,
    `partly_quarantined` the partial Quarantined of records that were kept. `logs_without_span` counts log records that
    belong to no span, `other_signals` requests with metrics or profiles; neither is quarantined.
    `altered` counts lines that were read although their checksum does not match, `replaced` the characters U+FFFD that
    stand for what no text can hold: halves of emoji (surrogate pairs), and bytes that are no UTF-8.
    `without_time` counts rewards that do not say when they were given. `lacks` says what the format cannot carry.
    `note` says why a file gave nothing, `error` why it could not be read.
    """

    path: str = ""
    format: str | None = None
    compression: str | None = None
    bytes: int = 0
    spans: int = 0
    log_records: int = 0
    quarantined: int = 0
    partly_quarantined: int = 0
    logs_without_span: int = 0
    other_signals: int = 0
    altered: int = 0
    replaced: int = 0
    without_time: int = 0
    lacks: tuple[str, ...] = ()
    note: str | None = None
    error: str | None = None

    def add(self, other: "FileStats") -> None:
        """Add what another process read of the same file."""
        for name in self.__struct_fields__:
            count = getattr(other, name)
            if isinstance(count, int):
                setattr(self, name, getattr(self, name) + count)
        self.error = self.error or other.error
