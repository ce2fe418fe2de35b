"""Rows: convert a trajectory to the values of its row, and back. `schema` has the table of the columns.

Invariant: `restore_trajectory` gives an equal trajectory, except for metrics that are NaN or infinite: JSON has no such
numbers, and ART's reader refuses a file with null among metrics. A row that no trajectory can have is refused.

Shared values are in a row once: messages and token ids as two trees, in which calls have the positions of their
prompts' last nodes; tool definitions and the objects of steps as lists, in which calls have positions. The bytes of
`encode_trajectory` have the same form.

ART 0.5's own reader reads the ten columns for ART: metadata values are flat scalars, tool calls are JSON text in
OpenAI's form, and one list of messages has the main history. Source: `art.utils.trajectory_logging` of openpipe-art
0.5.18.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b
from typing import Any, Final, Generic, NamedTuple, TypeAlias, TypeVar, get_args

import msgspec

from art_otel.calls import CallRecord, Logprobs, Message, RoutedExperts, TokenIds, ToolSet, WeightVersion
from art_otel.errors import StoreError
from art_otel.spans import Value
from art_otel.trajectories import (
    MESSAGE_ROOT,
    TOKEN_ROOT,
    Call,
    MessageNode,
    RolloutTrace,
    Status,
    TextUntrained,
    TokenNode,
    TokensUntrained,
    Trajectory,
    Turn,
    main_history,
    message_ends,
    node_at,
    numbered,
    position_of,
    rollout_traces,
    token_ends,
)
from art_otel.trajectories.model import RECORDED

_Value = TypeVar("_Value")

Fields: TypeAlias = dict[str, Any]
"""The values of a row, a call or a turn by column."""


class MessageSource(NamedTuple):
    """A node of messages. `parent` and `restates` are positions of nodes; `message` is None where `turn` has it."""

    parent: int | None
    turn: int | None
    restates: int | None
    message: Message | None


class RunSource(NamedTuple):
    """A node of token ids. `parent` is the position of a node; `ids` is None where `turn` has them."""

    parent: int | None
    turn: int | None
    kept: int | None
    ids: TokenIds | None


CallSource: TypeAlias = tuple[Call, int | None, int | None, int | None, int | None, int | None]
"""A call, and the positions of what it shares: of the nodes of its prompt and of its prompt's ids, and in the row's
`toolsets` and twice in its `objects`, those of its state of the environment and of its extra values."""

TurnSource: TypeAlias = tuple[Turn, int | None]
"""A turn, and how many ids its prompt has; None where they are unknown."""


def sampled_tokens(turn: Turn, _: int | None = None) -> int | None:
    """How many ids were sampled; None if they are unknown."""
    return None if turn.token_ids is None else len(turn.token_ids)


def unscored_tokens(turn: Turn, _: int | None = None) -> int | None:
    """How many of the sampled ids have no logprob: all, if there are not as many logprobs as ids."""
    ids, logprobs = turn.token_ids, turn.logprobs
    if ids is None:
        return None
    if logprobs is None or len(logprobs) != len(ids):
        return len(ids)
    numbers = memoryview(logprobs.data).cast("f")
    # Few are NaN: the sum says whether any may be.
    return sum(map(math.isnan, numbers)) if math.isnan(sum(numbers)) else 0


def zero_logprobs(turn: Turn, _: int | None = None) -> int | None:
    """How many of the sampled ids have a logprob of exactly 0.0; None if the ids are unknown."""
    ids, logprobs = turn.token_ids, turn.logprobs
    if ids is None:
        return None
    if logprobs is None or len(logprobs) != len(ids):
        return 0
    return memoryview(logprobs.data).cast("f").tolist().count(0)


class ArtMessage(msgspec.Struct, frozen=True, gc=False):
    """A message of the main history, for ART. `trainable`: it was sampled and may be trained."""

    role: str
    content: str | None
    tool_calls: str | None
    tool_call_id: str | None
    trainable: bool


class RowSource(NamedTuple):
    """A trajectory, and the values of its row that have another form. `toolsets` and `objects` are JSON texts.

    `rollout_traces` is None unless requested, because traces repeat each call's whole prompt.
    """

    trajectory: Trajectory
    metrics: Mapping[str, float]
    metadata: Mapping[str, Value]
    nested_metadata: Mapping[str, Value]
    messages: tuple[ArtMessage, ...] | None
    message_nodes: tuple[MessageSource, ...]
    token_nodes: tuple[RunSource, ...]
    calls: tuple[CallSource, ...]
    turns: tuple[TurnSource, ...]
    toolsets: tuple[str, ...]
    objects: tuple[str, ...]
    rollout_traces: tuple[RolloutTrace, ...] | None


def row_source(trajectory: Trajectory, *, with_traces: bool = False) -> RowSource:
    """The source of a trajectory's row. Raises ValueError, TypeError or LookupError for values that are no JSON."""
    toolsets: SharedTexts[Sequence[Value]] = SharedTexts()
    objects: SharedTexts[dict[str, Value]] = SharedTexts()
    message_nodes, message_positions = numbered(message_ends(trajectory.calls))
    token_nodes, token_positions = numbered(token_ends(trajectory.calls))
    calls = tuple(
        [
            (
                call,
                position_of(call.prompt_node, message_positions),
                position_of(call.prompt_token_node, token_positions),
                None if call.tools is None else toolsets.position(call.tools),
                objects.position(call.env_state) if call.env_state else None,
                objects.position(call.extra) if call.extra else None,
            )
            for call in trajectory.calls
        ]
    )
    metadata, nested = art_metadata(trajectory.metadata)
    return RowSource(
        trajectory=trajectory,
        metrics={name: value for name, value in trajectory.metrics.items() if math.isfinite(value)},
        metadata=metadata,
        nested_metadata=nested,
        messages=art_messages(trajectory),
        message_nodes=tuple(
            [
                MessageSource(
                    position_of(node.parent, message_positions),
                    node.turn,
                    position_of(node.restates, message_positions),
                    node.message if node.turn is None else None,
                )
                for node in message_nodes
            ]
        ),
        token_nodes=tuple(
            [
                RunSource(
                    position_of(node.parent, token_positions),
                    node.turn,
                    node.kept,
                    node.ids if node.turn is None else None,
                )
                for node in token_nodes
            ]
        ),
        calls=calls,
        turns=tuple(
            [
                (turn, None if call.prompt_token_node is None else call.prompt_token_node.end)
                for call in trajectory.calls
                for turn in call.choices or ()
            ]
        ),
        toolsets=toolsets.texts,
        objects=objects.texts,
        rollout_traces=rollout_traces(trajectory) if with_traces else None,
    )


