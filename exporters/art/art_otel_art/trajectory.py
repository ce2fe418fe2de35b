"""ArtTrajectory: a trajectory as `art.Trajectory.model_dump` writes it.

Invariant: over the histories of a trajectory each completion to train is a Choice exactly once. What ART would not
take is noted, and only then left out.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

from art_otel import attributes as names
from art_otel.exporting import ExportStats, TurnReward, Value, is_function, policy_number, unrewarded
from art_otel.store import art_metadata
from art_otel.trajectories import History, Trajectory, chat_message, first_and_last_known, histories, main_history
from art_otel_art.config import TrajectoriesConfig
from art_otel_art.messages import art_choice

JsonObject: TypeAlias = dict[str, Any]

UNKNOWN: Final = "histories with messages that nobody recorded"
NO_ROLE: Final = "completions that are not the assistant's"
OTHER_TOOLS: Final = "histories whose tools changed, written with those of the last call"
NO_FUNCTION: Final = "tools that are no function left out"
NO_NUMBER: Final = "metrics that are no finite number left out"
NO_VERSION: Final = "policy versions that are no whole number left out"
NESTED: Final = "metadata that is no scalar written as JSON text"


class RefusedError(Exception):
    """ART has no place for the trajectory; the text is the reason."""


def art_trajectory(
    trajectory: Trajectory, reward: float | None, config: TrajectoriesConfig, stats: ExportStats
) -> JsonObject:
    """The trajectory, its longest history first. Raises RefusedError."""
    main = main_history(trajectory)
    if main is None:
        raise RefusedError("nothing sampled")
    others = [path for path in histories(trajectory) if path.turns != main.turns]
    recorded = [path for path in others if path.messages is not None]
    stats.skipped[UNKNOWN] += len(others) - len(recorded) + (main.messages is None)
    if main.messages is None:
        raise RefusedError("messages unknown")
    return {
        **_history(trajectory, main, config, stats),
        "additional_histories": [_history(trajectory, path, config, stats) for path in recorded],
        "reward": reward,
        **_versions(trajectory, stats),
        "metrics": _metrics(trajectory.metrics, stats),
        "metadata": _metadata(trajectory, stats),
        "logs": list(trajectory.logs),
    }


def one_reward(trajectory: Trajectory, turn_rewards: Sequence[TurnReward]) -> float:
    """The one reward that all turns have. Raises RefusedError."""
    if not turn_rewards:
        raise RefusedError("nothing sampled")
    rewards = {one.reward for one in turn_rewards}
    if len(rewards) > 1:
        raise RefusedError("turns of different rewards, where ART has one a trajectory")
    reward = next(iter(rewards), None)
    if reward is None:
        raise RefusedError(unrewarded(trajectory) or "no reward")
    return reward


def _history(trajectory: Trajectory, path: History, config: TrajectoriesConfig, stats: ExportStats) -> JsonObject:
    messages: list[JsonObject] = []
    for entry in path.messages or ():
        choice = None
        if entry.trained and entry.turn is not None:
            turn = trajectory.turns[entry.turn]
            choice = art_choice(trajectory.calls[turn.call], turn, config, stats)
            stats.skipped[NO_ROLE] += choice is None
        messages.append(chat_message(entry.message) if choice is None else choice)
    return {"messages_and_choices": messages, "tools": _tools(trajectory, path, stats)}


def _tools(trajectory: Trajectory, path: History, stats: ExportStats) -> list[Value] | None:
    calls = (trajectory.calls[trajectory.turns[turn].call] for turn in path.turns)
    tool_lists = [call.tools for call in calls if call.tools is not None]
    if not tool_lists:
        return None
    stats.changed[OTHER_TOOLS] += any(tools != tool_lists[-1] for tools in tool_lists)
    functions = [tool for tool in tool_lists[-1] if is_function(tool)]
    stats.changed[NO_FUNCTION] += len(tool_lists[-1]) - len(functions)
    # ART's own history of a request without tools has None.
    return functions or None


def _versions(trajectory: Trajectory, stats: ExportStats) -> JsonObject:
    versions = first_and_last_known(trajectory)
    texts = () if versions is None else (versions.first, versions.last)
    numbers = [policy_number(text) for text in texts]
    stats.changed[NO_VERSION] += numbers.count(None)
    first, last = numbers or (None, None)
    return {"initial_policy_version": first, "final_policy_version": last}


def _metrics(metrics: Mapping[str, float], stats: ExportStats) -> dict[str, float]:
    finite = {name: value for name, value in metrics.items() if math.isfinite(value)}
    stats.changed[NO_NUMBER] += len(metrics) - len(finite)
    return finite


def _metadata(trajectory: Trajectory, stats: ExportStats) -> JsonObject:
    """The user's metadata, and what ART has no field for under the names of our attributes."""
    metadata, nested = art_metadata(trajectory.metadata)
    stats.changed[NESTED] += len(nested)
    return metadata | dict(_our_fields(trajectory))


def _our_fields(trajectory: Trajectory) -> Iterator[tuple[str, str | int]]:
    fields = {
        names.ROLLOUT_ID: trajectory.rollout_id,
        names.ROLLOUT_NAME: trajectory.name,
        names.ROLLOUT_ATTEMPT: trajectory.attempt,
        names.GROUP_ID: trajectory.group_id,
        names.SPLIT: trajectory.split,
        names.TRAINING_STEP: trajectory.training_step,
    }
    yield from ((name, value) for name, value in fields.items() if value is not None)
