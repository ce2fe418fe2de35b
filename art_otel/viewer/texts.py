"""Texts: what a rollout was asked, what its last failed tool said, and what it said last, in a line each, for lists.

Invariant: all are of the root agent; they are cut, and null where nobody recorded them.
"""

from collections.abc import Sequence
from typing import Any, Final

from art_otel.store import Wanted
from art_otel.trajectories import Trajectory
from art_otel.viewer.alignment import messages_of
from art_otel.viewer.conversation import failure_in
from art_otel.viewer.snapshot import Snapshot

_LONGEST: Final = 200
_MESSAGES: Final = Wanted(tokens=False)


def show_texts(snapshot: Snapshot, rows: Sequence[int]) -> list[dict[str, Any]]:
    """What was asked and said last in each of these rows. Raises ReplacedError and StoreError."""
    missing = [row for row in rows if row not in snapshot.texts]
    snapshot.texts.update(zip(missing, map(_texts, snapshot.read(missing, _MESSAGES)), strict=True))
    return [snapshot.texts[row] for row in rows]


def _texts(trajectory: Trajectory) -> dict[str, Any]:
    messages = messages_of(trajectory)
    asked = next((one for one in messages if one.role == "user"), None)
    answer = next((one for one in reversed(messages) if one.turn is not None), None)
    return {
        "asked": None if asked is None else " ".join(asked.text.split())[:_LONGEST],
        "failed": next(filter(None, (failure_in(one.text) for one in reversed(messages) if one.role == "tool")), None),
        "answer": None if answer is None else _end(" ".join((answer.answer or answer.text).split())),
        "turn": None if answer is None else answer.turn,
    }


def _end(text: str) -> str:
    return text if len(text) <= _LONGEST else f"…{text[-_LONGEST:]}"
