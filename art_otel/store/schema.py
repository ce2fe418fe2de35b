"""Schema: the table of columns of a trajectory file. docs/spec/parquet.md owns their meaning.

Invariant: a column stands here once, with its codec and with where its value is got; writing and reading both follow
this table. Every type is explicit, so that a file whose lists are all empty or whose values are all null has the same
schema as any other. There are no maps, no empty structs and no timestamps (readers round or refuse nanoseconds).
"""

# pyarrow ships no types.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false, reportUnknownLambdaType=false

from operator import itemgetter
from typing import Final

import pyarrow as pa

from art_otel.calls import Gap, Logprobs, Message, TokenIds, ToolCall, Usage
from art_otel.store.codecs import Codec, Column, Json, ListOf, Numbers, Record, Scalar
from art_otel.store.report import SCHEMA_VERSION, VERSION_KEY
from art_otel.store.rows import (
    ArtMessage,
    RowSource,
    group_index,
    json_text,
    list_of,
    object_of,
    object_text,
    value_of,
    value_text,
)
from art_otel.trajectories import AddedMessage, Edit, PolicyVersions, Prompt, Reward, ToolExecution

_TEXT = Scalar(pa.string())
_INT = Scalar(pa.int64())
_POSITION = Scalar(pa.int32())
_FLOAT = Scalar(pa.float64())
_BOOL = Scalar(pa.bool_())
_TEXTS = ListOf(_TEXT)
_TOKEN_IDS = Numbers(TokenIds, pa.int32())
_LOGPROBS = Numbers(Logprobs, pa.float32())
_VALUE = Json(value_text, value_of)
_OBJECT = Json(object_text, object_of)
_TOOLS = Json(lambda tools: json_text(tools) if tools else None, lambda text: () if text is None else list_of(text))


def _columns(codec: Codec, names: str, of: str = "") -> tuple[Column, ...]:
    """Columns of one codec, each the attribute of its name, of the object itself or of its attribute `of`."""
    return tuple(Column(name, codec, f"{of}{name}") for name in names.split())


_TOOL_CALL = Record(ToolCall, (*_columns(_TEXT, "id name arguments"), Column("exact", _BOOL)))

_MESSAGE = Record(
    Message,
    (
        *_columns(_TEXT, "role content name reasoning refusal tool_call_id"),
        Column("tool_calls", ListOf(_TOOL_CALL)),
        Column("parts", _TEXT),
    ),
)

_ART_MESSAGE = Record(
    ArtMessage, (*_columns(_TEXT, "role content tool_calls tool_call_id"), Column("trainable", _BOOL))
)

_REWARD = Record(
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

_USAGE = Record(Usage, _columns(_INT, "input_tokens output_tokens total_tokens cached_tokens reasoning_tokens"))

_EDIT = Record(Edit, (Column("index", _POSITION), Column("message", _MESSAGE)))

PROMPT: Final = Record(
    Prompt,
    (
        *_columns(_POSITION, "parent token_parent"),
        Column("kept_messages", _INT),
        Column("edits", ListOf(_EDIT, null=())),  # null where messages are not read
        Column("messages", ListOf(_MESSAGE)),
        Column("kept_tokens", _INT),
        Column("context_token_ids", _TOKEN_IDS),
        *_columns(_INT, "drifted_at respelled_at"),
    ),
)
"""The fields of a call's prompt."""

_GAP: Final = Record(Gap, _columns(_TEXT, "kind field evidence"))

CALL: Final = Record(
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
        *_columns(_TEXT, "policy_version error_type error", "call."),
        Column("stream", _BOOL, "call.stream"),
        *_columns(_TEXT, "prompt_known answer_known", "call."),
        Column("gaps", ListOf(_GAP, null=()), "call.gaps"),
        Column("has_instructions", _BOOL, "call.has_instructions"),
        Column("conventions", _TEXTS, "call.conventions"),
        *_columns(_POSITION, "env_state extra"),
        Column("prompt", PROMPT),
    ),
    eager=True,
)
"""The fields of a call, of a CallSource."""

TURN: Final = Record(
    dict,
    (
        *_columns(_POSITION, "call choice", "turn."),
        Column("choice_index", _INT),
        Column("untrained", _TEXT, "turn.untrained"),
        Column("message", _MESSAGE, "turn.message"),
        Column("finish_reason", _TEXT, "turn.finish_reason"),
        Column("token_ids", _TOKEN_IDS, "turn.token_ids"),
        Column("logprobs", _LOGPROBS, "turn.logprobs"),
    ),
    eager=True,
)
"""The fields of a turn, of a TurnSource."""

