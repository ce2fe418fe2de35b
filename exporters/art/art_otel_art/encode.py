"""Encode: trajectories that come one by one, as the groups that ART trains on.

Invariant: members of a group of one training step stand in one line, whatever stood between them, in their order;
groups stand in the order of their first members. A trajectory without a group is one of its own.
"""

from collections.abc import Iterator
from typing import Any, Final, TypeAlias

import msgspec

from art_otel import attributes as names
from art_otel.exporting import ExportStats, ScoredTrajectory, SpillFile
from art_otel.trajectories import Trajectory
from art_otel_art.config import TrajectoriesConfig
from art_otel_art.trajectory import RefusedError, art_trajectory, one_reward

JsonObject: TypeAlias = dict[str, Any]

FAILED: Final = "trajectories that did not end well, written as exceptions of their groups"


def encode_trajectories(
    items: Iterator[ScoredTrajectory], config: TrajectoriesConfig, stats: ExportStats
) -> Iterator[JsonObject]:
    """A group a record. Trajectories wait on disk for the others of their group; memory has one group."""
    members: dict[tuple[str | None, int | None], list[int]] = {}
    with SpillFile[tuple[str, bytes]]() as spilled:
        for number, item in enumerate(items):
            try:
                field, member = _member(item, config, stats)
            except RefusedError as error:
                stats.trajectories_skipped[str(error)] += 1
                continue
            # A group without an id has a number of its own.
            group, step = item.trajectory.group_id, item.trajectory.training_step
            members.setdefault((group, number if group is None else step), []).append(number)
            spilled[number] = (field, msgspec.json.encode(member))
        for (group_id, _), numbers in members.items():
            yield _group(group_id, [spilled[number] for number in numbers])


def _member(item: ScoredTrajectory, config: TrajectoriesConfig, stats: ExportStats) -> tuple[str, JsonObject]:
    """The field of the group that holds the member, and the member."""
    if item.trajectory.status != "ok":
        stats.changed[FAILED] += 1
        return "exceptions", _exception(item.trajectory)
    reward = one_reward(item.trajectory, item.turn_rewards)
    return "trajectories", art_trajectory(item.trajectory, reward, config, stats)


def _exception(trajectory: Trajectory) -> JsonObject:
    """Write an error as `art.trajectories.PydanticException`; nobody recorded a traceback."""
    return {"type": trajectory.status, "message": trajectory.error or trajectory.status, "traceback": ""}


def _group(group_id: str | None, members: list[tuple[str, bytes]]) -> JsonObject:
    # JSON of a trajectory goes into the line as it is.
    return {
        "trajectories": [msgspec.Raw(member) for field, member in members if field == "trajectories"],
        **group_fields(group_id),
        "exceptions": [msgspec.Raw(member) for field, member in members if field == "exceptions"],
    }


def group_fields(group_id: str | None) -> JsonObject:
    """What ART's group has beside its trajectories."""
    return {
        "exceptions": [],
        "metadata": {} if group_id is None else {names.GROUP_ID: group_id},
        "metrics": {},
        "logs": [],
    }
