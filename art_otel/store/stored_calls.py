"""StoredCall: an inference call as a row holds it.

Invariant: what the turns say of a call (its prompt and its choices) is not stored with it, and a list of tools that
several calls had is stored once in the row.
"""

from collections.abc import Mapping, Sequence

import msgspec

from art_otel.calls import Choice, InferenceCall, Usage
from art_otel.spans import Value
from art_otel.store.json_text import json_text, object_of, object_text
from art_otel.store.prompts import Prompt


class StoredCall(msgspec.Struct, frozen=True, gc=False):
    """An InferenceCall without what its turns say. `toolset` is a position in the row's toolsets."""

    trace_id: str
    span_id: str
    operation_name: str
    start_ns: int
    end_ns: int | None
    response_id: str | None
    previous_response_id: str | None
    agent: str | None
    step: int | None
    provider: str | None
    request_model: str | None
    response_model: str | None
    parameters: str | None
    toolset: int | None
    usage: Usage | None
    policy_version: str | None
    error_type: str | None
    error: str | None
    stream: bool | None
    dropped_attributes: int
    cut: tuple[str, ...]
    conventions: tuple[str, ...]
    env_state: str | None
    extra: str | None


def store_calls(calls: Sequence[InferenceCall], toolsets: dict[str, int]) -> tuple[StoredCall, ...]:
    """The stored calls; `toolsets` numbers the lists of tools met so far, by their JSON text."""
    shared = _SharedTexts()
    return tuple([_store_call(call, toolsets, shared) for call in calls])


class _SharedTexts:
    """JSON texts of objects that several calls may share, as those of a step do, each written once.

    The calls keep the objects for as long as their ids are known here.
    """

    def __init__(self) -> None:
        self._texts: dict[int, str | None] = {}

    def of(self, value: Mapping[str, Value]) -> str | None:
        if not value:
            return None
        if id(value) not in self._texts:
            self._texts[id(value)] = object_text(value)
        return self._texts[id(value)]


def _store_call(call: InferenceCall, toolsets: dict[str, int], shared: _SharedTexts) -> StoredCall:
    return StoredCall(  # by position, in the order of its fields: by name takes five times as long
        call.trace_id,
        call.span_id,
        call.operation_name,
        call.start_ns,
        call.end_ns,
        call.response_id,
        call.previous_response_id,
        call.agent,
        call.step,
        call.provider,
        call.request_model,
        call.response_model,
        object_text(call.parameters),
        None if call.tools is None else toolsets.setdefault(json_text(call.tools), len(toolsets)),
        call.usage,
        call.policy_version,
        call.error_type,
        call.error,
        call.stream,
        call.dropped_attributes,
        call.cut,
        call.conventions,
        shared.of(call.env_state),
        shared.of(call.extra),
    )


def restore_call(
    call: StoredCall, toolsets: Sequence[tuple[Value, ...]], prompt: Prompt, choices: Sequence[Choice] | None
) -> InferenceCall:
    """The call with the prompt and choices that its turns tell."""
    return InferenceCall(
        trace_id=call.trace_id,
        span_id=call.span_id,
        operation_name=call.operation_name,
        start_ns=call.start_ns,
        end_ns=call.end_ns,
        response_id=call.response_id,
        previous_response_id=call.previous_response_id,
        agent=call.agent,
        step=call.step,
        provider=call.provider,
        request_model=call.request_model,
        response_model=call.response_model,
        parameters=object_of(call.parameters),
        tools=None if call.toolset is None else toolsets[call.toolset],
        input_messages=prompt.messages,
        choices=None if choices is None else tuple(choices),
        prompt_token_ids=prompt.token_ids,
        usage=call.usage,
        policy_version=call.policy_version,
        error_type=call.error_type,
        error=call.error,
        stream=call.stream,
        dropped_attributes=call.dropped_attributes,
        cut=call.cut,
        conventions=call.conventions,
        env_state=object_of(call.env_state),
        extra=object_of(call.extra),
    )
