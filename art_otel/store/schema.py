"""Schema: the columns of a trajectory file. docs/spec/parquet.md owns their meaning.

Invariant: every type is explicit, so that a file whose lists are all empty or whose values are all null has the same
schema as any other. There are no maps, no empty structs and no timestamps (readers round or refuse nanoseconds).
"""

# pyarrow ships no types.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false, reportUnknownLambdaType=false

from typing import Final

import pyarrow as pa

from art_otel.calls import Logprobs, Message, TokenIds, ToolCall, Usage
from art_otel.store.art import ArtMessage
from art_otel.store.codecs import Codec, ListOf, Packed, Record, Scalar, keywords
from art_otel.store.rows import IncompleteReason, Row
from art_otel.store.stored_calls import StoredCall
from art_otel.store.stored_turns import StoredTurn
from art_otel.trajectories.trajectory import Edit, PolicyVersions, Reward

SCHEMA_VERSION: Final = 6
VERSION_KEY: Final = b"art_otel.schema_version"
ADDED_IN: Final = {
    "rewards.choice": 2,
    "rewards.token_start": 2,
    "rewards.token_end": 2,
    "rewards.target_kind": 3,
    "rewards.comparison": 4,
    "objects": 5,
    "turns.untrained": 6,
}
"""The version that added a column or nested field; files of earlier ones lack it and read as None there."""

_TEXT = Scalar(pa.string())
_INT = Scalar(pa.int64())
_POSITION = Scalar(pa.int32())
_FLOAT = Scalar(pa.float64())
_BOOL = Scalar(pa.bool_())
_TEXTS = ListOf(_TEXT)
_TOKEN_IDS = Packed(TokenIds, pa.int32())
_LOGPROBS = Packed(Logprobs, pa.float32())


def _keyword_record(make: type, fields: dict[str, Codec]) -> Record:
    return Record(keywords(make, tuple(fields)), fields)


_TOOL_CALL = _keyword_record(ToolCall, {"id": _TEXT, "name": _TEXT, "arguments": _TEXT, "exact": _BOOL})

_MESSAGE = Record(
    # Spelt out because most of reading is making messages, and a call by ** of a dict takes four times as long.
    lambda role, content, name, reasoning, refusal, tool_call_id, tool_calls, parts: Message(
        role=role,
        content=content,
        name=name,
        reasoning=reasoning,
        refusal=refusal,
        tool_call_id=tool_call_id,
        tool_calls=tool_calls,
        parts=parts,
    ),
    {
        "role": _TEXT,
        "content": _TEXT,
        "name": _TEXT,
        "reasoning": _TEXT,
        "refusal": _TEXT,
        "tool_call_id": _TEXT,
        "tool_calls": ListOf(_TOOL_CALL),
        "parts": _TEXT,
    },
)

_ART_MESSAGE = Record(
    ArtMessage, {"role": _TEXT, "content": _TEXT, "tool_calls": _TEXT, "tool_call_id": _TEXT, "trainable": _BOOL}
)

_REWARD = _keyword_record(
    Reward,
    {
        "name": _TEXT,
        "value": _FLOAT,
        "step": _INT,
        "target": _TEXT,
        "source": _TEXT,
        "time_ns": _INT,
        "label": _TEXT,
        "explanation": _TEXT,
        "choice": _INT,
        "token_start": _INT,
        "token_end": _INT,
        "target_kind": _TEXT,
        "comparison": _TEXT,
    },
)

_USAGE = _keyword_record(
    Usage,
    {
        "input_tokens": _INT,
        "output_tokens": _INT,
        "total_tokens": _INT,
        "cached_tokens": _INT,
        "reasoning_tokens": _INT,
    },
)

