"""SharedTexts: the JSON texts that a row holds once, however many of its calls refer to them.

Invariant: equal texts have one position, and positions count from 0 in the order of first use. A value that several
calls share, as all calls of a step do, is written as JSON once: it may be as long as the calls are many.
"""

from collections.abc import Callable
from typing import Generic, TypeVar

_Value = TypeVar("_Value")


class SharedTexts(Generic[_Value]):
    """Texts of values of one kind. Values are known by their ids, so they must live as long as this does."""

    def __init__(self, write: Callable[[_Value], str]) -> None:
        self._write = write
        self._positions: dict[str, int] = {}
        self._by_id: dict[int, int] = {}

    def position(self, value: _Value) -> int:
        """Where the value's text stands. Raises what `write` does."""
        position = self._by_id.get(id(value))
        if position is None:
            position = self._positions.setdefault(self._write(value), len(self._positions))
            self._by_id[id(value)] = position
        return position

    @property
    def texts(self) -> tuple[str, ...]:
        """The texts met so far, by their positions."""
        return tuple(self._positions)
