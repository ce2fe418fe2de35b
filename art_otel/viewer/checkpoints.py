"""Checkpoints: two sides of the data on the same tasks, and two rollouts of one task, word by word.

Invariant: a side is the rows of a source, a step, a policy version or a model. Tasks of both sides are one where their
groups have one id, at whatever step and before sources were told apart; where no id is on both sides, where their
rollouts have one name.
Means are of known values; unknown ones are null.
"""

# pyarrow ships no types.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportAttributeAccessIssue=false, reportUnknownArgumentType=false

from collections import defaultdict
from collections.abc import Sequence
from difflib import SequenceMatcher
from itertools import zip_longest
from math import isfinite
from statistics import fmean
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from art_otel.errors import UsageError
from art_otel.store import Wanted
from art_otel.trajectories import Trajectory
from art_otel.trajectories.history import main_history
from art_otel.viewer.addresses import TrajectoryKey, encode_key
from art_otel.viewer.conversation import message_text
from art_otel.viewer.rollout import show_rows
from art_otel.viewer.snapshot import Snapshot

_MOST_TASKS: Final = 500
_MOST_PAIRS: Final = 16
_LONGEST: Final = 2_000
"""Words of a message that are compared one by one; longer ones are shown whole, one after the other."""

_MESSAGES: Final = Wanted(tokens=False)


def list_sides(snapshot: Snapshot) -> dict[str, list[str]]:
    """The sides that can be compared, by their kind; a kind with one value alone has none."""
    outlines = snapshot.outlines
    kinds = {
        "source": [snapshot.sources[number].name for number in sorted(outlines.distinct("source"))],
        "step": list(map(str, sorted(outlines.distinct("shown_training_step")))),
        "version": sorted(outlines.distinct("shown_policy_version"), key=_by_number),
        "model": sorted(outlines.models.counts()),
    }
    return {kind: values for kind, values in kinds.items() if len(values) > 1}


def compare_sides(snapshot: Snapshot, kind: str, left: str, right: str) -> dict[str, Any]:
    """The tasks of two sides, those whose mean reward changed most first. Raises UsageError."""
    sides = [_rows_of(snapshot, kind, value) for value in (left, right)]
    by, column = "group", "recorded_group_id"
    grouped = [_tasks(snapshot, rows, column) for rows in sides]
    if not grouped[0].keys() & grouped[1].keys():
        by = column = "name"
        grouped = [_tasks(snapshot, rows, column) for rows in sides]
    shared = [task for task in grouped[0] if task in grouped[1]]
    tasks = [_task(snapshot, task, [side[task] for side in grouped]) for task in shared]
    tasks.sort(key=lambda task: (task["change"] is None, -abs(task["change"] or 0.0), task["name"]))
    shown = tasks[:_MOST_TASKS]
    for task in shown:
        task["pairs"] = _pairs(snapshot, task.pop("rows"))
    return {
        "by": by,
        "sides": [
            _side(snapshot, np.array([row for task in shared for row in side[task]], np.int64)) for side in grouped
        ],
        "onlyLeft": len(grouped[0]) - len(shared),
        "onlyRight": len(grouped[1]) - len(shared),
        "total": len(tasks),
        "tasks": shown,
    }


def compare_rollouts(snapshot: Snapshot, left: TrajectoryKey, right: TrajectoryKey) -> dict[str, Any]:
    """Two rollouts, message by message of their main histories, with the words that differ. Raises NotFoundError."""
    rows = [snapshot.row_of(left), snapshot.row_of(right)]
    messages = [_messages(trajectory) for trajectory in snapshot.read(rows, _MESSAGES)]
    pairs = [_message_pair(*pair) for pair in zip_longest(*messages)]
    first = next((number for number, pair in enumerate(pairs) if not pair["same"]), None)
    return {"rows": show_rows(snapshot, rows), "messages": pairs, "differsAt": first}


