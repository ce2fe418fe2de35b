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
from art_otel.store.stored_tools import StoredToolExecution
from art_otel.store.stored_turns import StoredTurn
from art_otel.trajectories import Edit, PolicyVersions, Prompt, Reward

SCHEMA_VERSION: Final = 1
VERSION_KEY: Final = b"art_otel.schema"
FIRST_EDITION_KEY: Final = b"art_otel.schema_version"
"""The key that files of the first edition have instead of VERSION_KEY. Nothing reads them."""

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

PROMPT: Final = Record(
    lambda parent, token_parent, kept_messages, edits, messages, kept_tokens, context, drifted_at, respelled_at: Prompt(
        parent=parent,
        token_parent=token_parent,
        kept_messages=kept_messages,
        edits=edits or (),  # None where messages are not read
        messages=messages,
        kept_tokens=kept_tokens,
        context_token_ids=context,
        drifted_at=drifted_at,
        respelled_at=respelled_at,
    ),
    {
        "parent": _POSITION,
        "token_parent": _POSITION,
        "kept_messages": _INT,
        "edits": ListOf(_keyword_record(Edit, {"index": _POSITION, "message": _MESSAGE})),
        "messages": ListOf(_MESSAGE),
        "kept_tokens": _INT,
        "context_token_ids": _TOKEN_IDS,
        "drifted_at": _INT,
        "respelled_at": _INT,
    },
)
"""The fields of a call's prompt."""

CALL: Final = Record(
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
        "scrubbed": _BOOL,
        "contradicted": _BOOL,
        "env_state": _POSITION,
        "extra": _POSITION,
        "prompt": PROMPT,
    },
)
"""The fields of a call."""

TURN: Final = Record(
    StoredTurn,
    {
        "call": _POSITION,
        "choice": _POSITION,
        "choice_index": _INT,
        "untrained": _TEXT,
        "message": _MESSAGE,
        "finish_reason": _TEXT,
        "token_ids": _TOKEN_IDS,
        "logprobs": _LOGPROBS,
    },
)
"""The fields of a turn."""

_TOOL_EXECUTION = Record(
    StoredToolExecution,
    {
        "span_id": _TEXT,
        "name": _TEXT,
        "call_id": _TEXT,
        "arguments": _TEXT,
        "result": _TEXT,
        "error": _TEXT,
        "start_ns": _INT,
        "end_ns": _INT,
        "turn": _POSITION,
    },
)

ROW: Final = Record(
    Row,
    {
        "group_index": _INT,
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
        "revision": _INT,
        "error": _TEXT,
        "complete": _BOOL,
        "incomplete_reasons": ListOf(Record(IncompleteReason, {"reason": _TEXT, "count": _INT})),
        "started_at": _INT,
        "ended_at": _INT,
        "rewards": ListOf(_REWARD),
        "nested_metadata": _TEXT,
        "toolsets": _TEXTS,
        "objects": _TEXTS,
        "calls": ListOf(CALL),
        "turns": ListOf(TURN),
        "tool_calls": ListOf(_TOOL_EXECUTION),
    },
)
"""Every column, in order."""

SCHEMA: Final = pa.schema([*ROW.type], metadata={VERSION_KEY: str(SCHEMA_VERSION).encode()})
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
        "untrained",
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
