"""StoredCall: an inference call as a row holds it.

Invariant: of a call's prompt only what is new in it is stored, its choices are the row's turns, and what several calls
may share (lists of tools, the objects of a step) is stored once in the row.
"""

from collections.abc import Sequence

import msgspec

from art_otel.calls import Choice, InferenceCall, Usage
from art_otel.spans import Value  # noqa: TC001 # as the others, which msgspec reads
from art_otel.store.json_text import json_text, list_of, object_of, object_text
from art_otel.store.shared_texts import SharedTexts
from art_otel.trajectories import Prompt, RebuiltPrompt


class StoredCall(msgspec.Struct, frozen=True, gc=False):
    """An InferenceCall without its choices, and with its `prompt` as what is new in it.

    `toolset` is a position in the row's toolsets, `env_state` and `extra` are positions in its objects.
    """

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
    scrubbed: bool
    contradicted: bool
    env_state: int | None
    extra: int | None
    prompt: Prompt


class SharedByCalls:
    """The values that the calls of one row share: the `toolsets` and `objects` that stored calls refer to."""

    def __init__(self) -> None:
        self.toolsets: SharedTexts[tuple[Value, ...]] = SharedTexts(json_text)
        self.objects: SharedTexts[dict[str, Value]] = SharedTexts(json_text)


def store_calls(
    calls: Sequence[InferenceCall], prompts: Sequence[Prompt], shared: SharedByCalls
) -> tuple[StoredCall, ...]:
    """The stored calls; what they refer to is in `shared`. Raises ValueError unless there is a prompt a call."""
    return tuple([_store_call(call, prompt, shared) for call, prompt in zip(calls, prompts, strict=True)])


def _store_call(call: InferenceCall, prompt: Prompt, shared: SharedByCalls) -> StoredCall:
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
        None if call.tools is None else shared.toolsets.position(call.tools),
        call.usage,
        call.policy_version,
        call.error_type,
        call.error,
        call.stream,
        call.dropped_attributes,
        call.cut,
        call.conventions,
        call.scrubbed,
        call.contradicted,
        shared.objects.position(call.env_state) if call.env_state else None,
        shared.objects.position(call.extra) if call.extra else None,
        prompt,
    )


def restore_call(
    call: StoredCall,
    toolsets: Sequence[str],
    objects: Sequence[str],
    asked: RebuiltPrompt,
    choices: Sequence[Choice] | None,
) -> InferenceCall:
    """The call with its whole prompt and its choices, and with values of its own of what it refers to in its row.

    `toolsets` and `objects` are the row's JSON texts.
    """
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
        tools=None if call.toolset is None else list_of(toolsets[call.toolset]),
        input_messages=asked.messages,
        choices=None if choices is None else tuple(choices),
        prompt_token_ids=asked.token_ids,
        usage=call.usage,
        policy_version=call.policy_version,
        error_type=call.error_type,
        error=call.error,
        stream=call.stream,
        dropped_attributes=call.dropped_attributes,
        cut=call.cut,
        conventions=call.conventions,
        scrubbed=call.scrubbed,
        contradicted=call.contradicted,
        env_state={} if call.env_state is None else object_of(objects[call.env_state]),
        extra={} if call.extra is None else object_of(objects[call.extra]),
    )
