"""Log: trajectories in the files of ART's run folder.

Invariant: a file holds what belongs to its split and step, and nothing else, and is read whole by both sides. ART's
older columns stand first, then ours, then those of ART's second Parquet format: from 0.5.20 on ART reads these alone,
and with them every Choice as `trajectories` has it, with the token ids of prompt and completion.

Source: `art.utils.trajectory_logging` of openpipe-art 0.5.23, whose reader wants the groups of a file numbered from 0,
and the trajectories of each group.
"""

# pyarrow ships no types.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import BinaryIO, Final, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from art_otel.errors import UsageError
from art_otel.exporting import ExportStats, ScoredTrajectory, SpillFile, check_place, unrewarded, whole_file
from art_otel.runlog import checked_name
from art_otel.store import check_replaceable, write_part
from art_otel.trajectories import Trajectory
from art_otel_art.config import LogConfig, TrajectoriesConfig
from art_otel_art.encode import group_fields
from art_otel_art.trajectory import RefusedError, art_trajectory

NO_SPLIT: Final = "trajectories without a split put into the one of the options"
NO_STEP: Final = "trajectories without a training step put into the one of the options"

_VERSION: Final = 2
_VERSION_KEY: Final = b"art.trajectory_parquet.version"
_ART_COLUMNS: Final = pa.schema(
    [
        ("format_version", pa.int16()),
        ("trajectory_index", pa.int64()),
        ("group_json", pa.large_string()),
        ("trajectory_json", pa.large_string()),
    ]
)
_CHOICES: Final = TrajectoriesConfig()


class Logged(NamedTuple):
    """A trajectory, which file it belongs to, and what ART trains on of it, as JSON."""

    split: str
    step: int
    trajectory: Trajectory
    of_art: bytes


def encode_log(items: Iterator[ScoredTrajectory], config: LogConfig, stats: ExportStats) -> Iterator[Logged]:
    """Every trajectory that ART trains on, and whose split can be a folder."""
    for item in items:
        trajectory = item.trajectory
        split, step = trajectory.split, trajectory.training_step
        reason = _reason_against(trajectory)
        if reason is not None:
            stats.trajectories_skipped[reason] += 1
            continue
        try:
            of_art = msgspec.json.encode(art_trajectory(trajectory, trajectory.reward, _CHOICES, stats))
        except RefusedError as error:
            stats.trajectories_skipped[str(error)] += 1
            continue
        stats.changed[NO_SPLIT] += split is None
        stats.changed[NO_STEP] += step is None
        # What a gathered rollout returned lives in its process only.
        kept = replace(trajectory, result=None)
        yield Logged(config.split if split is None else split, config.step if step is None else step, kept, of_art)


def _reason_against(trajectory: Trajectory) -> str | None:
    reason = unrewarded(trajectory)
    if reason is not None:
        return reason
    if trajectory.training_step is not None and trajectory.training_step < 0:
        return "a training step below 0"
    try:
        checked_name("split", "train" if trajectory.split is None else trajectory.split)
    except UsageError:
        return "a split that cannot be a folder"
    return None


@dataclass(frozen=True, slots=True)
class LogFolder:
    """`trajectories/{split}/{step:04d}.parquet` below a folder. Trajectories wait on disk for those of their file."""

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


def _add_art_columns(rows: Path, records: Iterable[Logged], file: BinaryIO) -> None:
    """Write the rows, which are those of the records in their order, with the columns of ART's second format."""
    source = pq.ParquetFile(rows)
    metadata = {**(source.metadata.metadata or {}), _VERSION_KEY: str(_VERSION).encode()}
    schema = pa.schema([*source.schema_arrow, *_ART_COLUMNS], metadata=metadata)
    indexed = _indexed(records)
    with pq.ParquetWriter(file, schema, compression="zstd") as writer:
        for number in range(source.num_row_groups):
            table = source.read_row_group(number)
            columns = dict(zip(source.schema_arrow.names, table.columns, strict=True))
            added = [next(indexed) for _ in range(table.num_rows)]
            writer.write_table(pa.table(columns | _columns(added), schema=schema))


class _Row(NamedTuple):
    """The columns of a row that are ART's alone, by their names."""

    group_index: int
    trajectory_index: int
    group_metadata: str | None
    group_json: str
    trajectory_json: str


def _indexed(records: Iterable[Logged]) -> Iterator[_Row]:
    """Number the groups as they come, and the trajectories of each. One without a group is a group of its own."""
    groups: dict[str | int, int] = {}
    members = Counter[int]()
    for number, record in enumerate(records):
        group_id = record.trajectory.group_id
        group = groups.setdefault(number if group_id is None else group_id, len(groups))
        fields = group_fields(group_id)
        yield _Row(
            group_index=group,
            trajectory_index=members[group],
            group_metadata=_text(fields["metadata"]) if fields["metadata"] else None,
            group_json=_text(fields),
            trajectory_json=record.of_art.decode(),
        )
        members[group] += 1


def _columns(rows: Sequence[_Row]) -> dict[str, pa.Array]:
    columns = {
        name: pa.array(values, _ART_COLUMNS.field(name).type if name in _ART_COLUMNS.names else None)
        for name, values in zip(_Row._fields, zip(*rows, strict=True), strict=True)
    }
    return columns | {"format_version": pa.array([_VERSION] * len(rows), pa.int16())}


def _text(value: object) -> str:
    return msgspec.json.encode(value).decode()