def _rows_of(snapshot: Snapshot, kind: str, value: str) -> NDArray[np.int64]:
    outlines, sides = snapshot.outlines, list_sides(snapshot)
    if value not in sides.get(kind, ()):
        raise UsageError(f"{kind}={value!r:.100}: use one of {', '.join(sides.get(kind, sides))}")
    match kind:
        case "source":
            matches = outlines.equal("source", [source.name for source in snapshot.sources].index(value))
        case "step":
            matches = outlines.equal("shown_training_step", int(value))
        case "version":
            matches = outlines.equal("shown_policy_version", value)
        case _:
            matches = outlines.models.having(value)
    return np.flatnonzero(matches)


def _tasks(snapshot: Snapshot, rows: NDArray[np.int64], column: str) -> dict[str, list[int]]:
    """The rows of each value of the column, in the order of the data."""
    names = snapshot.outlines.column(column).to_pylist()
    tasks: dict[str, list[int]] = defaultdict(list)
    for row in rows.tolist():
        if (name := names[row]) is not None:
            tasks[name].append(row)
    return tasks


def _task(snapshot: Snapshot, task: str, sides: Sequence[list[int]]) -> dict[str, Any]:
    left, right = (_side(snapshot, np.array(rows, np.int64)) for rows in sides)
    before, after = left["reward"], right["reward"]
    names = [snapshot.outlines.column("name")[rows[0]].as_py() for rows in sides]
    return {
        "name": task,
        "says": next((name for name in names if name is not None), None),
        "left": left,
        "right": right,
        "change": None if before is None or after is None else after - before,
        "rows": sides,
    }


def _side(snapshot: Snapshot, rows: NDArray[np.int64]) -> dict[str, Any]:
    """How many rollouts there are, and the means of their rewards, turns and tokens, where they are known."""
    outlines, judgement = snapshot.outlines, snapshot.judging.done()
    rewards = [reward for reward in outlines.column("reward").take(rows).to_pylist() if reward is not None]
    usable = list(filter(isfinite, rewards))
    counted = rows if judgement is None else rows[judgement.counted[rows]]
    return {
        "rollouts": len(rows),
        "reward": fmean(usable) if usable else None,
        "turns": float(outlines.turns[rows].mean()) if len(rows) else None,
        "tokens": None if judgement is None or not len(counted) else float(judgement.sampled[counted].mean()),
    }


def _pairs(snapshot: Snapshot, sides: Sequence[list[int]]) -> list[list[str]]:
    """The keys of the rollouts of a task, the first of one side beside the first of the other."""
    records = [snapshot.outlines.records(rows[:_MOST_PAIRS]) for rows in sides]
    return [[encode_key(TrajectoryKey.of(record)) for record in pair] for pair in zip(*records, strict=False)]


def _messages(trajectory: Trajectory) -> list[tuple[str, str]]:
    """The role and the text of each message of the main history."""
    history = main_history(trajectory)
    if history is None or history.messages is None:
        return []
    return [(entry.role, message_text(entry.message)) for entry in history.messages]


def _message_pair(left: tuple[str, str] | None, right: tuple[str, str] | None) -> dict[str, Any]:
    """Two messages at one place, as runs of words that both have, or one alone."""
    texts = ["" if message is None else message[1] for message in (left, right)]
    return {
        "roles": [message and message[0] for message in (left, right)],
        "same": left == right,
        "words": _difference(*texts),
    }


def _difference(left: str, right: str) -> list[dict[str, str]]:
    """Runs of `same`, `left` and `right` words, whose texts of a side make its text."""
    words = [text.split(" ") for text in (left, right)]
    if max(map(len, words)) > _LONGEST and left != right:
        return [{"kind": "left", "text": left}, {"kind": "right", "text": right}]
    runs: list[dict[str, str]] = []
    old, new = ([f"{word} " for word in side[:-1]] + side[-1:] for side in words)
    for tag, start, end, other_start, other_end in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag == "equal":
            runs.append({"kind": "same", "text": "".join(old[start:end])})
            continue
        for kind, text in (("left", old[start:end]), ("right", new[other_start:other_end])):
            if text:
                runs.append({"kind": kind, "text": "".join(text)})
    return runs


def _by_number(version: str) -> tuple[int, str]:
    """Versions that are numbers in their order, others behind them."""
    return (int(version), "") if version.isdecimal() and len(version) < 18 else (1 << 62, version)
