"""StoredToolExecution: one run of a tool as a row holds it.

Invariant: arguments and result are JSON text, null where they are unknown, and read back equal.
"""

from collections.abc import Iterable

import msgspec

from art_otel.store.json_text import value_of, value_text
from art_otel.trajectories import ToolExecution


class StoredToolExecution(msgspec.Struct, frozen=True, gc=False):
    """A ToolExecution with `arguments` and `result` as JSON text."""

    span_id: str
    name: str
    call_id: str | None
    arguments: str | None
    result: str | None
    error: str | None
    start_ns: int
    end_ns: int | None
    turn: int | None


def store_tool_calls(executions: Iterable[ToolExecution]) -> tuple[StoredToolExecution, ...]:
    """The stored runs of tools. Raises what msgspec does for arguments and results that are no JSON values."""
    return tuple(
        StoredToolExecution(
            one.span_id,
            one.name,
            one.call_id,
            value_text(one.arguments),
            value_text(one.result),
            one.error,
            one.start_ns,
            one.end_ns,
            one.turn,
        )
        for one in executions
    )


def restore_tool_calls(stored: Iterable[StoredToolExecution]) -> tuple[ToolExecution, ...]:
    """The inverse of store_tool_calls. Raises msgspec.DecodeError (a ValueError) for text that is no JSON."""
    return tuple(
        ToolExecution(
            span_id=one.span_id,
            name=one.name,
            call_id=one.call_id,
            arguments=value_of(one.arguments),
            result=value_of(one.result),
            error=one.error,
            start_ns=one.start_ns,
            end_ns=one.end_ns,
            turn=one.turn,
        )
        for one in stored
    )
