"""Groups: trajectories as the groups that ART trains on, a `TrajectoryGroup` a line as ART's `model_dump` writes it.

Invariant: the members of a group of one training step are in one line, in their order, whatever comes between them.
Groups are in the order of their first members; a trajectory without a group id is a group of its own. Over the
histories of a trajectory, each completion to train is a Choice exactly once. A Choice has logprobs exactly if the ids
of its prompt, its own ids and as many finite logprobs of the policy are known: ART trains on exactly these. What ART
cannot take is counted, and only then left out.

Source: `art.preprocessing.tokenize` of openpipe-art 0.5.23, which fails on logprobs without `prompt_token_ids` and
`token_ids`, and of 0.5.18, which reads ids of `token_id:<id>` instead.
"""

import logging
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from art_otel import attributes as names
from art_otel import batches
from art_otel.exporting import (
    ExportStats,
    JsonObject,
    ScoredTrajectory,
    SpillFile,
    Value,
    is_function,
    policy_number,
    unrewarded,
)
from art_otel.store import art_metadata
from art_otel.trajectories import (
    Call,
    GroupKey,
    History,
    Trajectory,
    TrajectoryGroup,
    Turn,
    chat_message,
    first_and_last_known,
    histories,
    is_text,
    main_history,
)
from art_otel_art.read import make_group

FAILED: Final = "trajectories that ended with an error, written as exceptions of their groups"
UNKNOWN: Final = "histories with messages that were not recorded"
NO_ROLE: Final = "completions whose role is not assistant"
OTHER_TOOLS: Final = "histories whose tools changed, written with the tools of the last call"
NO_FUNCTION: Final = "tools that are not functions, left out"
NO_NUMBER: Final = "metrics that are not finite, left out"
NO_VERSION: Final = "policy versions that are not whole numbers, left out"
NESTED: Final = "metadata that is not a scalar, written as JSON text"
NOT_TRAINED: Final = "completions without token ids and logprobs, which ART does not train on"
NO_PROMPT_IDS: Final = "completions without the token ids of their prompt, which ART does not train on"
CONSTRAINED: Final = (
    "completions sampled under a grammar, whose logprobs are not the policy's, which ART does not train on"
)
NO_FINISH_REASON: Final = "unknown finish reasons written as stop or tool_calls"
NO_ID: Final = "tool calls without an id, which got an empty one"
NO_PARTS: Final = "content of sampled messages other than text, left out"
NO_TOOL_CALLS: Final = "tool calls left out, because the sampled tokens hold them"

