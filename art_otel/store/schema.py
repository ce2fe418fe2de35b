"""Schema: the table of columns of a trajectory file, and the codecs that turn values into Arrow arrays and back.

docs/spec/parquet.md has the meaning of the columns. Codecs nest as Arrow types do: a ListOf has a codec, a Record has
columns. Many values are encoded at once, because many small arrays are slow to make. Until then values wait flattened:
an object with more than is stored (a call with its whole prompt) is reduced as soon as it comes, to save memory.

Invariant: each column is here once, with its codec and the source of its value; writing and reading both use this
table. Every type is explicit, so that files with only empty lists or nulls have the same schema. There are no maps, no
empty structs and no timestamps (readers round or refuse nanoseconds). For each codec
`decode(encode([flatten(value)])) == [value]`, also for None; token numbers go from bytes to buffers and back, and never
become Python objects.
"""

# pyarrow ships no types.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false, reportUnknownLambdaType=false

from array import array
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from itertools import accumulate, pairwise, starmap
from operator import itemgetter
from typing import Any, ClassVar, Final, NamedTuple, TypeAlias, cast

import msgspec
import pyarrow as pa

from art_otel.calls import Gap, Logprobs, Message, TokenIds, ToolCall, Usage, WeightVersion
from art_otel.store.report import SCHEMA_VERSION, VERSION_KEY
from art_otel.store.rows import (
    ArtMessage,
    MessageSource,
    RowSource,
    RunSource,
    group_index,
    json_text,
    list_of,
    object_of,
    object_text,
    routed_experts_of,
    sampled_tokens,
    unscored_tokens,
    value_of,
    value_text,
    zero_logprobs,
)
from art_otel.trajectories import AddedMessage, PolicyVersions, Reward, ToolExecution


class Scalar(msgspec.Struct, frozen=True):
    """Text, numbers and booleans."""

    type: pa.DataType

    def encode(self, values: Sequence[Any]) -> pa.Array:
        """Turn values into one Arrow array, the only leaf of this column."""
        if not any(values) and values.count(None) == len(values):  # fast path: most columns of most files are null
            return pa.nulls(len(values), self.type)
        return _whole(pa.array(values, self.type))

    def decode(self, column: pa.Array) -> list[Any]:
        """The inverse of encode."""
        return column.to_pylist()


_TEXT: Final = Scalar(pa.string())


