"""JSON views: messages, whole trajectories, and rollout traces as JSON values.

- `chat_message`: OpenAI's chat format, with the reasoning as `reasoning_content` (the name in vLLM and in Hugging
  Face's templates). Content other than text is a list of parts.
- `trajectory_json`: everything that was recorded, unrounded; each call has its whole prompt and its choices. Packed ids
  and logprobs become lists, bytes become base64 text.
- `rollout_traces`: the five fields of tinker-cookbook's rollout summaries for each call, without unknown values.
"""

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from inspect import cleandoc
from typing import Any, Final, TypeAlias, TypeVar, cast, get_type_hints

import msgspec

from art_otel.calls import TOKEN_FACTS, CallRecord, Logprobs, Message, RoutedExperts, TokenIds, WeightVersion
from art_otel.spans import JsonObject
from art_otel.trajectories.model import Call, End, Reward, TextUntrained, TokensUntrained, Trajectory, aggregate

ChatMessage: TypeAlias = dict[str, Any]
"""`role`, `content` (None, text or a list of parts), and `tool_calls`, `tool_call_id`, … if the message has them."""

_View = TypeVar("_View", bound=msgspec.Struct)

_FILE_FIELDS: Final = {"data": "file_data", "id": "file_id", "file_id": "file_id", "filename": "filename"}


def chat_message(message: Message) -> ChatMessage:
    """Write the message in OpenAI's format, with its reasoning as `reasoning_content`."""
    fields = message_json(message)
    if not is_text(message):
        fields["content"] = [_openai_part(part) for part in _parts(message)]
    return fields


def request_message(message: Message) -> ChatMessage:
    """Write the message for a request: without the reasoning, because not every server accepts it."""
    fields = chat_message(message)
    fields.pop("reasoning_content", None)
    return fields


def is_text(message: Message) -> bool:
    """Whether the message has only text, so that `content` is the whole message."""
    return all(part.get("type") == "text" for part in _parts(message))


def _parts(message: Message) -> list[JsonObject]:
    try:
        decoded = json.loads(message.parts or "[]")
    except (ValueError, RecursionError):
        return []
    parts = cast(list[object], decoded) if isinstance(decoded, list) else []
    return [cast(JsonObject, part) for part in parts if isinstance(part, dict)]


def _openai_part(part: JsonObject) -> JsonObject:
    """A part in OpenAI's format; unchanged if OpenAI has no such part."""
    kind = part.get("type")
    url = f"data:{part.get('mime_type', '')};base64,{part['data']}" if "data" in part else part.get("url")
    if kind == "image" and url is not None:
        detail = {"detail": part["detail"]} if "detail" in part else {}
        return {"type": "image_url", "image_url": {"url": url, **detail}}
    if kind == "audio" and "data" in part:
        audio_format = str(part.get("mime_type", "")).rpartition("/")[2] or "wav"
        return {"type": "input_audio", "input_audio": {"data": part["data"], "format": audio_format}}
    if kind == "file" and ("data" in part or "id" in part or "file_id" in part):
        return {"type": "file", "file": {new: part[old] for old, new in _FILE_FIELDS.items() if old in part}}
    return part


def message_json(message: Message) -> dict[str, Any]:
    """A message in OpenAI's chat format, with `content` as text only, and without fields that are unknown."""
    calls = [
        without_none(id=call.id, type="function", function={"name": call.name, "arguments": call.arguments})
        for call in message.tool_calls
    ]
    optional = without_none(
        name=message.name,
        reasoning_content=message.reasoning,
        refusal=message.refusal,
        tool_calls=calls or None,
        tool_call_id=message.tool_call_id,
    )
    return {"role": message.role, "content": message.content, **optional}


def without_none(**fields: object) -> dict[str, Any]:
    """Drop the fields whose value is None: unknown."""
    return {name: value for name, value in fields.items() if value is not None}


class TurnView(msgspec.Struct, frozen=True, kw_only=True):
    """One sampled completion, with the turns that its prompt continues by messages and by token ids."""

    call: int
    choice: int
    index: int
    message: Message | None
    finish_reason: str | None
    token_ids: TokenIds | None
    logprobs: Logprobs | None
    weight_versions: tuple[WeightVersion, ...] | None
    routed_experts: RoutedExperts | None
    sampling_mask: tuple[TokenIds, ...] | None
    tokens_untrained: TokensUntrained | None
    text_untrained: TextUntrained | None
    parent: int | None
    token_parent: int | None