def restore_trajectory(row: Fields) -> Trajectory:
    """Make the trajectory of a row. Raises ValueError, TypeError or LookupError for a row that is no trajectory's."""
    _check(row)
    unchanged = {name: value for name, value in row.items() if name not in _RESTORED}
    trajectory = Trajectory(
        **unchanged,
        incomplete_reasons=dict(row["incomplete_reasons"]),
        metrics={name: value for name, value in row["metrics"].items() if value is not None},
        metadata=row["metadata"] | row["nested_metadata"],
        calls=_restore_calls(row),
    )
    return _with_reward(trajectory, row["reward"])


def _with_reward(trajectory: Trajectory, written: float | None) -> Trajectory:
    """The trajectory, without a reward where none was written: to make it, None says that one follows from others."""
    return replace(trajectory, reward=None) if written is None and trajectory.reward is not None else trajectory


def _restore_calls(row: Fields) -> tuple[Call, ...]:
    """Make the calls of a row, with their turns and both trees."""
    sampled: Sequence[Fields] = row["turns"]
    # None where a reader left them out.
    messages = None if row["message_nodes"] is None else _restore_messages(row["message_nodes"], sampled)
    tokens = None if row["token_nodes"] is None else _restore_runs(row["token_nodes"], sampled)
    message_of = {node.turn: node for node in messages or () if node.turn is not None}
    token_of = {node.turn: node for node in tokens or () if node.turn is not None}
    choices: dict[int, list[Turn]] = {}
    for position, fields in enumerate(sampled):
        of_call = choices.setdefault(fields["call"], [])
        if fields["choice"] != len(of_call):
            raise ValueError(f"turn {position} is not choice {len(of_call)} of call {fields['call']}")
        of_call.append(
            Turn(
                call=fields["call"],
                choice=fields["choice"],
                index=fields["index"],
                finish_reason=fields["finish_reason"],
                message_node=message_of.get(position),
                token_node=token_of.get(position),
                tokens_untrained=fields["tokens_untrained"],
                text_untrained=fields["text_untrained"],
            )
        )
    calls: list[Call] = []
    for position, fields in enumerate(row["calls"]):
        toolset, env_state, extra = fields.pop("toolset"), fields.pop("env_state"), fields.pop("extra")
        prompt_node, prompt_token_node = fields.pop("prompt_node"), fields.pop("prompt_token_node")
        of_call = choices.get(position)
        calls.append(
            Call(
                **fields,
                # Values of their own: an app may change what it gets.
                tools=None if toolset is None else ToolSet(row["toolsets"][toolset]),
                env_state={} if env_state is None else object_of(row["objects"][env_state]),
                extra={} if extra is None else object_of(row["objects"][extra]),
                prompt_node=None if messages is None else node_at(prompt_node, messages, MESSAGE_ROOT),
                prompt_token_node=None if tokens is None else node_at(prompt_token_node, tokens, TOKEN_ROOT),
                choices=None if of_call is None else tuple(of_call),
            )
        )
    return tuple(calls)


