"""Quarantined: a piece of a source that could not be read, set aside with its reason instead of being dropped.

Invariant: every piece a source cannot turn into a Span or LogRecord becomes exactly one Quarantined, so that
spans read = used + ignored + duplicate + quarantined always holds. `reason` comes from the short list below
and is what reports count by; `path` and `detail` are for the person who looks into it.
"""

from collections.abc import Iterable
from itertools import islice
from operator import attrgetter
from typing import Final, Literal, TypeAlias

import msgspec

QuarantineReason: TypeAlias = Literal[
    "not JSON",
    "torn",
    "not OTLP",
    "invalid UTF-8",
    "not a finite number",
    "nested too deep",
    "bad id",
    "bad field",
    "ends before it starts",
    "cycle of parents",
    "over a limit",
    "bad reward",
    "too late",
]

Kind: TypeAlias = Literal["span", "log", "unknown"]

MAX_PATH: Final = 1000
MAX_DETAIL: Final = 300

MAX_LISTED: Final = 1000
"""How many entries of a conversion are listed; all are counted."""


class Quarantined(msgspec.Struct, frozen=True, kw_only=True):
    """One quarantined piece.

    `path` names it as far as it is known: `file:line / trace … / span … / attribute`. `trace_id`, `span_id` are
    those of the damaged record where they could be read, so that its trajectory can say that it misses something.
    `partial` means the record itself was kept without the damaged value, so it is counted here and not as used.
    """

    reason: QuarantineReason
    path: str
    detail: str = ""
    kind: Kind = "span"
    trace_id: str | None = None
    span_id: str | None = None
    partial: bool = False

    def __post_init__(self) -> None:
        """Cut what is too long to be read: a name in it may be of any length, and many entries may have it."""
        if len(self.path) > MAX_PATH:
            msgspec.structs.force_setattr(self, "path", f"{self.path[:MAX_PATH]}…")
        if len(self.detail) > MAX_DETAIL:
            msgspec.structs.force_setattr(self, "detail", f"{self.detail[:MAX_DETAIL]}…")


def extend_sorted(entries: list[Quarantined], new_entries: Iterable[Quarantined]) -> None:
    """Add entries and keep at least the first MAX_LISTED in sorted order, in whichever order they are added."""
    entries.extend(new_entries)
    if len(entries) > 2 * MAX_LISTED:
        entries[:] = first_sorted(entries)


def first_sorted(entries: Iterable[Quarantined]) -> list[Quarantined]:
    """The first MAX_LISTED entries, sorted by path, detail and reason."""
    return sorted(entries, key=attrgetter("path", "detail", "reason"))[:MAX_LISTED]


def list_quarantined(entries: list[Quarantined], new_entries: Iterable[Quarantined]) -> None:
    """Add entries up to MAX_LISTED, in the order they come."""
    entries.extend(islice(new_entries, max(0, MAX_LISTED - len(entries))))
