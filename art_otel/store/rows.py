"""Rows: a trajectory as what the columns of its row hold, and back. `schema` has the table of these columns.

Invariant: `restore_trajectory` gives back an equal trajectory, but for metrics that are NaN or infinite: JSON has no
such numbers, and ART's reader refuses a file whose metrics hold null. What no trajectory has is refused.

What several calls share stands once in a row, and in the bytes of a trajectory that goes from one process to another of
the same version: of a call's prompt only what is new, its choices are the turns, and lists of tools and the objects of
steps are positions in lists.

ART 0.5's own reader takes its ten columns as they are: metadata values are flat scalars, tool calls are JSON text in
OpenAI's form, and one list of messages holds the main history. Source: `art.utils.trajectory_logging` of openpipe-art
0.5.18.
"""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b
from typing import Any, Final, Generic, NamedTuple, TypeAlias, TypeVar, get_args

import msgspec

from art_otel.calls import Choice, InferenceCall, Message, RoutedExperts, ToolSet
from art_otel.errors import StoreError
from art_otel.spans import Value
from art_otel.trajectories import (
    Prompt,
    RebuiltPrompt,
    RolloutTrace,
    Status,
    Trajectory,
    Turn,
    main_history,
    rebuild_prompts,
    rollout_traces,
)

_Value = TypeVar("_Value")

Fields: TypeAlias = dict[str, Any]
"""The values of a row, a call or a turn, by the names of their columns."""


class CallSource(NamedTuple):
    """A call and its prompt. The numbers are positions in the row's `toolsets` and `objects`."""

    call: InferenceCall
    prompt: Prompt
    toolset: int | None
    env_state: int | None
    extra: int | None


class TurnSource(NamedTuple):
    """A turn, the index that the server gave its choice, and how many tokens it has."""

    turn: Turn
    choice_index: int

    @property
    def prompt_tokens(self) -> int | None:
        """How many ids its prompt has; None where they are unknown."""
        prompt = self.turn.prompt
        return None if prompt.context_token_ids is None else prompt.kept_tokens + len(prompt.context_token_ids)

    @property
    def sampled_tokens(self) -> int | None:
        """How many ids were sampled; None where they are unknown."""
        return None if self.turn.token_ids is None else len(self.turn.token_ids)

    @property
    def unscored_tokens(self) -> int | None:
        """How many of the sampled ids have no logprob: all where logprobs are as many as something else."""
        ids, logprobs = self.turn.token_ids, self.turn.logprobs
        if ids is None:
            return None
        if logprobs is None or len(logprobs) != len(ids):
            return len(ids)
        numbers = memoryview(logprobs.data).cast("f")
        # Few are NaN: the sum says whether any may be.
        return sum(map(math.isnan, numbers)) if math.isnan(sum(numbers)) else 0

    @property
    def zero_logprobs(self) -> int | None:
        """How many of the sampled ids have a logprob of exactly 0.0; None where the ids are unknown."""
        ids, logprobs = self.turn.token_ids, self.turn.logprobs
        if ids is None:
            return None
        if logprobs is None or len(logprobs) != len(ids):
            return 0
        return memoryview(logprobs.data).cast("f").tolist().count(0)


class ArtMessage(msgspec.Struct, frozen=True, gc=False):
    """A message of the main history, for ART. `trainable` marks a sampled one whose turn is to be trained."""

    role: str
    content: str | None
    tool_calls: str | None
    tool_call_id: str | None
    trainable: bool


class RowSource(NamedTuple):
    """A trajectory, and what its row says in another way. `toolsets` and `objects` are JSON texts.

    `rollout_traces` is None where they were not asked for: they repeat each call's whole prompt.
    """

    trajectory: Trajectory
    metrics: Mapping[str, float]
    metadata: Mapping[str, Value]
    nested_metadata: Mapping[str, Value]
    messages: tuple[ArtMessage, ...] | None
    calls: tuple[CallSource, ...]
    turns: tuple[TurnSource, ...]
    toolsets: tuple[str, ...]
    objects: tuple[str, ...]
    rollout_traces: tuple[RolloutTrace, ...] | None


