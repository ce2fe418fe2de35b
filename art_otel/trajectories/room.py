"""Room: the bytes that are left for what the calls of one tree repeat.

Invariant: what was refused took nothing, so that smaller things may still find room.
"""

import msgspec


class Room(msgspec.Struct, eq=False):
    """`left` counts bytes."""

    left: int

    def take(self, size: int) -> bool:
        """Whether there is room for as many bytes, which is taken then."""
        if size > self.left:
            return False
        self.left -= size
        return True
