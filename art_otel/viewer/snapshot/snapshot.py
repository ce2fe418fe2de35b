"""Snapshot: the data as it was at one moment, and the data that is looked at now.

Invariant: what is read through a snapshot is of its generation, or ReplacedError is raised: never a mixture of two.
"""

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from itertools import groupby
from pathlib import Path
from typing import Final

import numpy as np

from art_otel import storage
from art_otel.errors import ArtOtelError, StoreError
from art_otel.store import Wanted, combine, read_row_group
from art_otel.trajectories import Trajectory
from art_otel.viewer.keys import TrajectoryKey
from art_otel.viewer.problems import NotFoundError, ReplacedError
from art_otel.viewer.snapshot.judging import Judging
from art_otel.viewer.snapshot.outlines import Outlines, read_outlines
from art_otel.viewer.snapshot.search import Search
from art_otel.viewer.snapshot.sources import Mark, Source, find_sources

_WHOLE: Final = Wanted()


@dataclass(frozen=True, kw_only=True, slots=True)
class Snapshot:
    """The outlines of all trajectories, with judgements and searches, which are made when they are asked for."""

    generation: str
    marks: tuple[Mark, ...]
    sources: Sequence[Source]
    outlines: Outlines
    judging: Judging
    search: Search
    orders: dict[tuple[str, bool], "np.ndarray[tuple[int], np.dtype[np.int64]]"] = field(
        default_factory=dict["tuple[str, bool]", "np.ndarray[tuple[int], np.dtype[np.int64]]"]
    )

    def row_of(self, key: TrajectoryKey) -> int:
        """The row of a trajectory. Raises NotFoundError."""
        outlines = self.outlines
        matches = outlines.equal("rollout_id", key.rollout_id) & outlines.equal("trace_id", key.trace_id)
        matches &= outlines.equal("attempt", key.attempt) & outlines.equal("source", key.source)
        rows = np.flatnonzero(matches)
        if not len(rows):
            raise NotFoundError(f"no rollout {key.rollout_id!r:.200} in this data")
        return int(rows[-1])

    def read(self, rows: Sequence[int], wanted: Wanted = _WHOLE) -> list[Trajectory]:
        """Read the trajectories of these rows, in their order. Raises ReplacedError and StoreError."""
        by_row = dict(self._read(sorted(set(rows)), wanted))
        return [by_row[row] for row in rows]

    def _read(self, rows: Sequence[int], wanted: Wanted) -> Iterator[tuple[int, Trajectory]]:
        outlines = self.outlines
        try:
            for group, of_group in groupby(
                rows, key=lambda row: int(np.searchsorted(outlines.starts, row, "right")) - 1
            ):
                members = list(of_group)
                start = int(outlines.starts[group])
                trajectories = read_row_group(outlines.groups[group], wanted, [row - start for row in members])
                yield from zip(members, trajectories, strict=True)
        except (ArtOtelError, IndexError) as error:
            self.check()
            raise error if isinstance(error, ArtOtelError) else StoreError("the file has fewer rows") from error
        self.check()

    def check(self) -> None:
        """Raise ReplacedError where the files are others now."""
        if tuple(source.mark() for source in self.sources) != self.marks:
            raise ReplacedError("the dataset was replaced")


class ViewedData:
    """The data that is looked at, with a snapshot that is taken anew when the files change."""

    def __init__(self, paths: Sequence[str]) -> None:
        self._sources = find_sources(paths)
        self._lock = threading.Lock()
        self._snapshot = self._take()

    @property
    def snapshot(self) -> Snapshot:
        """The data as it is now, read again where it changed. Raises StoreError."""
        with self._lock:
            if tuple(source.mark() for source in self._sources) != self._snapshot.marks:
                self._snapshot.judging.close()
                self._snapshot = self._take()
            return self._snapshot

    def without_paths(self, text: str) -> str:
        """Replace the paths in a text by the names of their files and folders."""
        groups = self._snapshot.outlines.groups
        locations = {group.file for group in groups} | {group.dataset for group in groups}
        locations |= {source.path for source in self._sources}
        paths = {Path(location) for location in locations if not storage.is_url(location)}
        paths |= {path.parent for path in paths if path.parent.name}
        whole = {str(each): path.resolve().name for path in paths for each in (path, path.resolve())}
        for url in filter(storage.is_url, locations):
            whole |= {shown: shown.rpartition("/")[2] for shown in (url, storage.shown(url))}
        for path in sorted(whole, key=len, reverse=True):
            text = text.replace(path, whole[path])
        return text

    def close(self) -> None:
        """Stop the judging that still runs."""
        self._snapshot.judging.close()

    def _take(self) -> Snapshot:
        files = [file for number, source in enumerate(self._sources) for file in source.files(number)]
        marks = tuple(source.mark() for source in self._sources)
        combined = combine([file.data for file in files])
        outlines = read_outlines([replace(file, data=data) for file, data in zip(files, combined.files, strict=True)])
        return Snapshot(
            generation=blake2b(repr(marks).encode(), digest_size=8).hexdigest(),
            marks=marks,
            sources=self._sources,
            outlines=outlines,
            judging=Judging(combined, len(outlines)),
            search=Search(outlines),
        )