def row_source(trajectory: Trajectory, *, with_traces: bool = False) -> RowSource:
    """The source of a trajectory's row.

    Raises ValueError, TypeError or LookupError for values that are no JSON and for turns and prompts that are not
    those of the calls.
    """
    toolsets: SharedTexts[Sequence[Value]] = SharedTexts()
    objects: SharedTexts[dict[str, Value]] = SharedTexts()
    calls = tuple(
        CallSource(
            call,
            prompt,
            None if call.tools is None else toolsets.position(call.tools),
            objects.position(call.env_state) if call.env_state else None,
            objects.position(call.extra) if call.extra else None,
        )
        for call, prompt in zip(trajectory.calls, trajectory.prompts, strict=True)
    )
    metadata, nested = art_metadata(trajectory.metadata)
    return RowSource(
        trajectory=trajectory,
        metrics={name: value for name, value in trajectory.metrics.items() if math.isfinite(value)},
        metadata=metadata,
        nested_metadata=nested,
        messages=art_messages(trajectory),
        calls=calls,
        turns=tuple(_turn_sources(trajectory)),
        toolsets=toolsets.texts,
        objects=objects.texts,
        rollout_traces=rollout_traces(trajectory) if with_traces else None,
    )


def restore_trajectory(row: Fields, *, prompts: bool = True, choices: bool = True) -> Trajectory:
    """The trajectory of a row. Without `prompts` its calls lack their whole prompts, without `choices` their choices.

    Raises ValueError, TypeError or LookupError for a row that no trajectory has.
    """
    _check(row)
    unchanged = {name: value for name, value in row.items() if name not in _RESTORED}
    asked = tuple(call["prompt"] for call in row["calls"])
    turns = tuple(_turn(fields, asked[fields["call"]]) for fields in row["turns"])
    whole_prompts = rebuild_prompts(asked, turns) if prompts else (RebuiltPrompt(),) * len(asked)
    choices_of = _choices(turns, row["turns"]) if choices else {}
    return Trajectory(
        **unchanged,
        incomplete_reasons=dict(row["incomplete_reasons"]),
        metrics={name: value for name, value in row["metrics"].items() if value is not None},
        metadata=row["metadata"] | row["nested_metadata"],
        calls=tuple(
            _call(fields, row["toolsets"], row["objects"], prompt, choices_of.get(position))
            for position, (fields, prompt) in enumerate(zip(row["calls"], whole_prompts, strict=True))
        ),
        prompts=asked,
        turns=turns,
    )


def _turn_sources(trajectory: Trajectory) -> Iterator[TurnSource]:
    for position, turn in enumerate(trajectory.turns):
        call, prompt = trajectory.calls[turn.call], trajectory.prompts[turn.call]
        if turn.prompt is not prompt and turn.prompt != prompt:
            raise ValueError(f"turn {position} has another prompt than its call {turn.call}")
        # Calls that were read without their choices have none; positions are then the best that is known.
        yield TurnSource(turn, turn.choice if call.choices is None else call.choices[turn.choice].index)


class SharedTexts(Generic[_Value]):
    """The JSON texts of values of one kind, each once however many calls refer to it, in the order of first use.

    A value that several calls share is written as JSON once: it may be as long as the calls are many. Values are known
    by their ids, so they must live as long as this does.
    """

    def __init__(self) -> None:
        self._positions: dict[str, int] = {}
        self._by_id: dict[int, int] = {}

    def position(self, value: _Value) -> int:
        """Where the value's text stands. Raises what `json_text` does."""
        position = self._by_id.get(id(value))
        if position is None:
            position = self._positions.setdefault(json_text(value), len(self._positions))
            self._by_id[id(value)] = position
        return position

    @property
    def texts(self) -> tuple[str, ...]:
        """The texts met so far, by their positions."""
        return tuple(self._positions)


def art_messages(trajectory: Trajectory) -> tuple[ArtMessage, ...] | None:
    """The messages of the main history; None where nothing was sampled or its beginning is unknown."""
    main = main_history(trajectory)
    if main is None or main.messages is None:
        return None
    trainable = [
        turn.text_untrained is None and trajectory.calls[turn.call].marked_untrained is None
        for turn in trajectory.turns
    ]
    return tuple(
        _art_message(entry.message, trainable=entry.turn is not None and trainable[entry.turn])
        for entry in main.messages
    )