_FINISH_REASONS: Final = ("stop", "length", "tool_calls", "content_filter", "function_call")
_EMPTY: Final = dict.fromkeys(("refusal", "annotations", "audio", "function_call", "tool_calls"))
"""What ART's own dump of a Choice has as null."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class ArtTrajectoriesConfig:
    """Options of `trajectories`."""

    tool_calls: Annotated[
        Literal["keep", "drop"],
        Meta(
            description="for ART 0.5.18 and earlier, which render tool calls again after the sampled tokens that hold"
            " them: drop leaves the tool calls of such messages out"
        ),
    ] = "keep"


class UngroupedError(Exception):
    """ART has no place for the trajectory; the text is the reason."""


def encode_trajectories(
    items: Iterator[ScoredTrajectory], config: ArtTrajectoriesConfig, stats: ExportStats
) -> Iterator[JsonObject]:
    """Give a record for each group. Trajectories wait on disk for the rest of their group; memory holds one group."""
    members: dict[GroupKey | int, list[int]] = {}
    with SpillFile[tuple[str, bytes]]() as spilled:
        for number, item in enumerate(items):
            try:
                field, member = _member(item, config, stats)
            except UngroupedError as error:
                stats.trajectories_skipped[str(error)] += 1
                continue
            members.setdefault(item.trajectory.group_key or number, []).append(number)
            spilled[number] = (field, msgspec.json.encode(member))
        for key, numbers in members.items():
            by_field: dict[str, list[msgspec.Raw]] = {"trajectories": [], "exceptions": []}
            for field, encoded in (spilled[number] for number in numbers):
                by_field[field].append(msgspec.Raw(encoded))
            yield {"trajectories": by_field["trajectories"], **group_fields(_id_of(key), by_field["exceptions"])}


def _id_of(key: GroupKey | int) -> str | None:
    return None if isinstance(key, int) else key.group_id


def art_groups(
    trajectories: Iterable[TrajectoryGroup] | Iterable[Trajectory],
    *,
    allow_incomplete: bool | Iterable[str] = False,
    tool_calls: Literal["keep", "drop"] = "keep",
) -> list[Any]:
    """Give trajectories as `art.TrajectoryGroup`s, which `backend.train` takes.

    They are the groups that `art-otel export` would write and `read_groups` read. Members of one `group_key`
    are a group. A rollout that failed is an exception of its group. What ART cannot train on is left out, with a
    warning that names the reasons. `allow_incomplete` and `tool_calls` are those of `art-otel export`. Raises
    ImportError without ART.
    """
    stats = ExportStats()
    chosen = batches(
        trajectories, advantage=None, allow_incomplete=allow_incomplete, status=None, images="placeholders"
    )
    selected = chosen.of_view("made tokens")
    items = (
        ScoredTrajectory(trajectory=trajectory, turn_rewards=rewards) for trajectory, rewards in selected.trajectories()
    )
    records = encode_trajectories(items, ArtTrajectoriesConfig(tool_calls=tool_calls), stats)
    groups = [make_group(msgspec.json.decode(msgspec.json.encode(record))) for record in records]
    skipped = Counter(selected.report.trajectories_skipped) + stats.trajectories_skipped
    if skipped:
        reasons = ", ".join(f"{reason}: {count}" for reason, count in skipped.items())
        logger.warning("art-otel: %d trajectories are not given to ART (%s)", skipped.total(), reasons)
    return groups


def group_fields(group_id: str | None, exceptions: Iterable[msgspec.Raw] = ()) -> JsonObject:
    """Give what ART's group has beside its trajectories."""
    return {
        "exceptions": list(exceptions),
        "metadata": {} if group_id is None else {names.GROUP_ID: group_id},
        "metrics": {},
        "logs": [],
    }


def _member(item: ScoredTrajectory, config: ArtTrajectoriesConfig, stats: ExportStats) -> tuple[str, JsonObject]:
    """Return the field of the group that the trajectory belongs to, and what is written there. Raises RefusedError."""
    trajectory = item.trajectory
    if trajectory.status == "ok":
        reward = _one_reward(item)
        is_dropping = config.tool_calls == "drop"
        return "trajectories", art_trajectory(item, reward, stats, drop_tool_calls=is_dropping)
    stats.changed[FAILED] += 1
    # An `art.trajectories.PydanticException`; spans have no traceback that ART could show.
    return "exceptions", {"type": trajectory.status, "message": trajectory.error or trajectory.status, "traceback": ""}


def _one_reward(item: ScoredTrajectory) -> float:
    """Return the reward that all turns have. Raises RefusedError if there is no such reward."""
    if not item.turn_rewards:
        raise UngroupedError("nothing sampled")
    rewards = {turn.reward for turn in item.turn_rewards}
    if len(rewards) > 1:
        raise UngroupedError("turns with different rewards, but ART has one per trajectory")
    (reward,) = rewards
    if reward is None:
        raise UngroupedError(unrewarded(item.trajectory) or "no reward")
    return reward


def art_trajectory(
    item: ScoredTrajectory, reward: float | None, stats: ExportStats, *, drop_tool_calls: bool = False
) -> JsonObject:
    """Give the trajectory as `art.Trajectory.model_dump` does, its main history first. Raises RefusedError."""
    trajectory = item.trajectory
    main = main_history(trajectory)
    if main is None:
        raise UngroupedError("nothing sampled")
    others = [path for path in histories(trajectory) if path.turns != main.turns]
    recorded = [path for path in others if path.messages is not None]
    stats.skipped[UNKNOWN] += len(others) - len(recorded) + (main.messages is None)
    if main.messages is None:
        raise UngroupedError("messages unknown")
    trained = _trained_turns(item, stats)
    main_fields, *additional = [
        _history(trajectory, path, trained, stats, drop_tool_calls=drop_tool_calls) for path in (main, *recorded)
    ]
    return {
        **main_fields,
        "additional_histories": additional,
        "reward": reward,
        **_versions(trajectory, stats),
        "metrics": _metrics(trajectory.metrics, stats),
        "metadata": _metadata(trajectory, stats),
        "logs": list(trajectory.logs),
    }


