"""Labels: notes, labels and corrected rewards that people give on the page, kept beside the dataset.

Invariant: the file `_labels.jsonl` in a dataset's folder is a file of rewards as `art-otel convert` reads it, and it is
only ever appended to, and only where every line of it is one of ours. A label is a score of its name, 1.0, and 0.0
once it is taken away; a note is the explanation of one named `note`; a corrected reward is a reward named `reward`.
Of several lines of one name the last counts.
"""

import os
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, BinaryIO, Final, TypeAlias

import msgspec

from art_otel.attributes import REWARD_NAME
from art_otel.errors import UsageError

LABELS_NAME: Final = "_labels.jsonl"
NOTE: Final = "note"
_LONGEST: Final = 20_000
_LabelKey: TypeAlias = tuple[int, str, int | None]  # the source's number, the rollout, its attempt


class _LabelLine(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A line of the file."""

    rollout_id: str
    name: str
    value: float | None = None
    label: str | None = None
    explanation: str | None = None
    attempt: int | None = None
    time: int


class Change(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the page sends: a label that is given or taken away, a note, or a corrected reward; any of them."""

    label: Annotated[str, msgspec.Meta(min_length=1, max_length=100)] | None = None
    on: bool = True
    note: Annotated[str, msgspec.Meta(max_length=_LONGEST)] | None = None
    reward: float | None = None


@dataclass(slots=True)
class Labeled:
    """What was given to one rollout: an empty note is none."""

    labels: dict[str, None]
    note: str = ""
    reward: float | None = None


class Labels:
    """The labels of the datasets in these folders (None: what is no local folder has none), written where they may be.

    A file that changed is read again.
    """

    def __init__(self, folders: Sequence[Path | None], *, writable: bool) -> None:
        self._files = [None if folder is None else folder / LABELS_NAME for folder in folders]
        self._lock = threading.Lock()
        self._read: dict[Path, tuple[tuple[int, int], list[_LabelLine] | None]] = {}
        self.writable = writable and any(self._files)

    def all(self) -> dict[_LabelKey, Labeled]:
        """What was given, by source, rollout and attempt. A file that is not ours gives nothing."""
        labeled: dict[_LabelKey, Labeled] = {}
        for source, file in enumerate(self._files):
            for line in (file and self._lines(file)) or ():
                one = labeled.setdefault((source, line.rollout_id, line.attempt), Labeled(labels={}))
                if line.name == NOTE:
                    one.note = line.explanation or ""
                elif line.name == REWARD_NAME:
                    one.reward = line.value
                elif line.value:
                    one.labels[line.name] = None
                else:
                    one.labels.pop(line.name, None)
        return labeled

    def give(self, source: int, rollout_id: str, attempt: int | None, change: Change) -> None:
        """Write it. Raises UsageError where it may not be written, or the file is not ours."""
        if not self.writable:
            raise UsageError("start `art-otel view DATASET --labels` on a dataset's folder to write notes and labels")
        file = self._files[source]
        if file is None:
            raise UsageError("this rollout is not in a dataset folder, where labels are kept")
        if change.label in (NOTE, REWARD_NAME):
            raise UsageError(f"{change.label!r} is no label: there is a field of its own for it")
        now = time.time_ns()

        def line(name: str, **fields: object) -> bytes:
            values = {"rollout_id": rollout_id, "attempt": attempt, "name": name, "time": now, **fields}
            return msgspec.json.encode(msgspec.convert(values, _LabelLine)) + b"\n"

        lines = [
            *([] if change.label is None else [line(change.label, value=float(change.on))]),
            *([] if change.note is None else [line(NOTE, label=NOTE, explanation=change.note)]),
            *([] if change.reward is None else [line(REWARD_NAME, value=change.reward)]),
        ]
        with self._lock:
            if file.exists() and self._lines(file) is None:
                raise UsageError(f"{file.name} beside the dataset is not a file of labels; move it away")
            with file.open("a+b") as stream:
                stream.write(_missing_end(stream) + b"".join(lines))
                stream.flush()
                os.fsync(stream.fileno())

    def _lines(self, file: Path) -> list[_LabelLine] | None:
        """The lines of the file, none where there is no file; None where some line is not ours."""
        try:
            status = file.stat()
            mark = (status.st_size, status.st_mtime_ns)
            if file not in self._read or self._read[file][0] != mark:
                self._read[file] = (mark, _decoded(file.read_bytes()))
        except OSError:
            return []
        return self._read[file][1]


def _missing_end(stream: BinaryIO) -> bytes:
    """The newline that the last line lacks, as one that was edited by hand may."""
    if stream.seek(0, os.SEEK_END) == 0:
        return b""
    stream.seek(-1, os.SEEK_END)
    return b"" if stream.read(1) == b"\n" else b"\n"


def _decoded(data: bytes) -> list[_LabelLine] | None:
    try:
        return [msgspec.json.decode(line, type=_LabelLine) for line in data.splitlines() if line.strip()]
    except msgspec.DecodeError:
        return None
