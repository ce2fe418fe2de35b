"""Exported: what exporters write of rollouts, read back, and what encoders give."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow.parquet as pq

from art_otel import batches
from art_otel.exporting import ExportReport, ExportStats, NoOptions, ScoredTrajectory, TurnReward, export
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
    """The records of a format's one file, and the report: of every rollout, unless `choice` says otherwise."""
    with TemporaryDirectory() as folder:
        report = export(rollouts, exporter, folder, format=format, options=options, **EVERY | (choice or {}))
        (path,) = map(Path, report.files)
        if path.suffix == ".parquet":
            return pq.read_table(path).to_pylist(), report
        return [json.loads(line) for line in path.read_bytes().splitlines()], report


def scored(rollouts: Iterable[Trajectory], **choice) -> Iterator[ScoredTrajectory]:
    """The rollouts with the rewards of their turns, as encoders take them; `choice` is as for `batches`."""
    stream = batches(rollouts, **choice)
    return (ScoredTrajectory(trajectory=one, turn_rewards=rewards) for one, rewards in stream.trajectories())


def rewarded(rollouts: Iterable[Trajectory], rewards: Sequence[float | None] = ()) -> Iterator[ScoredTrajectory]:
    """The rollouts with the final reward for each turn, or with these rewards of turns."""
    for one in rollouts:
        yield ScoredTrajectory(
            trajectory=one, turn_rewards=tuple(map(TurnReward, rewards or [one.reward] * len(one.turns)))
        )


def encoded(
    encode: Callable[..., Iterator[Any]],
    items: Iterable[Any],
    config: object = NoOptions(),  # frozen
) -> tuple[list[Any], ExportStats]:
    """What an encoder gives of the items, and what it counted."""
    stats = ExportStats()
    return list(encode(iter(items), config, stats)), stats
