"""RolloutTrace: what one LLM call saw, did and was worth, as JSON values.

Invariant: the prompt is that of the moment of the call, rewards are raw numbers, and what is unknown is left out of
the record (None) and never invented. The five fields are those of tinker-cookbook's rollout summaries.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from art_otel.calls import Choice, InferenceCall, Message
from art_otel.trajectories.effective_rewards import RewardComponents
from art_otel.trajectories.model import Trajectory

JsonObject: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class RolloutTrace:
    """One call, `span_id`, of a rollout.

    `reward_data` maps names to raw numbers, see `views.reward_components`; `env_state` and `extra` come from the span
    attributes `art.env_state…` and `art.extra…`.
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
        prompt=_prompt(call),
        policy_response=_policy_response(call),
        reward_data=reward_data or None,
        env_state=call.env_state or None,
        extra=call.extra or None,
    )


def _prompt(call: InferenceCall) -> JsonObject | None:
    messages, ids = call.input_messages, call.prompt_token_ids
    if messages is None and ids is None:
        return None
    return _without_none(
        messages=None if messages is None else [_message(message) for message in messages],
        tools=None if call.tools is None else list(call.tools),
        parameters=call.parameters or None,
        model=call.request_model,
        token_ids=None if ids is None else ids.tolist(),
    )


def _policy_response(call: InferenceCall) -> JsonObject | None:
    if call.choices is None and not call.failed:
        return None
    return _without_none(
        id=call.response_id,
        model=call.response_model,
        policy_version=call.policy_version,
        choices=None if call.choices is None else [_choice(choice) for choice in call.choices],
        error_type=call.error_type,
        error=call.error,
    )


def _choice(choice: Choice) -> JsonObject:
    return _without_none(
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


def message_json(message: Message) -> dict[str, Any]:
    """A message of text as OpenAI's chat format has it; what it does not have is left out."""
    calls = [
        _without_none(id=call.id, type="function", function={"name": call.name, "arguments": call.arguments})
        for call in message.tool_calls
    ]
    optional = _without_none(
        name=message.name,
        reasoning_content=message.reasoning,
        refusal=message.refusal,
        tool_calls=calls or None,
        tool_call_id=message.tool_call_id,
    )
    return {"role": message.role, "content": message.content, **optional}


def _without_none(**fields: object) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}
