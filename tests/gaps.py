"""What tests ask about the gaps of a call."""

from collections.abc import Iterable
from typing import Protocol

from art_otel.calls import Gap

_UNREAD = ("cut", "not understood", "dropped")


class HasGaps(Protocol):
    @property
    def gaps(self) -> Iterable[Gap]: ...


def unread(call: HasGaps) -> tuple[str, ...]:
    """The attributes that could not be read whole."""
    return tuple(dict.fromkeys(gap.evidence for gap in call.gaps if gap.kind in _UNREAD and " " not in gap.evidence))


SCRUBBED = Gap(kind="scrubbed", field="call", evidence="a test")
CONTRADICTED = Gap(kind="contradicted", field="call", evidence="a test")
CUT = Gap(kind="cut", field="call", evidence="a test")
DROPPED = Gap(kind="dropped", field="call", evidence="a test")


def kinds(call: HasGaps) -> tuple[str, ...]:
    """The kinds of gaps, each once."""
    return tuple(dict.fromkeys(gap.kind for gap in call.gaps))


def not_logged(call: HasGaps) -> tuple[str, ...]:
    """What the log of an agent does not tell."""
    return tuple(gap.evidence for gap in call.gaps if gap.kind == "not logged")
