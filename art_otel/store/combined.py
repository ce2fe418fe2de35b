"""Combining: read the files of several sources together.

    runs/1   rollout a, group task-7          both have a group task-7, but no common rollout: two runs, so
    runs/2   rollout b, group task-7          their groups become two groups with different ids

Invariant: a recording of a rollout (its id, attempt, trace, and start to the millisecond, because some formats are not
finer) is read once, from the first dataset that has it. Rollouts are in one group only if one run, or one gathering,
recorded them. Sources with a common rollout are of one run, other sources of different runs.

A single dataset is not read for this: it is of one run, and several recordings of one rollout are unnumbered attempts.
"""

# pyarrow ships no types.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from typing import Final, NamedTuple

import msgspec

from art_otel import storage
from art_otel.errors import StoreError
from art_otel.store.files import DataFile
from art_otel.store.read import open_parquet, with_group_id
from art_otel.trajectories import GroupKey, Trajectory

_COLUMNS: Final = ("rollout_id", "attempt", "trace_id", "started_at", "training_step", "gathering", "group_id")
_IN_MEMORY: Final = "in memory"
_MILLISECOND: Final = 1_000_000


class Combined(msgspec.Struct, frozen=True, kw_only=True):
    """Files, then trajectories in memory; each rollout once, and each run's groups with different ids.

    `repeated` counts recordings that are left out because an earlier dataset has them. `shared_group_ids` counts group
    ids (in one training step) that several runs use: each run's group then gets an id that ends with the number of the
    run's first source.
    """

    files: Sequence[DataFile] = ()
    trajectories: Sequence[Trajectory] = ()
    repeated: int = 0
    shared_group_ids: int = 0


def combine(files: Sequence[DataFile], trajectories: Sequence[Trajectory] = ()) -> Combined:
    """Combine files with each other and with trajectories in memory. Raises StoreError for unreadable files."""
    if len({file.dataset for file in files}) + bool(trajectories) < 2:
        return Combined(files=files, trajectories=trajectories)
    runs = _Runs()
    repeated_rows = [runs.add(file.source, file.dataset, _keys_in(file)) for file in files]
    repeated_here = set(runs.add(_IN_MEMORY, _IN_MEMORY, enumerate(map(_key_of, trajectories))))
    group_ids, shared = runs.tell_groups_apart()
    return Combined(
        files=[
            msgspec.structs.replace(
                file,
                superseded=tuple(sorted((*file.superseded, *rows))),
                group_ids=group_ids.get(file.source, {}),
            )
            for file, rows in zip(files, repeated_rows, strict=True)
        ],
        trajectories=[
            with_group_id(one, group_ids.get(_IN_MEMORY, {}))
            for number, one in enumerate(trajectories)
            if number not in repeated_here
        ],
        repeated=sum(map(len, repeated_rows)) + len(repeated_here),
        shared_group_ids=shared,
    )


class _CombinedKey(NamedTuple):
    """The key of a recording of a rollout, and the rollout's group."""

    recording: tuple[str, int | None, str, int | None]
    group: GroupKey | None

    @classmethod
    def of(
        cls,
        rollout_id: str,
        attempt: int | None,
        trace_id: str,
        started_at: int | None,
        training_step: int | None,
        gathering: str | None,
        group_id: str | None,
    ) -> "_CombinedKey":
        """Make the key of the values of `_COLUMNS`."""
        start = None if started_at is None else started_at // _MILLISECOND
        group = None if group_id is None else GroupKey(training_step, gathering, group_id)
        return cls((rollout_id, attempt, trace_id, start), group)


class _Runs:
    """The runs of the added sources (a disjoint set over source numbers), and the recordings of each source."""

    def __init__(self) -> None:
        self._sources: dict[str, int] = {}
        self._first_of_run: list[int] = []
        self._recorded: dict[bytes, tuple[int, str]] = {}
        self._sources_of: dict[GroupKey, set[int]] = {}

    def add(self, source: str, dataset: str, keys: Iterable[tuple[int, _CombinedKey]]) -> list[int]:
        """Add the rows of a dataset, and return which of them another dataset has, too."""
        number = self._sources.setdefault(source, len(self._sources))
        self._first_of_run += range(len(self._first_of_run), number + 1)
        repeated: list[int] = []
        for row, key in keys:
            digest = blake2b(repr(key.recording).encode(), digest_size=16).digest()
            first, first_dataset = self._recorded.setdefault(digest, (number, dataset))
            if first_dataset != dataset:
                repeated.append(row)
                self._unite(first, number)
            if key.group is not None:
                self._sources_of.setdefault(key.group, set()).add(number)
        return repeated

    def tell_groups_apart(self) -> tuple[dict[str, dict[GroupKey, str]], int]:
        """The new ids of groups by source, and how many groups get one."""
        names = list(self._sources)
        group_ids: dict[str, dict[GroupKey, str]] = {}
        shared = 0
        for group, sources in self._sources_of.items():
            run_of = {source: self._run(source) for source in sources}
            if group.gathering is None and len(set(run_of.values())) > 1:
                shared += 1
                for source, run in run_of.items():
                    group_ids.setdefault(names[source], {})[group] = f"{group.group_id} (source {run + 1})"
        return group_ids, shared

    def _run(self, source: int) -> int:
        """The first source of the run that the source is of."""
        while self._first_of_run[source] != source:
            source = self._first_of_run[source]
        return source

    def _unite(self, one: int, other: int) -> None:
        first, second = sorted((self._run(one), self._run(other)))
        self._first_of_run[second] = first


def _keys_in(file: DataFile) -> Iterator[tuple[int, _CombinedKey]]:
    """The keys of a file's rows, by the number of the row."""
    with open_parquet(file.location) as parquet:
        table = parquet.read(columns=list(_COLUMNS))
    if file.part is not None and table.num_rows != file.part.rows:
        raise StoreError(f"{storage.shown(file.location)}: was rewritten while it was read; start again")
    superseded = frozenset(file.superseded)
    rows = zip(*(table.column(name).to_pylist() for name in _COLUMNS), strict=True)
    for row, values in enumerate(rows):
        if row not in superseded:
            yield row, _CombinedKey.of(*values)


def _key_of(trajectory: Trajectory) -> _CombinedKey:
    return _CombinedKey.of(*(getattr(trajectory, name) for name in _COLUMNS))