_CALL = Record(
    StoredCall,
    {
        "trace_id": _TEXT,
        "span_id": _TEXT,
        "operation_name": _TEXT,
        "start_ns": _INT,
        "end_ns": _INT,
        "response_id": _TEXT,
        "previous_response_id": _TEXT,
        "agent": _TEXT,
        "step": _INT,
        "provider": _TEXT,
        "request_model": _TEXT,
        "response_model": _TEXT,
        "parameters": _TEXT,
        "toolset": _POSITION,
        "usage": _USAGE,
        "policy_version": _TEXT,
        "error_type": _TEXT,
        "error": _TEXT,
        "stream": _BOOL,
        "dropped_attributes": _INT,
        "cut": _TEXTS,
        "conventions": _TEXTS,
        "env_state": _POSITION,
        "extra": _POSITION,
    },
)

TURN: Final = Record(
    StoredTurn,
    {
        "call": _POSITION,
        "choice": _POSITION,
        "choice_index": _INT,
        "parent": _POSITION,
        "drifted_from": _POSITION,
        "edits": ListOf(_keyword_record(Edit, {"index": _POSITION, "message": _MESSAGE})),
        "messages": ListOf(_MESSAGE),
        "context_token_ids": _TOKEN_IDS,
        "message": _MESSAGE,
        "finish_reason": _TEXT,
        "token_ids": _TOKEN_IDS,
        "logprobs": _LOGPROBS,
        "untrained": _TEXT,
    },
)
"""The fields of a turn."""

ROW: Final = Record(
    Row,
    {
        "group_metadata": _TEXT,
        "group_metrics": _TEXT,
        "group_logs": _TEXTS,
        "reward": _FLOAT,
        "metrics": _TEXT,
        "metadata": _TEXT,
        "tools": _TEXT,
        "logs": _TEXTS,
        "messages": ListOf(_ART_MESSAGE),
        "rollout_id": _TEXT,
        "trace_id": _TEXT,
        "name": _TEXT,
        "group_id": _TEXT,
        "attempt": _INT,
        "split": _TEXT,
        "training_step": _INT,
        "policy_version": _keyword_record(PolicyVersions, {"first": _TEXT, "last": _TEXT}),
        "parent_rollout_id": _TEXT,
        "status": _TEXT,
        "error": _TEXT,
        "complete": _BOOL,
        "incomplete_reasons": ListOf(Record(IncompleteReason, {"reason": _TEXT, "count": _INT})),
        "started_at": _INT,
        "ended_at": _INT,
        "rewards": ListOf(_REWARD),
        "nested_metadata": _TEXT,
        "toolsets": _TEXTS,
        "objects": _TEXTS,
        "calls": ListOf(_CALL),
        "turns": ListOf(TURN),
    },
)
"""Every column but group_index, in order: what one trajectory alone says."""

_CALL_UP_TO_4 = Record(StoredCall, {**_CALL.fields, "env_state": _TEXT, "extra": _TEXT})
_ROW_UP_TO_4 = Record(Row, {**ROW.fields, "calls": ListOf(_CALL_UP_TO_4)})


def row_of(version: int) -> Record:
    """The columns as a file of a schema version may have them: up to 4 each call had its objects' texts."""
    return _ROW_UP_TO_4 if version < ADDED_IN["objects"] else ROW


SCHEMA: Final = pa.schema(
    [pa.field("group_index", pa.int64()), *ROW.type], metadata={VERSION_KEY: str(SCHEMA_VERSION).encode()}
)
"""The columns of a trajectory file."""

DICTIONARY_LEAVES: Final = frozenset(
    (
        "role",
        "name",
        "finish_reason",
        "operation_name",
        "agent",
        "provider",
        "request_model",
        "response_model",
        "parameters",
        "policy_version",
        "error_type",
        "source",
        "conventions",
        "cut",
        "split",
        "status",
        "reason",
        "label",
        "tools",
        "toolsets",
        "group_id",
        "trace_id",
        "first",
        "last",
    )
)
"""Leaf columns of few different values, which a dictionary shrinks; elsewhere it only costs."""
