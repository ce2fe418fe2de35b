"""Steps: the calls of a trajectory as the steps of a rollout summary, each with its trace.

Invariant: a step is a call, in their order. Its reward is the call's own; a step of the app gives its reward to its
last call, so that their sum is that of both. What an agent or tool in a step was given is neither's.
"""

from typing import Any, Final, TypeAlias, cast

from art_otel.calls import InferenceCall
from art_otel.exporting import Value
from art_otel.trajectories import Reward, RolloutTrace, Trajectory, aggregate, rollout_traces

JsonObject: TypeAlias = dict[str, Any]

REWARD: Final = "reward"
FINAL_REWARD: Final = "final_reward"
"""The name under which `art_otel_tinker.trace_builder` records what the group gave."""

_TRACE: Final = ("prompt", "policy_response", "reward_data", "env_state", "extra")
_STEP_FIELDS: Final = ("metrics", "logs")
"""Parts of `env_state` that a step of tinker-cookbook has fields for."""


def step_records(trajectory: Trajectory, *, traces: bool) -> list[JsonObject]:
    """The steps, one a call, with their traces or without."""
    rewards = call_rewards(trajectory)
    last = len(trajectory.calls) - 1
    steps = [
        _step(number, call, rewards[number], episode_done=number == last)
        for number, call in enumerate(trajectory.calls)
    ]
    if traces:
        for step, call, trace in zip(steps, trajectory.calls, rollout_traces(trajectory), strict=True):
            step["trace"] = _trace(trace, call)
    return steps


def call_rewards(trajectory: Trajectory) -> list[float | None]:
    """Return the reward named `reward` of each call, aggregated if there are several. Shape: (calls,)."""
    of_call: dict[str, list[Reward]] = {}
    of_step: dict[int, list[Reward]] = {}
    calls = {call.span_id: number for number, call in enumerate(trajectory.calls)}
    ends = {call.step: number for number, call in enumerate(trajectory.calls) if call.step is not None}
    for one in trajectory.rewards:
        if one.name != REWARD or one.token_start is not None or one.choice is not None:
            continue
        if one.target in calls:
            of_call.setdefault(one.target, []).append(one)
        elif one.step is not None and one.target_kind is None:
            of_step.setdefault(one.step, []).append(one)
    rewards = [aggregate(of_call.get(call.span_id, ())) for call in trajectory.calls]
    for step, step_rewards in of_step.items():
        value = aggregate(step_rewards)
        if step in ends and value is not None:
            rewards[ends[step]] = value + (rewards[ends[step]] or 0.0)
    return rewards


def _step(number: int, call: InferenceCall, reward: float | None, *, episode_done: bool) -> JsonObject:
    env_fields = {name: _object(call.env_state.get(name)) or {} for name in _STEP_FIELDS}
    return {
        "step_idx": number,
        "ob_len": None if call.prompt_token_ids is None else len(call.prompt_token_ids),
        "ac_len": _sampled_tokens(call),
        "reward": reward,
        "episode_done": episode_done,
        **env_fields,
    }


def _trace(trace: RolloutTrace, call: InferenceCall) -> JsonObject:
    """The five parts, without those that are unknown and what stands in the step already."""
    parts: JsonObject = {name: getattr(trace, name) for name in _TRACE}
    state = call.env_state
    rest = {name: value for name, value in state.items() if name not in _STEP_FIELDS or _object(value) is None}
    return {name: part for name, part in {**parts, "env_state": rest or None}.items() if part is not None}


def _sampled_tokens(call: InferenceCall) -> int | None:
    """Count the sampled tokens of all choices; None if those of one are unknown."""
    lengths = [None if choice.token_ids is None else len(choice.token_ids) for choice in call.choices or ()]
    present = [length for length in lengths if length is not None]
    return sum(present) if present and len(present) == len(lengths) else None


def _object(value: Value) -> dict[str, Value] | None:
    return cast(dict[str, Value], value) if isinstance(value, dict) else None
