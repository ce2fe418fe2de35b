"""Exported: what exporters write of rollouts, read back, and what encoders give."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow.parquet as pq

from art_otel import batches
from art_otel.data.selection import View
from art_otel.exporting import ExportReport, ExportStats, NoOptions, NothingToExportError, ScoredTrajectory, export
from art_otel.trajectories import Trajectory

EVERY = {"allow_incomplete": True, "status": ("ok", "error", "cancelled", "unfinished")}


def read_back(
    exporter: str,
    rollouts: Iterable[Trajectory],
    *,
    format: str | None = None,  # noqa: A002 # as `export` calls it
    choice: dict | None = None,
    **options,
) -> tuple[list[dict[str, Any]], ExportReport]:
    """The records of a format's one file, if there is one, and the report: of every rollout, or as `choice` says."""
    with TemporaryDirectory() as folder:
        try:
            report = export(rollouts, exporter, folder, format=format, options=options, **EVERY | (choice or {}))
        except NothingToExportError as nothing:
            return [], nothing.report
        (path,) = map(Path, report.files)
        if path.suffix == ".parquet":
            return pq.read_table(path).to_pylist(), report
        return [json.loads(line) for line in path.read_bytes().splitlines()], report


def scored(rollouts: Iterable[Trajectory], view: View = "tokens", **choice) -> Iterator[ScoredTrajectory]:
    """The rollouts with the rewards of their turns, as encoders take them; `choice` is as for `batches`."""
    stream = batches(rollouts, **choice).of_view(view)
    return (ScoredTrajectory(trajectory=one, turn_rewards=rewards) for one, rewards in stream.trajectories())


def rewarded(
    rollouts: Iterable[Trajectory], rewards: Sequence[float | None] = (), view: View = "text"
) -> Iterator[ScoredTrajectory]:
    """The rollouts with the final reward for each turn, or with these rewards of turns."""
    for item in scored(rollouts, view, advantage=None, images="placeholders", split="*", models="*", **EVERY):
        given = rewards or [item.trajectory.reward] * len(item.turn_rewards)
        turns = (turn._replace(reward=reward) for turn, reward in zip(item.turn_rewards, given, strict=True))
        yield ScoredTrajectory(trajectory=item.trajectory, turn_rewards=tuple(turns))


def encoded(
    encode: Callable[..., Iterator[Any]],
    items: Iterable[Any],
    config: object = NoOptions(),  # frozen
) -> tuple[list[Any], ExportStats]:
    """What an encoder gives of the items, and what it counted."""
    stats = ExportStats()
    return list(encode(iter(items), config, stats)), stats


def usable(rollouts: Iterable[Trajectory]) -> list[Trajectory]:
    """The rollouts that encoders get: those without a reward that is no usable number."""
    return [item.trajectory for item in rewarded(rollouts)]
