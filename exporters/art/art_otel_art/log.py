"""Log: trajectories in the files of ART's run folder.

Invariant: a file holds the trajectories of its split and step and no others. ART reads it whole, and so does art-otel.
ART's older columns come first, then ours, then those of ART's second Parquet format. From 0.5.20 on, ART reads only
these last ones. They hold each Choice as the format `trajectories` has it, with the token ids of prompt and completion.

Source: `art.utils.trajectory_logging` of openpipe-art 0.5.23. Its reader wants the groups of a file, and the
trajectories of each group, numbered from 0.
"""

# pyarrow ships no types.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, BinaryIO, Final, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import Meta

from art_otel.errors import UsageError
from art_otel.exporting import (
    DefaultSplit,
    ExportStats,
    ScoredTrajectory,
    SpillFile,
    check_place,
    unrewarded,
    whole_file,
)
from art_otel.runlog import checked_name
from art_otel.store import check_replaceable, write_part
from art_otel.trajectories import GroupKey, Trajectory
from art_otel_art.groups import UngroupedError, art_trajectory, group_fields

NO_SPLIT: Final = "trajectories without a split put into the one of the options"
NO_STEP: Final = "trajectories without a training step put into the one of the options"

_VERSION: Final = 2
_VERSION_KEY: Final = b"art.trajectory_parquet.version"
_ART_COLUMNS: Final = (
    ("format_version", pa.int16()),
    ("trajectory_index", pa.int64()),
    ("group_json", pa.large_string()),
    ("trajectory_json", pa.large_string()),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class LogConfig:
    """Options of `log`."""

    split: DefaultSplit = "train"
    step: Annotated[int, Meta(ge=0, description="the training step of trajectories that have none")] = 0


class Logged(NamedTuple):
    """A trajectory, the split and step of its file, and what ART trains on of it, as JSON."""

    split: str
    step: int
    trajectory: Trajectory
    art_json: bytes


def encode_log(items: Iterator[ScoredTrajectory], config: LogConfig, stats: ExportStats) -> Iterator[Logged]:
    """Give every trajectory that ART trains on and whose split can be a folder."""
    for item in items:
        trajectory = item.trajectory
        split, step = trajectory.split, trajectory.training_step
        try:
            _check(trajectory)
            art_json = msgspec.json.encode(art_trajectory(item, trajectory.reward, stats))
        except UngroupedError as error:
            stats.trajectories_skipped[str(error)] += 1
            continue
        stats.changed[NO_SPLIT] += split is None
        stats.changed[NO_STEP] += step is None
        # What only the process of a gathered rollout has may be no value that can wait on disk.
        recorded = replace(trajectory, result=None, exception=None, children=())
        yield Logged(
            split=config.split if split is None else split,
            step=config.step if step is None else step,
            trajectory=recorded,
            art_json=art_json,
        )


@dataclass(frozen=True, slots=True)
class LogFolder:
    """The sink: `trajectories/{split}/{step:04d}.parquet` below a folder. Trajectories wait on disk for their file."""

    suffix: str = ""

    def write(self, records: Iterator[Logged], out: Path) -> tuple[int, tuple[Path, ...]]:
        """Write the files, replacing those of the same split and step. Raises UsageError before it replaces any."""
        files: dict[Path, list[tuple[tuple[str, int, str], int]]] = {}
        count = 0
        with SpillFile[Logged]() as spilled:
            for record in records:
                spilled[count] = record
                path = out / "trajectories" / checked_name("split", record.split) / f"{record.step:04d}.parquet"
                files.setdefault(path, []).append((record.trajectory.order, count))
                count += 1
            for path in files:
                check_place(path)
            check_replaceable(files)
            for path, members in files.items():
                with TemporaryDirectory() as folder, whole_file(path) as file:
                    rows = Path(folder) / "rows.parquet"
                    numbers = [number for _, number in sorted(members)]
                    write_part((spilled[number].trajectory for number in numbers), rows, 0)
                    _add_art_columns(rows, (spilled[number] for number in numbers), file)
        return count, tuple(files)


def _check(trajectory: Trajectory) -> None:
    """Raise RefusedError for a trajectory that has no reward or no place in the folder."""
    reason = unrewarded(trajectory)
    if reason is not None:
        raise UngroupedError(reason)
    if trajectory.training_step is not None and trajectory.training_step < 0:
        raise UngroupedError("a training step below 0")
    try:
        checked_name("split", "train" if trajectory.split is None else trajectory.split)
    except UsageError as error:
        raise UngroupedError("a split that cannot be a folder") from error


def _add_art_columns(rows: Path, records: Iterable[Logged], file: BinaryIO) -> None:
    """Write the rows, which are those of the records in their order, with the columns of ART's second format."""
    source = pq.ParquetFile(rows)
    metadata = {**(source.metadata.metadata or {}), _VERSION_KEY: str(_VERSION).encode()}
    schema = pa.schema([*source.schema_arrow, *_ART_COLUMNS], metadata=metadata)
    added = _art_rows(records)
    with pq.ParquetWriter(file, schema, compression="zstd") as writer:
        for number in range(source.num_row_groups):
            table = source.read_row_group(number)
            columns = dict(zip(source.schema_arrow.names, table.columns, strict=True))
            values = zip(*(next(added) for _ in range(table.num_rows)), strict=True)
            for name, column in zip(_ArtRow._fields, values, strict=True):
                columns[name] = pa.array(column, schema.field(name).type)
            writer.write_table(pa.table(columns, schema=schema))


class _ArtRow(NamedTuple):
    """What ART's reader takes of a row, by the names of its columns; the first two replace those of `rows`."""

    group_index: int
    group_metadata: str | None
    format_version: int
    trajectory_index: int
    group_json: str
    trajectory_json: str


def _art_rows(records: Iterable[Logged]) -> Iterator[_ArtRow]:
    """Number the groups as they come, and the trajectories of each. One without a group is a group of its own."""
    groups: dict[GroupKey | int, int] = {}
    members = Counter[int]()
    for number, record in enumerate(records):
        group = groups.setdefault(record.trajectory.group_key or number, len(groups))
        fields = group_fields(record.trajectory.group_id)
        yield _ArtRow(
            group_index=group,
            group_metadata=_json_text(fields["metadata"]) if fields["metadata"] else None,
            format_version=_VERSION,
            trajectory_index=members[group],
            group_json=_json_text(fields),
            trajectory_json=record.art_json.decode(),
        )
        members[group] += 1


def _json_text(value: object) -> str:
    return msgspec.json.encode(value).decode()