def _restore_messages(rows: Sequence[MessageSource], sampled: Sequence[Fields]) -> list[MessageNode]:
    nodes: list[MessageNode] = []
    for parent, turn, restates, message in rows:
        _check_turn(turn, sampled)
        said: Message | None = message if turn is None else sampled[turn]["message"]
        if said is None:
            raise ValueError(f"message node {len(nodes)} has no message")
        nodes.append(
            MessageNode(
                parent=node_at(parent, nodes, MESSAGE_ROOT),
                message=said,
                turn=turn,
                restates=None if restates is None else node_at(restates, nodes, MESSAGE_ROOT),
            )
        )
    return nodes


def _check_turn(turn: int | None, sampled: Sequence[Fields]) -> None:
    if turn is not None and not 0 <= turn < len(sampled):
        raise ValueError(f"a node is of turn {turn}, of {len(sampled)} turns")


def _restore_runs(rows: Sequence[RunSource], sampled: Sequence[Fields]) -> list[TokenNode]:
    nodes: list[TokenNode] = []
    for parent, turn, kept, ids in rows:
        before = node_at(parent, nodes, TOKEN_ROOT)
        _check_turn(turn, sampled)
        facts: Fields = {} if turn is None else sampled[turn]
        if kept is not None and not (before is not None and 0 <= kept <= len(before.ids or ())):
            raise ValueError(f"token node {len(nodes)} keeps {kept} ids of a run that has fewer")
        nodes.append(
            TokenNode(
                parent=before,
                kept=kept,
                ids=ids if turn is None else facts["token_ids"],
                turn=turn,
                logprobs=facts.get("logprobs"),
                weight_versions=facts.get("weight_versions"),
                routed_experts=facts.get("routed_experts"),
                sampling_mask=facts.get("sampling_mask"),
            )
        )
    return nodes


class SharedTexts(Generic[_Value]):
    """The JSON texts of values of one kind, each once, in the order of first use.

    A value that several calls share is encoded once, because it may be long. Values are identified by `id()`, so they
    must live as long as this object.
    """

    def __init__(self) -> None:
        self._positions: dict[str, int] = {}
        self._by_id: dict[int, int] = {}

    def position(self, value: _Value) -> int:
        """The position of the value's text. Raises the errors of `json_text`."""
        position = self._by_id.get(id(value))
        if position is None:
            position = self._positions.setdefault(json_text(value), len(self._positions))
            self._by_id[id(value)] = position
        return position

    @property
    def texts(self) -> tuple[str, ...]:
        """The texts so far, in the order of their positions."""
        return tuple(self._positions)


def art_messages(trajectory: Trajectory) -> tuple[ArtMessage, ...] | None:
    """The messages of the main history; None if nothing was sampled, or if its beginning is unknown."""
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
    """The metadata with nested values as JSON text (for ART), and the nested values themselves."""
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
    return int.from_bytes(blake2b(_ENCODER.encode(key)).digest()[:8], "big") >> 1


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
        "message_nodes",
        "token_nodes",
        "calls",
        "turns",
    ]
)
"""Columns from which fields with another form are restored."""


def _check(row: Fields) -> None:
    if row["rollout_id"] is None or row["trace_id"] is None:
        raise ValueError("rollout_id or trace_id is missing")
    if row["revision"] is None:
        raise ValueError("revision is missing")
    if row["status"] not in get_args(Status):
        raise ValueError(f"{row['status']!r} is no status")
    first = 0
    for position, turn in enumerate(row["turns"]):
        if not first <= turn["call"] < len(row["calls"]):
            raise ValueError(f"turn {position} is of call {turn['call']}, of calls {first} to {len(row['calls']) - 1}")
        first = turn["call"]


