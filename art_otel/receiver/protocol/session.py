"""Session: one consumer's program, from its first question until it leaves or dies.

Invariant: what it asks next acknowledges what it had; when it closes, or its connection breaks, the rest waits for the
consumer's next session.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from art_otel.receiver.protocol.parcel import Parcel
from art_otel.receiver.protocol.receipt import Receipt
from art_otel.receiver.protocol.selection import Selection


class SessionEndedError(Exception):
    """The session has ended, or another server began it: begin a new one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    """What a session asks: it has handled some, holds others, and wants up to `count` more within `wait` seconds."""

    handled: Sequence[Receipt]
    holds: Sequence[Receipt]
    selection: Selection
    count: int
    wait: float


class Session(Protocol):
    """A session with a receiver in this process, or in another one."""

    async def take(self, question: Question) -> list[Parcel]:
        """Acknowledge what was handled, and take more; none where none comes in time. Raises SessionEndedError."""
        ...

    async def close(self, handled: Sequence[Receipt]) -> None:
        """Acknowledge what was handled, and leave."""
        ...