class ChoiceView(msgspec.Struct, frozen=True, kw_only=True):
    """One sampled completion of a call."""

    index: int
    message: Message | None
    finish_reason: str | None
    token_ids: TokenIds | None
    logprobs: Logprobs | None
    weight_versions: tuple[WeightVersion, ...] | None
    routed_experts: RoutedExperts | None
    sampling_mask: tuple[TokenIds, ...] | None


class CallView(CallRecord, frozen=True, kw_only=True, gc=False):
    """A call with its whole prompt and its choices.

    `drifted_at` is how many ids the prompt has in common with the token path of the turn whose messages it continues,
    if it does not begin with that whole path. `rewritten_at` is how many messages it has in common with the message
    path of the turn whose ids it continues, if it does not begin with that whole path.
    """

    input_messages: tuple[Message, ...] | None
    prompt_token_ids: TokenIds | None
    choices: tuple[ChoiceView, ...] | None
    drifted_at: int | None
    rewritten_at: int | None


_LEFT_OUT: Final = frozenset({"result", "exception", "children", "calls", "turns", "_reward_origin"})
"""Fields that only the live object has, and fields that are written in another form."""


def trajectory_json(trajectory: Trajectory) -> dict[str, Any]:
    """The whole trajectory as JSON values, with `complete` and `end`; the keys are the field names."""
    names = [field.name for field in fields(trajectory) if field.name not in _LEFT_OUT]
    plain = {name: _plain(getattr(trajectory, name)) for name in names}
    decided = {"complete": trajectory.complete, "end": trajectory.end}
    return {
        **plain,
        "calls": list(map(call_json, trajectory.calls)),
        "turns": [_plain(_view(TurnView, turn)) for turn in trajectory.turns],
        **decided,
    }


def call_json(call: Call) -> object:
    """A call as it is among those of `trajectory_json`."""
    choices = call.choices and tuple([_view(ChoiceView, one) for one in call.choices])
    return _plain(_view(CallView, call, choices=choices))


def _view(kind: type[_View], record: msgspec.Struct, **others: object) -> _View:
    names = [name for name in kind.__struct_fields__ if name not in others]
    return kind(**{name: getattr(record, name) for name in names}, **others)


_FEW_HAVE: Final = frozenset({"policy_version_end", "weight_versions", *TOKEN_FACTS})


def trajectory_schema() -> dict[str, Any]:
    """The JSON schema (2020-12) of `trajectory_json`. Later versions may have more keys."""
    types = {name: kind for name, kind in get_type_hints(Trajectory).items() if name not in _LEFT_OUT}
    types |= {"calls": tuple[CallView, ...], "turns": tuple[TurnView, ...], "complete": bool, "end": End | None}
    schemas, records = msgspec.json.schema_components(types.values(), ref_template="#/$defs/{name}")
    records |= {
        "TokenIds": {"type": "array", "items": {"type": "integer"}},
        "Logprobs": {"type": "array", "items": {"type": ["number", "null"]}},
    }
    for record in records.values():
        if "properties" in record:
            record["description"] = cleandoc(record["description"])
            record["required"] = [field for field in record["properties"] if field not in _FEW_HAVE]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Trajectory",
        "type": "object",
        "properties": dict(zip(types, schemas, strict=True)),
        "required": [*types],
        "$defs": records,
    }


def _plain(value: object) -> object:
    if isinstance(value, TokenIds):
        return value.tolist()
    if isinstance(value, Logprobs):
        return _numbers(value)
    if isinstance(value, msgspec.Struct):
        values = ((name, getattr(value, name)) for name in value.__struct_fields__)
        # Fields that few records have are left out if unknown: None in every call would only make files larger.
        return {name: _plain(each) for name, each in values if each is not None or name not in _FEW_HAVE}
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in cast(Mapping[str, object], value).items()}
    if isinstance(value, tuple | list):
        return [_plain(item) for item in cast(Iterable[object], value)]
    return msgspec.to_builtins(value)


def _numbers(logprobs: Logprobs) -> list[float | None]:
    """The logprobs; an unknown one is None, because JSON has no NaN."""
    return [None if math.isnan(logprob) else logprob for logprob in logprobs]


JsonMapping: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class RolloutTrace:
    """One call of a rollout. `span_id` is the call's span.

    `reward_data` maps names to raw numbers, see `RewardComponents`. `env_state` and `extra` come from the span
    attributes `art.env_state…` and `art.extra…`.
    """

    rollout_id: str
    span_id: str
    prompt: JsonMapping | None = None
    policy_response: JsonMapping | None = None
    reward_data: Mapping[str, float] | None = None
    env_state: JsonMapping | None = None
    extra: JsonMapping | None = None


