"""Tasks: how the rewards of each task went over steps: never solved, forgotten, mostly unsolved, learning or solved.

Invariant: counts are of all tasks with a reward; of more than 200, those that changed or failed most are shown. Rewards
are compared as parts of their range, which is 0 to 1 where all are in it.

    never solved           no step's mean is above 0.05
    forgotten              ends far below an earlier step above 0.5
    mostly unsolved        ends in the lower half, no better than it began
    solved from the start  begins and ends above 0.85
    learning               of all others, those that end better than they began
    partly solved          the rest, as of one step alone
"""

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from art_otel.viewer.addresses import encode_key, group_key_of

if TYPE_CHECKING:
    from art_otel.viewer.judging import Judgement
    from art_otel.viewer.outlines import Outlines
    from art_otel.viewer.run import Axis
    from art_otel.viewer.snapshot import Snapshot

KINDS: Final = ("never solved", "forgotten", "mostly unsolved", "partly solved", "learning", "solved from the start")
FAILING: Final = KINDS[:3]
"""In the order in which they are shown."""

_SHOWN: Final = 200
_SHOWN_OF_MORE: Final = 50
_NEVER, _SOLVED, _HALF, _FALL = 0.05, 0.85, 0.5, 0.35

Numbers = NDArray[np.int64]


class Kinds(NamedTuple):
    """The mean reward of each task in each column, and the kind of each task as a position in KINDS, -1 for no reward.

    Cell i is of task `tasks[i]` in column `columns[i]`; `cells` has the cell of each of `rows`, the rows with a reward.
    Shapes: (cells,), of `kinds` and `change` (tasks,) and of `cells` (rows,).
    """

    tasks: Numbers
    columns: Numbers
    means: NDArray[np.float64]
    rows: Numbers
    cells: Numbers
    kinds: Numbers
    change: NDArray[np.float64]

    @classmethod
    def of(cls, outlines: "Outlines", columns: Numbers, rows: Numbers, over_steps: Numbers) -> "Kinds":
        """The cells of these rows, and the kinds of their tasks, which are those over all steps.

        Rows without a column count as of the first.
        """
        if len(over_steps) > len(rows):
            part, whole = cls.of(outlines, columns, rows, rows), cls.of(outlines, columns, over_steps, over_steps)
            return part._replace(kinds=np.where(part.kinds < 0, -1, whole.kinds), change=whole.change)
        tasks, rewards = outlines.tasks, outlines.rewards
        rows = rows[np.isfinite(rewards[rows]) & (tasks.codes[rows] >= 0)]
        of_rows, width = rewards[rows], int(columns.max(initial=0)) + 1
        pairs, cells = np.unique(tasks.codes[rows] * width + np.maximum(columns[rows], 0), return_inverse=True)
        means = np.bincount(cells, of_rows, len(pairs)) / np.maximum(np.bincount(cells, minlength=len(pairs)), 1)
        low, high = min(of_rows.min(initial=0), 0.0), max(of_rows.max(initial=0), 1.0)
        if low < 0 or high > 1:
            low, high = of_rows.min(), of_rows.max()
        parts, of_cells = (means - low) / max(high - low, 1e-300), pairs // width
        starts = np.flatnonzero(np.diff(of_cells, prepend=-1))
        kinds, change = np.full(len(tasks.names), -1), np.zeros(len(tasks.names))
        for start, end in zip(starts.tolist(), np.append(starts, len(pairs))[1:].tolist(), strict=True):
            of_task = parts[start:end]  # in the order of the columns
            third = max(1, len(of_task) // 3)
            begins, ends, before = of_task[:third].mean(), of_task[-third:].mean(), of_task[:-third].max(initial=0)
            if begins > _SOLVED and ends > _SOLVED:
                kind = "solved from the start"
            elif of_task.max() <= _NEVER:
                kind = "never solved"
            elif before > _HALF and ends < min(_HALF, before - _FALL):
                kind = "forgotten"
            elif ends < _HALF and ends <= begins:
                kind = "mostly unsolved"
            else:
                kind = "learning" if ends > begins else "partly solved"
            kinds[of_cells[start]], change[of_cells[start]] = KINDS.index(kind), ends - begins
        return cls(of_cells, pairs % width, means, rows, cells, kinds, change)

    def tasks_of(self, kind: str) -> Numbers:
        """The tasks of a kind."""
        return np.flatnonzero(self.kinds == KINDS.index(kind))


def show_tasks(
    snapshot: "Snapshot", judgement: "Judgement | None", axis: "Axis", rows: Numbers, over_steps: Numbers
) -> dict[str, Any]:
    """The tasks by their kinds, each with its cells: column, mean reward, rollouts, whether all is flat, its group."""
    outlines = snapshot.outlines
    found = Kinds.of(outlines, axis.codes, rows, over_steps)
    counts = {kind: len(found.tasks_of(kind)) for kind in KINDS}
    order = np.flatnonzero(found.kinds >= 0)
    if len(order) > _SHOWN:
        # Failing ones first, then those that changed most.
        by_need = sorted(order.tolist(), key=lambda task: (found.kinds[task] >= len(FAILING), -abs(found.change[task])))
        order = np.array(by_need[:_SHOWN_OF_MORE])
    last = dict(zip(found.tasks.tolist(), found.means.tolist(), strict=True))
    shown = sorted(order.tolist(), key=lambda task: (found.kinds[task], last[task], outlines.tasks.names[task]))
    of_cells = _Cells.of(outlines, judgement, found)
    return {
        "total": sum(counts.values()),
        "counts": counts,
        "shown": [
            {
                "name": outlines.tasks.names[task],
                "kind": KINDS[found.kinds[task]],
                "cells": [of_cells.show(cell) for cell in np.flatnonzero(found.tasks == task).tolist()],
            }
            for task in shown
        ],
    }


class _Cells(NamedTuple):
    """What a cell shows besides its place. `groups` are the keys of those that are of one group."""

    found: Kinds
    sizes: Numbers
    flat: NDArray[np.bool_]
    groups: dict[int, str]

    @classmethod
    def of(cls, outlines: "Outlines", judgement: "Judgement | None", found: Kinds) -> "_Cells":
        count, cells, rows, rewards = len(found.means), found.cells, found.rows, outlines.rewards
        sizes = np.bincount(cells, minlength=count)
        if judgement is None:
            low, high = np.full(count, np.inf), np.full(count, -np.inf)
            np.minimum.at(low, cells, rewards[rows])
            np.maximum.at(high, cells, rewards[rows])
            flat = low == high
        else:
            flat = np.bincount(cells, judgement.has_gradient[rows], count) == 0
        numbers, first = outlines.groups_of_rows
        least, most = np.full(count, len(first)), np.full(count, -1)
        np.minimum.at(least, cells, numbers[rows])
        np.maximum.at(most, cells, numbers[rows])
        alone = (least == most) & (most >= 0)
        records = outlines.records(first[most[alone]])
        keys = [encode_key(group_key_of(record)) for record in records]
        return cls(found, sizes, flat, dict(zip(np.flatnonzero(alone).tolist(), keys, strict=True)))

    def show(self, cell: int) -> list[Any]:
        """The cell as the page draws it."""
        column, mean = int(self.found.columns[cell]), float(self.found.means[cell])
        return [column, mean, int(self.sizes[cell]), bool(self.flat[cell]), self.groups.get(cell)]