def _trained_turns(item: ScoredTrajectory, stats: ExportStats) -> set[int]:
    """The turns that ART trains: by their ids, and those without ids by their text, which ART tokenizes itself."""
    turns = item.trajectory.turns
    untrained = [turn.tokens_untrained if turn.has_tokens else turn.text_untrained for turn in turns]
    reasons = {turn: item.turn_rewards[turn].skipped for turn in range(len(turns)) if untrained[turn] is None}
    stats.skipped.update(reason for reason in reasons.values() if reason is not None)
    return {turn for turn, reason in reasons.items() if reason is None}


def _history(
    trajectory: Trajectory, path: History, trained: set[int], stats: ExportStats, *, drop_tool_calls: bool
) -> JsonObject:
    """Give a history: Choices for turns that it is the first to train, plain messages elsewhere."""
    messages: list[JsonObject] = []
    for entry in path.messages or ():
        choice = None
        if entry.turn in trained:
            trained.remove(entry.turn)
            turn = trajectory.turns[entry.turn]
            choice = _choice(trajectory.calls[turn.call], turn, stats, drop_tool_calls=drop_tool_calls)
            stats.skipped[NO_ROLE] += choice is None
        messages.append(chat_message(entry.message) if choice is None else choice)
    return {"messages_and_choices": messages, "tools": _tools(trajectory, path, stats)}


def _choice(call: Call, turn: Turn, stats: ExportStats, *, drop_tool_calls: bool) -> JsonObject | None:
    """Give the Choice of a turn that is trained; None if its role is not assistant, for which ART has no Choice."""
    message = turn.message
    if message is None or message.role != "assistant":
        return None
    chat = chat_message(message)
    if not is_text(message):
        stats.changed[NO_PARTS] += 1
        chat["content"] = message.content
    tokens = _tokens(call, turn, stats)
    if tokens and "tool_calls" in chat and drop_tool_calls:
        stats.changed[NO_TOOL_CALLS] += 1
        del chat["tool_calls"]
    reason = turn.finish_reason
    if reason not in _FINISH_REASONS:
        stats.changed[NO_FINISH_REASON] += 1
        reason = "tool_calls" if message.tool_calls else "stop"
    tool_calls: list[JsonObject] = chat.get("tool_calls", [])
    for tool_call in tool_calls:
        if "id" not in tool_call:
            stats.changed[NO_ID] += 1
            tool_call["id"] = ""
    return {"finish_reason": reason, "index": turn.choice, "logprobs": None, "message": _EMPTY | chat, **tokens}


def _tokens(call: Call, turn: Turn, stats: ExportStats) -> JsonObject:
    """Give what ART trains on: ids of the prompt, ids and logprobs of the completion. Empty if one is unknown."""
    ids, logprobs = turn.token_ids, turn.logprobs
    if not ids or logprobs is None or len(ids) != len(logprobs) or not all(map(math.isfinite, logprobs)):
        stats.changed[NOT_TRAINED] += 1
        return {}
    if call.prompt_token_ids is None:
        stats.changed[NO_PROMPT_IDS] += 1
        return {}
    if call.has_masked_logprobs:
        stats.changed[CONSTRAINED] += 1
        return {}
    content: list[JsonObject] = [
        {"token": f"token_id:{token}", "bytes": None, "logprob": logprob, "top_logprobs": []}
        for token, logprob in zip(ids, logprobs, strict=True)
    ]
    return {
        "logprobs": {"content": content, "refusal": None},
        "prompt_token_ids": call.prompt_token_ids.tolist(),
        "token_ids": ids.tolist(),
    }


def _tools(trajectory: Trajectory, path: History, stats: ExportStats) -> list[Value] | None:
    """Return the tools of the last call that says which it had."""
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
    """Give the user's metadata, and what ART has no field for under the names of our attributes."""
    metadata, nested = art_metadata(trajectory.metadata)
    stats.changed[NESTED] += len(nested)
    ours = {
        names.ROLLOUT_ID: trajectory.rollout_id,
        names.ROLLOUT_NAME: trajectory.name,
        names.ROLLOUT_ATTEMPT: trajectory.attempt,
        names.GROUP_ID: trajectory.group_id,
        names.SPLIT: trajectory.split,
        names.TRAINING_STEP: trajectory.training_step,
    }
    return metadata | {name: value for name, value in ours.items() if value is not None}
