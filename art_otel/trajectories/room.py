"""Room: the bytes that are left for what is said once and repeated by many calls or rewards of a tree.

Invariant: what was refused took nothing, so that smaller things may still find room.
"""

from typing import Final

import msgspec

MOST_REPEATED: Final = 64 << 20
"""Bytes that one kind of repeated text may take."""

MOST_OF_NAME: Final = 1024
"""Characters of a name that one span or process gives to any number of rollouts."""

_SHORT: Final = 64


class Room(msgspec.Struct, eq=False):
    """`left` counts bytes."""

    left: int

    def take(self, size: int) -> bool:
        """Whether there is room for as many bytes, which is taken then."""
        if size > self.left:
            return False
        self.left -= size
        return True

    def take_text(self, text: str) -> bool:
        """As `take`, of a text; one that is short needs no room, as the span that repeats it takes more."""
        return len(text) <= _SHORT or self.take(len(text))
