"""WaitingGroups: the sequences of groups that are spread over windows of a dataset, until a group is whole.

Invariant: each sequence is given once, with all others of its group, in the window that has the group's last member.
Until then it is on disk: a dataset is in the order of rollout ids, so members of a group may be anywhere in it.
"""

from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Self

from art_otel.data.arranging import AnySequence
from art_otel.data.columns import Ints
from art_otel.data.preferences import SpillFile


class WaitingGroups:
    """Use it as a context manager.

    `last_windows` has the number of the window in which each group ends, `groups` the group of each trajectory.
    """

    def __init__(self, last_windows: Mapping[int, int], groups: Ints) -> None:
        self._last_windows = last_windows
        self._groups = groups
        self._spilled = SpillFile[list[AnySequence]]()
        self._count = 0
        self._waiting: dict[int, list[int]] = {}

    def __enter__(self) -> Self:
        """The groups themselves."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Remove what waits."""
        self._spilled.__exit__(kind, error, at)

    def whole(self, window: int, built: Iterable[tuple[int, Sequence[AnySequence]]]) -> list[list[AnySequence]]:
        """The sequences of each group that ends in this window. `built` are its trajectories, by number.

        The sequences of other groups wait.
        """
        by_group: dict[int, list[AnySequence]] = {}
        for number, sequences in built:
            by_group.setdefault(int(self._groups[number]), []).extend(sequences)
        units: list[list[AnySequence]] = []
        for group, sequences in by_group.items():
            if self._last_windows[group] == window:
                earlier = [one for place in self._waiting.pop(group, ()) for one in self._spilled[place]]
                units.append([*earlier, *sequences])
            else:
                self._spilled[self._count] = list(sequences)
                self._waiting.setdefault(group, []).append(self._count)
                self._count += 1
        return [unit for unit in units if unit]