_TOOL_EXECUTION = Record(
    ToolExecution,
    (
        *_columns(_TEXT, "span_id name call_id"),
        *_columns(_VALUE, "arguments result"),
        Column("error", _TEXT),
        *_columns(_INT, "start_ns end_ns"),
        Column("turn", _POSITION),
    ),
    eager=True,
)

_ADDED_MESSAGE = Record(AddedMessage, (Column("turn", _POSITION), Column("message", _MESSAGE)))

_ROLLOUT_TRACE = Record(
    dict,
    (
        Column("span_id", _TEXT),
        *(Column(name, _VALUE) for name in ("prompt", "policy_response", "reward_data", "env_state", "extra")),
    ),
    eager=True,
)

_REASON = Record(
    lambda reason, count: (reason, count),
    (Column("reason", _TEXT, itemgetter(0)), Column("count", _INT, itemgetter(1))),
)


def _nothing(_: RowSource) -> None:
    """ART says something here of a group, which we do not have."""


ROW: Final = Record(
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
        *_columns(_TEXT, "rollout_id trace_id name group_id", "trajectory."),
        Column("attempt", _INT, "trajectory.attempt"),
        Column("split", _TEXT, "trajectory.split"),
        Column("training_step", _INT, "trajectory.training_step"),
        Column("policy_version", Record(PolicyVersions, _columns(_TEXT, "first last")), "trajectory.policy_version"),
        *_columns(_TEXT, "parent_rollout_id status", "trajectory."),
        Column("revision", _INT, "trajectory.revision"),
        Column("error", _TEXT, "trajectory.error"),
        Column("complete", _BOOL, "trajectory.complete"),
        Column(
            "incomplete_reasons", ListOf(_REASON), lambda source: tuple(source.trajectory.incomplete_reasons.items())
        ),
        *_columns(_INT, "started_at ended_at", "trajectory."),
        Column("rewards", ListOf(_REWARD), "trajectory.rewards"),
        Column("nested_metadata", _OBJECT),
        *_columns(_TEXTS, "toolsets objects"),
        Column("calls", ListOf(CALL)),
        Column("turns", ListOf(TURN)),
        Column("tool_calls", ListOf(_TOOL_EXECUTION), "trajectory.tool_calls"),
        Column("added_messages", ListOf(_ADDED_MESSAGE, null=()), "trajectory.added_messages"),
        Column("rollout_traces", ListOf(_ROLLOUT_TRACE)),
    ),
    eager=True,
)
"""Every column, in order, of a RowSource."""

_OF_TRACES: Final = frozenset({"rollout_id", "rollout_traces"})

_FOLLOWING: Final = frozenset(
    {"group_index", "group_metadata", "group_metrics", "group_logs", "messages", "rollout_traces"}
)
"""Columns for readers of their own, ART's first: they follow from the others."""

READ_ROW: Final = Record(dict, tuple(column for column in ROW.columns if column.name not in _FOLLOWING))
"""The columns that a trajectory is read from."""

TRACES_ROW: Final = Record(dict, tuple(column for column in ROW.columns if column.name in _OF_TRACES))
"""The columns that rollout traces are read from."""

SCHEMA: Final = pa.schema([*ROW.type], metadata={VERSION_KEY: str(SCHEMA_VERSION).encode()})
"""The columns of a trajectory file."""

DICTIONARY_LEAVES: Final = frozenset((
    "agent", "answer_known", "conventions", "error_type", "evidence", "field", "finish_reason", "first", "group_id",
    "kind", "label", "last", "name", "operation_name", "parameters", "policy_version", "prompt_known", "provider",
    "reason", "request_model", "response_model", "role", "source", "split", "status", "tools", "toolsets",
    "trace_id", "untrained",
))  # fmt: skip
"""Leaf columns of few different values, which a dictionary shrinks; elsewhere it only costs."""


def _leaf_paths(path: str, kind: pa.DataType) -> list[str]:
    if pa.types.is_list(kind):
        return _leaf_paths(f"{path}.list.element", kind.value_type)
    if pa.types.is_struct(kind):
        return [leaf for field in kind for leaf in _leaf_paths(f"{path}.{field.name}", field.type)]
    return [path]


LEAF_PATHS: Final = tuple(path for field in SCHEMA for path in _leaf_paths(field.name, field.type))
"""Parquet's paths of the columns that hold values, in the order of a file."""


def dictionary_columns() -> list[str]:
    """Parquet's paths of the columns that have a dictionary."""
    return [path for path in LEAF_PATHS if path.removesuffix(".list.element").rpartition(".")[2] in DICTIONARY_LEAVES]