def rollout_traces(trajectories: Trajectory | Iterable[Trajectory]) -> tuple[RolloutTrace, ...]:
    """Return a RolloutTrace for each call of one or several trajectories, in the order of the calls.

    for trace in art_otel.rollout_traces(trajectory):
        print(trace.prompt, trace.policy_response, trace.reward_data)
    """
    given = [trajectories] if isinstance(trajectories, Trajectory) else trajectories
    return tuple(
        _trace(trajectory.rollout_id, call, components.of(call))
        for trajectory in given
        for components in [RewardComponents(trajectory)]
        for call in trajectory.calls
    )


def _trace(rollout_id: str, call: Call, reward_data: Mapping[str, float]) -> RolloutTrace:
    messages, ids = call.input_messages, call.prompt_token_ids
    prompt = without_none(
        messages=None if messages is None else [_message(message) for message in messages],
        tools=None if call.tools is None else list(call.tools),
        parameters=call.parameters or None,
        model=call.request_model,
        token_ids=None if ids is None else ids.tolist(),
    )
    choices = [
        without_none(
            index=choice.index,
            message=None if choice.message is None else _message(choice.message),
            finish_reason=choice.finish_reason,
            token_ids=None if choice.token_ids is None else choice.token_ids.tolist(),
            logprobs=None if choice.logprobs is None else _numbers(choice.logprobs),
            weight_versions=None if choice.weight_versions is None else msgspec.to_builtins(choice.weight_versions),
        )
        for choice in call.choices or ()
    ]
    response = without_none(
        id=call.response_id,
        model=call.response_model,
        policy_version=call.policy_version,
        policy_version_end=call.policy_version_end,
        choices=None if call.choices is None else choices,
        error_type=call.error_type,
        error=call.error,
        failure=call.failure,
    )
    return RolloutTrace(
        rollout_id=rollout_id,
        span_id=call.span_id,
        prompt=None if messages is None and ids is None else prompt,
        policy_response=None if call.choices is None and not call.failed else response,
        reward_data=reward_data or None,
        env_state=call.env_state or None,
        extra=call.extra or None,
    )


def _message(message: Message) -> JsonMapping:
    """The message as JSON; with `parts` as they were recorded, if its content is more than text."""
    plain = message_json(message)
    if message.parts is None:
        return plain
    try:
        return {**plain, "parts": json.loads(message.parts)}
    except (ValueError, RecursionError):
        return {**plain, "parts": message.parts}


_Components: TypeAlias = dict[str, float]


class RewardComponents:
    """The rewards of each call, as a flat mapping from names to raw numbers.

    The components of a call are the rewards of the call, of its step and of the whole rollout, but not those of other
    calls, agents or tools. Keys:

        correct                        the call
        choice 1/correct               one of the call's choices
        choice 0 tokens 3-7/correct    some tokens of a choice, the end exclusive
        step/progress                  the call's step
        rollout/correct                the rollout

    A reward with a label only is no component.
    """

    def __init__(self, trajectory: Trajectory) -> None:
        calls = {call.span_id for call in trajectory.calls}
        rollout: list[Reward] = []
        by_call: dict[str, list[Reward]] = {}
        by_step: dict[int, list[Reward]] = {}
        for reward in trajectory.rewards:
            if reward.target in calls:
                by_call.setdefault(str(reward.target), []).append(reward)
            elif reward.step is not None and reward.target_kind is None:
                by_step.setdefault(reward.step, []).append(reward)
            elif reward.target is None:
                rollout.append(reward)
        self._rollout = _components(rollout, "rollout/")
        self._by_call = {call: _components(rewards, "") for call, rewards in by_call.items()}
        self._by_step = {
            step: _components(rewards, "step/")
            for step, rewards in by_step.items()
            # Two agents may each number their own steps from 0: then an index names no one step.
            if len({reward.target for reward in rewards} - {None}) < 2
        }

    def of(self, call: Call) -> _Components:
        """Collect the reward components of a call, its step and the rollout."""
        components = dict(self._by_call.get(call.span_id, {}))
        if call.step is not None:
            components.update(self._by_step.get(call.step, {}))
        return components | self._rollout


def _components(rewards: list[Reward], prefix: str) -> _Components:
    by_key: dict[str, list[Reward]] = {}
    for reward in rewards:
        part = "" if reward.choice is None else f"choice {reward.choice}/"
        if reward.token_start is not None:
            part = f"choice {reward.choice or 0} tokens {reward.token_start}-{reward.token_end}/"
        by_key.setdefault(f"{prefix}{part}{reward.name}", []).append(reward)
    values = ((key, aggregate(rewards_of_key)) for key, rewards_of_key in by_key.items())
    return {key: value for key, value in values if value is not None}