def routed_experts_of(data: bytes | None, **shape: int) -> RoutedExperts | None:
    """The routed experts of a turn; None if it has none."""
    return None if data is None else RoutedExperts(data=data, **shape)


# JSON values are text, because Arrow would merge objects of different keys into one struct.
_ENCODER: Final = msgspec.json.Encoder()
_OBJECT: Final = msgspec.json.Decoder(dict[str, Value])
_LIST: Final = msgspec.json.Decoder(list[Value])
_VALUE: Final[msgspec.json.Decoder[Value]] = msgspec.json.Decoder()


def json_text(value: Value) -> str:
    """The value as JSON; NaN and infinities become null. Raises TypeError or ValueError for another kind of value."""
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


class _SentCall(msgspec.Struct, frozen=True, array_like=True):
    """What is known of a call. The numbers are positions, as those of `CallSource`."""

    facts: CallRecord
    drifted_at: int | None
    rewritten_at: int | None
    prompt_node: int | None
    prompt_token_node: int | None
    toolset: int | None
    env_state: int | None
    extra: int | None


class _SentTurn(msgspec.Struct, frozen=True, array_like=True):
    """A turn with what its nodes have."""

    call: int
    choice: int
    index: int
    finish_reason: str | None
    message: Message | None
    token_ids: TokenIds | None
    logprobs: Logprobs | None
    weight_versions: tuple[WeightVersion, ...] | None
    routed_experts: RoutedExperts | None
    sampling_mask: tuple[TokenIds, ...] | None
    tokens_untrained: TokensUntrained | None
    text_untrained: TextUntrained | None


class _Parcel(msgspec.Struct, frozen=True, array_like=True):
    """A trajectory without its calls, and what its row has of them."""

    trajectory: Trajectory
    message_nodes: tuple[MessageSource, ...]
    token_nodes: tuple[RunSource, ...]
    calls: tuple[_SentCall, ...]
    turns: tuple[_SentTurn, ...]
    toolsets: tuple[str, ...]
    objects: tuple[str, ...]


_PARCEL: Final = msgspec.json.Decoder(_Parcel)


def encode_trajectory(trajectory: Trajectory) -> bytes:
    """Encode a trajectory, for another process. Raises TypeError or ValueError for values that are no JSON."""
    source = row_source(trajectory)
    return _ENCODER.encode(
        _Parcel(
            trajectory=replace(trajectory, metrics=source.metrics, calls=()),
            message_nodes=source.message_nodes,
            token_nodes=source.token_nodes,
            calls=tuple(
                _SentCall(
                    CallRecord(**{name: getattr(call, name) for name in _SENT_FACTS}),
                    call.drifted_at,
                    call.rewritten_at,
                    *positions,
                )
                for call, *positions in source.calls
            ),
            turns=tuple(
                _SentTurn(*[getattr(turn, name) for name in _SentTurn.__struct_fields__]) for turn in trajectory.turns
            ),
            toolsets=source.toolsets,
            objects=source.objects,
        )
    )


_SENT_FACTS: Final = tuple(name for name in CallRecord.__struct_fields__ if name not in ("tools", "env_state", "extra"))


def decode_trajectory(data: bytes) -> Trajectory:
    """The inverse of `encode_trajectory`. Raises StoreError for other bytes."""
    try:
        parcel = _PARCEL.decode(data)
        calls: list[Fields] = []
        for sent in parcel.calls:
            fields: Fields = {name: getattr(sent.facts, name) for name in _SENT_FACTS}
            calls.append(fields | {name: getattr(sent, name) for name in _SentCall.__struct_fields__[1:]})
        row: Fields = {
            "message_nodes": parcel.message_nodes,
            "token_nodes": parcel.token_nodes,
            "calls": calls,
            "turns": [msgspec.structs.asdict(turn) for turn in parcel.turns],
            "toolsets": parcel.toolsets,
            "objects": parcel.objects,
        }
        trajectory = replace(parcel.trajectory, calls=_restore_calls(row), _reward_origin=RECORDED)
        return _with_reward(trajectory, parcel.trajectory.reward)
    except (ValueError, LookupError) as error:
        raise StoreError(f"a received rollout is not a valid trajectory: {error}") from error