class Numbers(msgspec.Struct, frozen=True, dict=True):
    """TokenIds as list<int32>, Logprobs as list<float>: little-endian, as Arrow has it wherever pyarrow runs."""

    make: type[TokenIds] | type[Logprobs]
    item: pa.DataType

    @cached_property
    def type(self) -> pa.DataType:
        """list<int32> or list<float>."""
        return _list_type(self.item)

    def encode(self, values: Sequence[TokenIds | Logprobs | None]) -> pa.Array:
        """Shape: (values,), each of (tokens,)."""
        parts = [None if value is None else value.data for value in values]
        data = b"".join(filter(None, parts))
        flat = pa.Array.from_buffers(self.item, len(data) // 4, [None, pa.py_buffer(data)])
        return _list_array(self.type, [None if part is None else len(part) // 4 for part in parts], flat)

    def decode(self, column: pa.Array) -> list[Any]:
        """The inverse of encode: each value a copy of its bytes."""
        values, offsets = _list_parts(column)
        if not len(values):
            return [self.make() if valid else None for valid in _valid(column)]
        start = values.offset
        data = memoryview(values.buffers()[1])[4 * start : 4 * (start + len(values))]
        spans = pairwise(offsets)
        return [
            self.make(bytes(data[4 * first : 4 * last])) if valid else None
            for (first, last), valid in zip(spans, _valid(column), strict=True)
        ]


class ListOf(msgspec.Struct, frozen=True, dict=True):
    """Tuples of one kind of value. A null is read as `null`."""

    item: "Codec"
    null: Any = None

    @cached_property
    def type(self) -> pa.DataType:
        """list<item>."""
        return _list_type(self.item.type)

    @cached_property
    def is_flat(self) -> bool:
        """Whether the tuples need no flattening."""
        return isinstance(self.item, Scalar | Numbers) or self.item.is_flat

    def flatten(self, value: tuple[Any, ...] | None) -> tuple[Any, ...] | None:
        """The tuple with flattened items."""
        if not value or isinstance(self.item, Scalar | Numbers) or self.item.is_flat:
            return value
        several = isinstance(self.item, StructOf) and len(self.item.takes) > 1
        return tuple(starmap(self.item.flatten, value) if several else map(self.item.flatten, value))

    def encode(self, values: Sequence[Sequence[Any] | None]) -> pa.Array:
        """Shape: (values,), each of any length."""
        flat = self.item.encode([item for value in values if value for item in value])
        return _list_array(self.type, [None if value is None else len(value) for value in values], flat)

    def decode(self, column: pa.Array) -> list[Any]:
        """The inverse of encode, tuples."""
        if column.null_count == len(column):
            return [self.null] * len(column)
        flat, offsets = _list_parts(column)
        items = self.item.decode(flat)
        spans = pairwise(offsets)
        return [
            tuple(items[first:last]) if valid else self.null
            for (first, last), valid in zip(spans, _valid(column), strict=True)
        ]


class Json(msgspec.Struct, frozen=True):
    """JSON values as text. `flatten` makes the text (None: null); `read` is its inverse and decides what null means.

    `flatten` raises TypeError or ValueError for a value that is no JSON value.
    """

    flatten: Callable[[Any], str | None]
    read: Callable[[Any], Any]
    is_flat: ClassVar[bool] = False

    @property
    def type(self) -> pa.DataType:
        """Text."""
        return _TEXT.type

    def encode(self, values: Sequence[str | None]) -> pa.Array:
        """Turn values into one Arrow array, the only leaf of this column."""
        return _TEXT.encode(values)

    def decode(self, column: pa.Array) -> list[Any]:
        """The values. Raises msgspec.DecodeError (a ValueError) for text that is no JSON."""
        return [self.read(text) for text in _TEXT.decode(column)]


Codec: TypeAlias = "Scalar | Numbers | ListOf | Json | StructOf"
"""A codec of one kind of value.

`type` is the Arrow type of its column. `encode` makes a column of flattened values (and raises pyarrow's errors for a
value that does not fit); `decode` is its inverse. `flatten`, if not None, reduces a value before encoding; None stays
None.
"""


class Column(NamedTuple):
    """A column, or a field of a nested column: its name, its codec, and how to get its value from an object.

    `get` is a path of attributes (default: the name) or a function.
    """

    name: str
    codec: Codec
    get: str | Callable[[Any], Any] = ""


class StructOf(msgspec.Struct, frozen=True, dict=True):
    """Objects as structs, with one column per field. `make` builds an object from the fields by name.

    With `takes`, an object is flattened to a tuple of its fields as soon as it comes, because it has more than is
    stored. `takes` names the arguments from which columns get their values: the object, or several values. Objects
    without `takes` stay as they are until they are encoded.
    """

    make: Callable[..., Any]
    columns: tuple[Column, ...]
    takes: tuple[str, ...] = ()

    @cached_property
    def type(self) -> pa.DataType:
        """struct<field: type, …>."""
        return pa.struct([(name, codec.type) for name, codec, _ in self.columns])

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of its columns."""
        return tuple(column.name for column in self.columns)

    @property
    def is_flat(self) -> bool:
        """Whether objects stay as they are until they are encoded."""
        return not self.takes

    @cached_property
    def flatten(self) -> Callable[..., Any]:
        """The function that makes the tuple of fields from its arguments; None for None."""
        takes = ", ".join(self.takes) or "record"
        names: dict[str, Any] = {}
        fields: list[str] = []
        for position, (name, codec, get) in enumerate(self.columns):
            path = get or name
            if not isinstance(path, str):
                value = f"get{position}({takes})"
            else:
                value = path if len(self.takes) > 1 else f"{takes}.{path}"
            names[f"get{position}"] = get
            if isinstance(codec, Scalar | Numbers) or codec.is_flat:
                fields.append(value)
            else:
                names[f"flatten{position}"] = codec.flatten
                fields.append(f"flatten{position}({value})")
        may_be_none = "" if len(self.takes) > 1 else f"None if {takes} is None else "
        return _compiled(f"lambda {takes}: {may_be_none}({', '.join(fields)},)", names)

    @cached_property
    def _build(self) -> Callable[..., Any]:
        """`make` with positional arguments, which are faster."""
        keywords = ", ".join(f"{name}={name}" for name in self.names)
        return _compiled(f"lambda {', '.join(self.names)}: make({keywords})", {"make": self.make})

    def arrays(self, rows: Sequence[tuple[Any, ...]]) -> list[pa.Array]:
        """One array per column, for at least one flattened object; none of the objects is None."""
        return [
            column.codec.encode(values) for column, values in zip(self.columns, zip(*rows, strict=True), strict=True)
        ]

    def encode(self, values: Sequence[Any]) -> pa.Array:
        """Turn values into one Arrow array, the only leaf of this column."""
        values = values if self.takes else list(map(self.flatten, values))
        missing = values.count(None)
        if missing == len(values):  # also without any value: saves the arrays of all fields
            return pa.nulls(len(values), self.type)
        if not missing:
            return pa.StructArray.from_arrays(self.arrays(cast(Any, values)), type=self.type)
        blank = (None,) * len(self.columns)
        arrays = self.arrays([blank if value is None else value for value in values])
        return pa.Array.from_buffers(self.type, len(values), [_validity(values)], children=arrays)

    def decode(self, column: pa.Array) -> list[Any]:
        """Decode the objects. Fields that only the column has are ignored; fields that it lacks are null."""
        if column.null_count == len(column):
            return [None] * len(column)
        fields = {column.type.field(number).name: column.field(number) for number in range(column.type.num_fields)}
        objects = self.assemble(fields, len(column))
        return [one if valid else None for one, valid in zip(objects, _valid(column), strict=True)]

    def assemble(self, arrays: Mapping[str, pa.Array], count: int) -> list[Any]:
        """Build `length` objects from the arrays of their fields by name; a field without an array is null."""
        decoded = [
            codec.decode(arrays[name] if name in arrays else pa.nulls(count, codec.type))
            for name, codec, _ in self.columns
        ]
        return list(map(self._build, *decoded))


def _compiled(source: str, names: dict[str, Any]) -> Callable[..., Any]:
    """Compile a function for a table of columns, as namedtuple does: four times as fast as a loop over the table."""
    return eval(source, {"__builtins__": {}, **names})  # noqa: S307 # of names that stand in our own tables


def _list_type(item: pa.DataType) -> pa.DataType:
    return pa.list_(pa.field("element", item))  # Parquet's own name, so that a file is read with this same type


def _list_array(kind: pa.DataType, lengths: Sequence[int | None], flat: pa.Array) -> pa.Array:
    """Lists with these lengths (None: null), whose values follow each other in `flat`."""
    validity = _validity(lengths) if None in lengths else None
    offsets = array("i", [*accumulate([length or 0 for length in lengths], initial=0)])
    return pa.Array.from_buffers(kind, len(lengths), [validity, pa.py_buffer(offsets)], children=[flat])


def _validity(values: Sequence[object]) -> pa.Buffer:
    """A bitmap of the known values. Made by an array of flags, because a mask would load pyarrow.compute (40 ms)."""
    return pa.array([value is not None for value in values], pa.bool_()).buffers()[1]


def _list_parts(column: pa.Array) -> tuple[pa.Array, list[int]]:
    """The values of all lists together, and the begin and end of each list in these."""
    offsets: list[int] = column.offsets.to_pylist()
    first = offsets[0] if offsets else 0
    last = offsets[-1] if offsets else 0
    return column.values.slice(first, last - first), [offset - first for offset in offsets]


def _valid(column: pa.Array) -> list[bool]:
    return column.is_valid().to_pylist() if column.null_count else [True] * len(column)


def _whole(column: pa.Array) -> pa.Array:
    """Refuse chunked arrays: Arrow splits more than 2 GiB into chunks, which cannot be nested."""
    if isinstance(column, pa.ChunkedArray):
        raise pa.ArrowCapacityError("over 2 GiB of text")
    return column


_INT = Scalar(pa.int64())
_POSITION = Scalar(pa.int32())
_FLOAT = Scalar(pa.float64())
_BOOL = Scalar(pa.bool_())
_BYTES = Scalar(pa.binary())
_TEXTS = ListOf(_TEXT)
_TOKEN_IDS = Numbers(TokenIds, pa.int32())
_LOGPROBS = Numbers(Logprobs, pa.float32())
_VALUE = Json(value_text, value_of)
_OBJECT = Json(object_text, object_of)
_TOOLS = Json(lambda tools: json_text(tools) if tools else None, lambda text: () if text is None else list_of(text))


def _columns(codec: Codec, names: str, of: str = "") -> tuple[Column, ...]:
    """Columns with one codec; each value is the attribute of its name, of the object or of its attribute `of`."""
    return tuple(Column(name, codec, f"{of}{name}") for name in names.split())


_TOOL_CALL = StructOf(ToolCall, (*_columns(_TEXT, "id name arguments"), Column("exact", _BOOL)))

_MESSAGE = StructOf(
    Message,
    (
        *_columns(_TEXT, "role content name reasoning refusal tool_call_id"),
        Column("tool_calls", ListOf(_TOOL_CALL)),
        Column("parts", _TEXT),
    ),
)

_ART_MESSAGE = StructOf(
    ArtMessage, (*_columns(_TEXT, "role content tool_calls tool_call_id"), Column("trainable", _BOOL))
)

_REWARD = StructOf(
    Reward,
    (
        Column("name", _TEXT),
        Column("value", _FLOAT),
        Column("step", _INT),
        *_columns(_TEXT, "target source"),
        Column("time_ns", _INT),
        *_columns(_TEXT, "label explanation"),
        *_columns(_INT, "choice token_start token_end"),
        Column("target_kind", _TEXT),
    ),
)

_USAGE = StructOf(Usage, _columns(_INT, "input_tokens output_tokens total_tokens cached_tokens reasoning_tokens"))

_WEIGHT_VERSION = StructOf(WeightVersion, (Column("version", _TEXT), *_columns(_POSITION, "start end")))
_ROUTED_EXPERTS = StructOf(routed_experts_of, (Column("data", _BYTES), *_columns(_POSITION, "layers experts width")))

MESSAGE_NODE: Final = StructOf(
    MessageSource,
    (*_columns(_POSITION, "parent turn restates"), Column("message", _MESSAGE)),
    takes=MessageSource._fields,
)
"""The fields of a node of messages."""

TOKEN_NODE: Final = StructOf(
    RunSource, (*_columns(_POSITION, "parent turn kept"), Column("ids", _TOKEN_IDS)), takes=RunSource._fields
)
"""The fields of a node of token ids."""

_GAP: Final = StructOf(Gap, _columns(_TEXT, "kind field evidence"))

CALL: Final = StructOf(
    dict,
    (
        *_columns(_TEXT, "trace_id span_id operation_name", "call."),
        *_columns(_INT, "start_ns end_ns", "call."),
        *_columns(_TEXT, "response_id previous_response_id agent", "call."),
        Column("step", _INT, "call.step"),
        *_columns(_TEXT, "provider request_model response_model", "call."),
        Column("parameters", _OBJECT, "call.parameters"),
        Column("toolset", _POSITION),
        Column("usage", _USAGE, "call.usage"),
        *_columns(_TEXT, "policy_version policy_version_end error_type error failure closed_by_app", "call."),
        Column("stream", _BOOL, "call.stream"),
        *_columns(_TEXT, "prompt_known answer_known logprobs_mode marked_untrained", "call."),
        Column("gaps", ListOf(_GAP, null=()), "call.gaps"),
        Column("has_instructions", _BOOL, "call.has_instructions"),
        Column("media", ListOf(_TEXT, null=()), "call.media"),
        Column("conventions", _TEXTS, "call.conventions"),
        *_columns(_POSITION, "env_state extra"),
        *_columns(_POSITION, "prompt_node prompt_token_node"),
        *_columns(_INT, "drifted_at rewritten_at", "call."),
    ),
    takes=("call", "prompt_node", "prompt_token_node", "toolset", "env_state", "extra"),
)
"""The fields of a call, of a CallSource."""

TURN: Final = StructOf(
    dict,
    (
        *_columns(_POSITION, "call choice", "turn."),
        Column("index", _INT, "turn.index"),
        *_columns(_POSITION, "parent token_parent", "turn."),
        *_columns(_TEXT, "tokens_untrained text_untrained", "turn."),
        Column("message", _MESSAGE, "turn.message"),
        Column("finish_reason", _TEXT, "turn.finish_reason"),
        Column("token_ids", _TOKEN_IDS, "turn.token_ids"),
        Column("logprobs", _LOGPROBS, "turn.logprobs"),
        Column("weight_versions", ListOf(_WEIGHT_VERSION), "turn.weight_versions"),
        Column("routed_experts", _ROUTED_EXPERTS, "turn.routed_experts"),
        Column("sampling_mask", ListOf(_TOKEN_IDS), "turn.sampling_mask"),
        Column("prompt_tokens", _INT),
        Column("sampled_tokens", _INT, sampled_tokens),
        Column("unscored_tokens", _INT, unscored_tokens),
        Column("zero_logprobs", _INT, zero_logprobs),
    ),
    takes=("turn", "prompt_tokens"),
)
"""The fields of a turn, of a TurnSource."""

_TOOL_EXECUTION = StructOf(
    ToolExecution,
    (
        *_columns(_TEXT, "span_id name call_id"),
        *_columns(_VALUE, "arguments result"),
        Column("error", _TEXT),
        *_columns(_INT, "start_ns end_ns"),
        Column("turn", _POSITION),
    ),
    takes=("execution",),
)

_ADDED_MESSAGE = StructOf(AddedMessage, (Column("turn", _POSITION), Column("message", _MESSAGE)))

_ROLLOUT_TRACE = StructOf(
    dict,
    (
        Column("span_id", _TEXT),
        *(Column(name, _VALUE) for name in ("prompt", "policy_response", "reward_data", "env_state", "extra")),
    ),
    takes=("trace",),
)

_REASON = StructOf(
    lambda reason, count: (reason, count),
    (Column("reason", _TEXT, itemgetter(0)), Column("count", _INT, itemgetter(1))),
)


def _nothing(_: RowSource) -> None:
    """ART says something here of a group, which we do not have."""


ROW: Final = StructOf(
    dict,
    (
        Column("group_index", _INT, lambda source: group_index(source.trajectory)),
        Column("group_metadata", _TEXT, _nothing),
        Column("group_metrics", _TEXT, _nothing),
        Column("group_logs", _TEXTS, _nothing),
        Column("reward", _FLOAT, "trajectory.reward"),
        *_columns(_OBJECT, "metrics metadata"),
        Column("tools", _TOOLS, "trajectory.tools"),
        Column("logs", ListOf(_TEXT, null=()), lambda source: source.trajectory.logs or None),
        Column("messages", ListOf(_ART_MESSAGE)),
        *_columns(_TEXT, "rollout_id trace_id name group_id gathering", "trajectory."),
        Column("attempt", _INT, "trajectory.attempt"),
        Column("split", _TEXT, "trajectory.split"),
        Column("training_step", _INT, "trajectory.training_step"),
        Column("policy_version", StructOf(PolicyVersions, _columns(_TEXT, "first last")), "trajectory.policy_version"),
        *_columns(_TEXT, "parent_rollout_id status", "trajectory."),
        Column("revision", _INT, "trajectory.revision"),
        *_columns(_TEXT, "error end", "trajectory."),
        Column("complete", _BOOL, "trajectory.complete"),
        Column(
            "incomplete_reasons", ListOf(_REASON), lambda source: tuple(source.trajectory.incomplete_reasons.items())
        ),
        *_columns(_INT, "started_at ended_at", "trajectory."),
        Column("rewards", ListOf(_REWARD), "trajectory.rewards"),
        Column("nested_metadata", _OBJECT),
        *_columns(_TEXTS, "toolsets objects"),
        Column("message_nodes", ListOf(MESSAGE_NODE)),
        Column("token_nodes", ListOf(TOKEN_NODE)),
        Column("calls", ListOf(CALL)),
        Column("turns", ListOf(TURN)),
        Column("tool_calls", ListOf(_TOOL_EXECUTION), "trajectory.tool_calls"),
        Column("added_messages", ListOf(_ADDED_MESSAGE, null=()), "trajectory.added_messages"),
        Column("rollout_traces", ListOf(_ROLLOUT_TRACE)),
    ),
    takes=("source",),
)
"""Every column, in order, of a RowSource."""

_OF_TRACES: Final = frozenset({"rollout_id", "rollout_traces"})

_FOLLOWING: Final = frozenset(
    {"group_index", "group_metadata", "group_metrics", "group_logs", "messages", "rollout_traces"}
)
"""Columns for other readers, ART's first. Their values can be computed from the other columns."""

READ_ROW: Final = StructOf(dict, tuple(column for column in ROW.columns if column.name not in _FOLLOWING))
"""The columns from which a trajectory is read."""

TRACES_ROW: Final = StructOf(dict, tuple(column for column in ROW.columns if column.name in _OF_TRACES))
"""The columns from which rollout traces are read."""

SCHEMA: Final = pa.schema([*ROW.type], metadata={VERSION_KEY: str(SCHEMA_VERSION).encode()})
"""The columns of a trajectory file."""
