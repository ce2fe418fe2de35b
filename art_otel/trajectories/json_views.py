"""JSON views: a trajectory, and what each of its calls saw, did and was worth, as JSON values.

Invariant of `trajectory_json`, for people and programs that read text: nothing that was recorded is left out, said
twice or rounded. A call has its whole prompt, so its entry in `prompts` has the links and counts; packed ids and
logprobs become lists, bytes become base64 text.

Invariant of `rollout_traces`: the prompt is that of the moment of the call, rewards are raw numbers, and what is
unknown is left out of the record (None) and never invented. The five fields are those of tinker-cookbook's rollout
summaries.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Final, TypeAlias, cast

import msgspec

from art_otel.calls import Choice, InferenceCall, Logprobs, Message, TokenIds
from art_otel.trajectories.effective_rewards import RewardComponents
from art_otel.trajectories.messages import message_json, without_none
from art_otel.trajectories.model import Prompt, Trajectory, Turn

_LEFT_OUT: Final = frozenset({"result", "exception", "children", "prompts", "turns"})
"""What only the live object has, and what is written below in another form."""


def trajectory_json(trajectory: Trajectory) -> dict[str, Any]:
    """The whole trajectory with `complete` beside it; keys are the field names."""
    names = [field.name for field in fields(trajectory) if field.name not in _LEFT_OUT]
    plain = {name: _plain(getattr(trajectory, name)) for name in names}
    prompts = [_prompt(*pair) for pair in zip(trajectory.prompts, trajectory.calls, strict=True)]
    return {**plain, "prompts": prompts, "turns": list(map(_turn, trajectory.turns)), "complete": trajectory.complete}


def _prompt(prompt: Prompt, call: InferenceCall) -> dict[str, object]:
    """A prompt without what its call has whole."""
    repeated = (() if call.input_messages is None else ("messages", "edits")) + (
        () if call.prompt_token_ids is None else ("context_token_ids",)
    )
    return {name: _plain(getattr(prompt, name)) for name in prompt.__struct_fields__ if name not in repeated}


def _turn(turn: Turn) -> dict[str, object]:
    """A turn with the links of its prompt; the prompt itself is in `prompts`."""
    plain = {name: _plain(getattr(turn, name)) for name in turn.__struct_fields__ if name != "prompt"}
    return {**plain, "parent": turn.parent, "token_parent": turn.token_parent}


def _plain(value: object) -> object:
    if isinstance(value, TokenIds | Logprobs):
        return value.tolist()
    if isinstance(value, msgspec.Struct):
        return {name: _plain(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in cast(Mapping[str, object], value).items()}
    if isinstance(value, tuple | list):
        return [_plain(item) for item in cast(Iterable[object], value)]
    return msgspec.to_builtins(value)


JsonObject: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class RolloutTrace:
    """One call, `span_id`, of a rollout.

    `reward_data` maps names to raw numbers, see `effective_rewards.RewardComponents`; `env_state` and `extra` come from
    the span attributes `art.env_state…` and `art.extra…`.
    """

    rollout_id: str
    span_id: str
    prompt: JsonObject | None = None
    policy_response: JsonObject | None = None
    reward_data: Mapping[str, float] | None = None
    env_state: JsonObject | None = None
    extra: JsonObject | None = None


def rollout_traces(trajectory: Trajectory) -> tuple[RolloutTrace, ...]:
    """Give a RolloutTrace for each call, in the order of the calls."""
    components = RewardComponents(trajectory)
    return tuple(_trace(trajectory.rollout_id, call, components.of(call)) for call in trajectory.calls)


def _trace(rollout_id: str, call: InferenceCall, reward_data: Mapping[str, float]) -> RolloutTrace:
    return RolloutTrace(
        rollout_id=rollout_id,
        span_id=call.span_id,
        prompt=_asked(call),
        policy_response=_policy_response(call),
        reward_data=reward_data or None,
        env_state=call.env_state or None,
        extra=call.extra or None,
    )


def _asked(call: InferenceCall) -> JsonObject | None:
    messages, ids = call.input_messages, call.prompt_token_ids
    if messages is None and ids is None:
        return None
    return without_none(
        messages=None if messages is None else [_message(message) for message in messages],
        tools=None if call.tools is None else list(call.tools),
        parameters=call.parameters or None,
        model=call.request_model,
        token_ids=None if ids is None else ids.tolist(),
    )


def _policy_response(call: InferenceCall) -> JsonObject | None:
    if call.choices is None and not call.failed:
        return None
    return without_none(
        id=call.response_id,
        model=call.response_model,
        policy_version=call.policy_version,
        choices=None if call.choices is None else [_choice(choice) for choice in call.choices],
        error_type=call.error_type,
        error=call.error,
    )


def _choice(choice: Choice) -> JsonObject:
    return without_none(
        index=choice.index,
        message=_message(choice.message),
        finish_reason=choice.finish_reason,
        token_ids=None if choice.token_ids is None else choice.token_ids.tolist(),
        logprobs=None if choice.logprobs is None else choice.logprobs.tolist(),
    )


def _message(message: Message) -> JsonObject:
    """The message; where its content is more than text, with the parts as they were recorded."""
    plain = message_json(message)
    return plain if message.parts is None else {**plain, "parts": _parts(message.parts)}


def _parts(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