def _art_message(message: Message, *, trainable: bool) -> ArtMessage:
    calls = [
        {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
        for call in message.tool_calls or ()
    ]
    return ArtMessage(
        message.role, message.content, json_text(calls) if calls else None, message.tool_call_id, trainable
    )


def art_metadata(metadata: Mapping[str, Value]) -> tuple[dict[str, Value], dict[str, Value]]:
    """The metadata with nested values as JSON text, and apart from it the nested values as they are."""
    nested = {key: value for key, value in metadata.items() if not isinstance(value, str | int | float | None)}
    texts = {key: json_text(value) for key, value in nested.items()}
    return {**metadata, **texts}, nested


def group_index(trajectory: Trajectory) -> int:
    """The number by which ART knows the group of a trajectory, which follows from the trajectory alone.

    The first 63 bits of the BLAKE2b digest (64 bytes) of the group's key: a compact JSON list in UTF-8,
    `[training_step,gathering,group_id]`, without a group `[rollout_id,attempt,trace_id,started_at]`. Raises ValueError
    for text that UTF-8 cannot hold.
    """
    alone = (trajectory.rollout_id, trajectory.attempt, trajectory.trace_id, trajectory.started_at)
    key = trajectory.group_key or alone
    text = json.dumps(key, ensure_ascii=False, separators=(",", ":"))
    return int.from_bytes(blake2b(text.encode()).digest()[:8], "big") >> 1


_RESTORED: Final = frozenset(
    [
        "complete",
        "end",
        "incomplete_reasons",
        "metrics",
        "metadata",
        "nested_metadata",
        "toolsets",
        "objects",
        "calls",
        "turns",
    ]
)
"""Columns from which fields of another form are restored."""


def _check(row: Fields) -> None:
    if row["rollout_id"] is None or row["trace_id"] is None:
        raise ValueError("rollout_id or trace_id is missing")
    if row["revision"] is None:
        raise ValueError("revision is missing")
    if row["status"] not in get_args(Status):
        raise ValueError(f"{row['status']!r} is no status")
    for position, call in enumerate(row["calls"]):
        if call["prompt"] is None:
            raise ValueError(f"call {position} has no prompt")
    for position, turn in enumerate(row["turns"]):
        if not 0 <= turn["call"] < len(row["calls"]):
            raise ValueError(f"turn {position} is of call {turn['call']}, of {len(row['calls'])} calls")


def _turn(fields: Fields, prompt: Prompt) -> Turn:
    """A turn with the prompt of its call. Each field is named, which takes half the time of `**fields`."""
    return Turn(
        call=fields["call"],
        choice=fields["choice"],
        prompt=prompt,
        message=fields["message"],
        finish_reason=fields["finish_reason"],
        token_ids=fields["token_ids"],
        logprobs=fields["logprobs"],
        weight_versions=fields["weight_versions"],
        routed_experts=fields["routed_experts"],
        sampling_mask=fields["sampling_mask"],
        tokens_untrained=fields["tokens_untrained"],
        text_untrained=fields["text_untrained"],
    )


def _choices(turns: Sequence[Turn], rows: Sequence[Fields]) -> dict[int, list[Choice]]:
    """The choices of each call that has any, in their order. Raises ValueError for a turn that is out of place."""
    choices: dict[int, list[Choice]] = {}
    for position, (turn, fields) in enumerate(zip(turns, rows, strict=True)):
        if turn.message is None:  # it was read without messages and written again
            continue
        of_call = choices.setdefault(turn.call, [])
        index: int | None = fields["choice_index"]
        if turn.choice != len(of_call) or index is None:
            raise ValueError(f"turn {position} is not choice {len(of_call)} of call {turn.call}")
        of_call.append(make_choice(index, turn))
    return choices


def make_choice(index: int, turn: Turn) -> Choice:
    """The choice that a turn was made of. Raises ValueError where its message is unknown."""
    if turn.message is None:
        raise ValueError("a choice has no message")
    return Choice(
        index=index,
        message=turn.message,
        finish_reason=turn.finish_reason,
        token_ids=turn.token_ids,
        logprobs=turn.logprobs,
        weight_versions=turn.weight_versions,
        routed_experts=turn.routed_experts,
        sampling_mask=turn.sampling_mask,
    )


def routed_experts_of(data: bytes | None, **shape: int) -> RoutedExperts | None:
    """The routed experts of a turn; None where it has none."""
    return None if data is None else RoutedExperts(data=data, **shape)


def _call(
    fields: Fields,
    toolsets: Sequence[str],
    objects: Sequence[str],
    prompt: RebuiltPrompt,
    choices: Sequence[Choice] | None,
) -> InferenceCall:
    """A call with its whole prompt and its choices, and with values of its own of what it shares with others."""
    del fields["prompt"]
    toolset: int | None = fields.pop("toolset")
    env_state: int | None = fields.pop("env_state")
    extra: int | None = fields.pop("extra")
    return InferenceCall(
        **fields,
        tools=None if toolset is None else list_of(toolsets[toolset]),
        input_messages=prompt.messages,
        prompt_token_ids=prompt.token_ids,
        choices=None if choices is None else tuple(choices),
        env_state={} if env_state is None else object_of(objects[env_state]),
        extra={} if extra is None else object_of(objects[extra]),
    )


# JSON values are text, because Arrow would merge objects of different keys into one struct.
_ENCODER: Final = msgspec.json.Encoder()
_OBJECT: Final = msgspec.json.Decoder(dict[str, Value])
_LIST: Final = msgspec.json.Decoder(list[Value])
_VALUE: Final[msgspec.json.Decoder[Value]] = msgspec.json.Decoder()


def json_text(value: Value) -> str:
    """The value as JSON; NaN and infinities become null. Raises TypeError or ValueError for what is no JSON value."""
    return value.json if isinstance(value, ToolSet) else _ENCODER.encode(value).decode()


def value_text(value: Value) -> str | None:
    """The value as JSON; None for None."""
    return None if value is None else json_text(value)


def value_of(text: str | None) -> Value:
    """The inverse of value_text. Raises msgspec.DecodeError (a ValueError) for text that is no JSON."""
    return None if text is None else _VALUE.decode(text)


def object_text(value: Mapping[str, Value]) -> str | None:
    """The object as JSON, None when empty."""
    return json_text(dict(value)) if value else None


def object_of(text: str | msgspec.Raw | None) -> dict[str, Value]:
    """The inverse of object_text. Raises msgspec.DecodeError (a ValueError) for text that is no JSON object."""
    return {} if text is None else _OBJECT.decode(text)


def list_of(text: str | msgspec.Raw) -> tuple[Value, ...]:
    """The values of a JSON list. Raises msgspec.DecodeError (a ValueError) for text that is none."""
    return tuple(_LIST.decode(text))


_NOT_HERE: Final = Prompt()


class _SharingCall(msgspec.Struct, frozen=True, array_like=True):
    """A call without its prompt and choices. The numbers are positions in `shared`; `choices` are the server's."""

    call: InferenceCall
    tools: int | None
    env_state: int | None
    extra: int | None
    choices: tuple[int, ...] | None


class _Parcel(msgspec.Struct, frozen=True, array_like=True):
    """A trajectory without its calls, whose turns lack their prompts."""

    trajectory: Trajectory
    calls: tuple[_SharingCall, ...]
    shared: tuple[msgspec.Raw, ...]


_PARCEL: Final = msgspec.json.Decoder(_Parcel)


def encode_trajectory(trajectory: Trajectory) -> bytes:
    """Encode a trajectory, for another process. Raises TypeError or ValueError for values that are no JSON."""
    shared: SharedTexts[Value] = SharedTexts()
    calls = tuple(_shortened(call, shared) for call in trajectory.calls)
    rest = replace(
        trajectory,
        metrics={name: value for name, value in trajectory.metrics.items() if math.isfinite(value)},
        calls=(),
        turns=tuple(msgspec.structs.replace(turn, prompt=_NOT_HERE) for turn in trajectory.turns),
    )
    texts = tuple(msgspec.Raw(text.encode()) for text in shared.texts)
    return _ENCODER.encode(_Parcel(trajectory=rest, calls=calls, shared=texts))


def decode_trajectory(data: bytes) -> Trajectory:
    """Read what `encode_trajectory` gave. Raises StoreError for anything else."""
    try:
        return _whole(_PARCEL.decode(data))
    except (ValueError, LookupError) as error:
        raise StoreError(f"a received rollout: this is no trajectory: {error}") from error


def _shortened(call: InferenceCall, shared: SharedTexts[Value]) -> _SharingCall:
    return _SharingCall(
        call=msgspec.structs.replace(
            call, input_messages=None, prompt_token_ids=None, choices=None, tools=None, env_state={}, extra={}
        ),
        tools=None if call.tools is None else shared.position(call.tools),
        env_state=shared.position(call.env_state) if call.env_state else None,
        extra=shared.position(call.extra) if call.extra else None,
        choices=None if call.choices is None else tuple(choice.index for choice in call.choices),
    )


def _whole(parcel: _Parcel) -> Trajectory:
    prompts = parcel.trajectory.prompts
    turns = tuple(msgspec.structs.replace(turn, prompt=prompts[turn.call]) for turn in parcel.trajectory.turns)
    choices: dict[tuple[int, int], Turn] = {(turn.call, turn.choice): turn for turn in turns}
    calls = tuple(
        msgspec.structs.replace(
            each.call,
            input_messages=whole.messages,
            prompt_token_ids=whole.token_ids,
            choices=None
            if each.choices is None
            else tuple(make_choice(index, choices[call, choice]) for choice, index in enumerate(each.choices)),
            tools=None if each.tools is None else list_of(parcel.shared[each.tools]),
            env_state={} if each.env_state is None else object_of(parcel.shared[each.env_state]),
            extra={} if each.extra is None else object_of(parcel.shared[each.extra]),
        )
        for call, (each, whole) in enumerate(zip(parcel.calls, rebuild_prompts(prompts, turns), strict=True))
    )
    return replace(parcel.trajectory, calls=calls, turns=turns)
