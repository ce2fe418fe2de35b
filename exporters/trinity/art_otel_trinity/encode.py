"""Encode: trajectories as experiences.

Invariant: over the experiences of a trajectory each completion with tokens is under an action mask exactly once, or
counted with the reason why it is not. Experiences of a run stand in the order in which they were sampled.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Final

from art_otel.exporting import ExportStats, ScoredTrajectory, SpillFile
from art_otel.trajectories import Trajectory
from art_otel_trinity.config import DatabaseConfig, ExperiencesConfig
from art_otel_trinity.experience import Experience
from art_otel_trinity.run import Run, experiences_of
from art_otel_trinity.wire import to_bytes

NAME: Final = "payloads/{:06d}.trxp"


def encode_experiences(
    items: Iterator[ScoredTrajectory], config: DatabaseConfig, stats: ExportStats
) -> Iterator[Experience]:
    """The experiences of one trajectory after the other."""
    for item, run in _numbered(items):
        yield from experiences_of(item, run, config, stats)


def encode_payloads(
    items: Iterator[ScoredTrajectory], config: ExperiencesConfig, stats: ExportStats
) -> Iterator[tuple[str, bytes]]:
    """A payload a task, in the order of their first runs. Experiences wait on disk; memory has those of one task."""
    tasks: dict[tuple[int | str, str], list[int]] = {}
    with SpillFile[list[Experience]]() as spilled:
        for number, (item, run) in enumerate(_numbered(items)):
            experiences = experiences_of(item, run, config, stats)
            if experiences:
                tasks.setdefault((run.batch, run.task), []).append(number)
                spilled[number] = experiences
        for task_number, numbers in enumerate(tasks.values()):
            yield NAME.format(task_number), to_bytes([one for number in numbers for one in spilled[number]])


def _numbered(items: Iterator[ScoredTrajectory]) -> Iterator[tuple[ScoredTrajectory, Run]]:
    """The trajectories, numbered within their tasks."""
    runs = Counter[tuple[int | str, str]]()
    traces: dict[tuple[int | str, str], str] = {}
    for item in items:
        batch, task = _task(item.trajectory, traces)
        yield item, Run(batch, task, runs[batch, task])
        runs[batch, task] += 1


def _task(trajectory: Trajectory, traces: dict[tuple[int | str, str], str]) -> tuple[int | str, str]:
    """Batch and task. Without a group each attempt is a task of its own; Trinity's own word for no batch is "".

    `traces` are those of the attempts met so far: another trace is another run of the same id, not compared with it.
    """
    batch = "" if trajectory.training_step is None else trajectory.training_step
    if trajectory.group_id is not None:
        return batch, trajectory.group_id
    alone = trajectory.rollout_id + (f".attempt-{trajectory.attempt}" if trajectory.attempt else "")
    trace = trajectory.trace_id
    return batch, alone if traces.setdefault((batch, alone), trace) == trace else f"{alone}.{trace}"
