"""Patches: attributes of classes and modules that stand in for others until they are undone.

Invariant: `undo` leaves every place as it was found, but for those where somebody else has put something since.
"""

from types import ModuleType
from typing import Final

_ABSENT: Final = object()


class Patches:
    """What was put where, and what was there before."""

    def __init__(self) -> None:
        self._placed: list[tuple[type | ModuleType, str, object, object]] = []

    def set(self, owner: type | ModuleType, name: str, value: object) -> None:
        """Put a value in the place of whatever `owner` itself has there."""
        self._placed.append((owner, name, value, vars(owner).get(name, _ABSENT)))
        setattr(owner, name, value)

    def undo(self) -> None:
        """Take everything back, the last first."""
        while self._placed:
            owner, name, value, before = self._placed.pop()
            if vars(owner).get(name) is not value:
                continue
            if before is _ABSENT:
                delattr(owner, name)
            else:
                setattr(owner, name, before)
