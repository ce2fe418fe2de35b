"""CallFacts: what one convention knows about a call, and how the knowledge of two becomes one.

Invariant: unknown is None, and known facts of the more trusted side always win, field by field. Only where both sides
recorded the same message, which they often did with different losses, does each give what the other lacks.
"""

from collections.abc import Sequence

import msgspec

from art_otel.calls import Choice, Message, TokenIds, ToolCall, Usage, canonical_arguments
from art_otel.spans import Value


class CallFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of an InferenceCall that a convention may know; see there for what they mean."""

    conventions: tuple[str, ...] = ()
    response_id: str | None = None
    previous_response_id: str | None = None
    provider: str | None = None
    request_model: str | None = None
    response_model: str | None = None
    parameters: dict[str, Value] = {}
    tools: tuple[Value, ...] | None = None
    input_messages: tuple[Message, ...] | None = None
    choices: tuple[Choice, ...] | None = None
    prompt_token_ids: TokenIds | None = None
    usage: Usage | None = None
    policy_version: str | None = None
    stream: bool | None = None
    cut: tuple[str, ...] = ()


def merge_facts(trusted: CallFacts, other: CallFacts) -> CallFacts:
    """The facts of both."""
    return CallFacts(
        conventions=united(trusted.conventions, other.conventions),
        response_id=trusted.response_id or other.response_id,
        previous_response_id=trusted.previous_response_id or other.previous_response_id,
        provider=trusted.provider or other.provider,
        request_model=trusted.request_model or other.request_model,
        response_model=trusted.response_model or other.response_model,
        parameters={**other.parameters, **trusted.parameters},
        tools=other.tools if trusted.tools is None else trusted.tools,
        input_messages=_merge_inputs(trusted.input_messages, other.input_messages),
        choices=_merge_choices(trusted.choices, other.choices),
        prompt_token_ids=other.prompt_token_ids if trusted.prompt_token_ids is None else trusted.prompt_token_ids,
        usage=_merge_usage(trusted.usage, other.usage),
        policy_version=trusted.policy_version or other.policy_version,
        stream=other.stream if trusted.stream is None else trusted.stream,
        cut=united(trusted.cut, other.cut),
    )


def united(first: Sequence[str], second: Sequence[str]) -> tuple[str, ...]:
    """All names of both, each once, in order."""
    return tuple(dict.fromkeys((*first, *second)))


def compatible(first: Message, second: Message) -> bool:
    """Whether two recordings can be of one message: nothing that both know differs but ids and participant names."""
    return first is second or (
        first.role == second.role
        and _agree(first.content, second.content)
        and _agree(first.refusal, second.refusal)
        and _agree(first.parts, second.parts)
        and _agree(first.tool_call_id, second.tool_call_id)
        and _agree(_meanings(first), _meanings(second))
    )


def _agree(first: object, second: object) -> bool:
    return not first or not second or first == second


def _meanings(message: Message) -> list[tuple[str, str]]:
    return [(call.name, canonical_arguments(call.arguments)) for call in message.tool_calls]


def _merge_message(trusted: Message, other: Message) -> Message:
    if trusted is other or not compatible(trusted, other):
        return trusted
    calls = zip(trusted.tool_calls, other.tool_calls, strict=True) if trusted.tool_calls and other.tool_calls else ()
    return Message(
        role=trusted.role,
        content=trusted.content or other.content or (other.content if trusted.content is None else trusted.content),
        name=trusted.name or other.name,
        reasoning=trusted.reasoning or other.reasoning,
        refusal=trusted.refusal or other.refusal,
        tool_calls=tuple(_merge_tool_call(*pair) for pair in calls) or trusted.tool_calls or other.tool_calls,
        tool_call_id=trusted.tool_call_id or other.tool_call_id,
        parts=trusted.parts or other.parts,
    )


def _merge_tool_call(trusted: ToolCall, other: ToolCall) -> ToolCall:
    spelled = other if other.exact and not trusted.exact else trusted
    return ToolCall(id=trusted.id or other.id, name=trusted.name, arguments=spelled.arguments, exact=spelled.exact)


def _merge_inputs(trusted: tuple[Message, ...] | None, other: tuple[Message, ...] | None) -> tuple[Message, ...] | None:
    """Message by message when both recorded the same prompt, else the trusted one."""
    if not trusted or not other:
        return trusted or (other if trusted is None else other or trusted)
    if len(trusted) != len(other) or not all(map(compatible, trusted, other)):
        return trusted
    return tuple(map(_merge_message, trusted, other))


def _merge_choices(trusted: tuple[Choice, ...] | None, other: tuple[Choice, ...] | None) -> tuple[Choice, ...] | None:
    if trusted is None or other is None:
        return other if trusted is None else trusted
    merged = {choice.index: choice for choice in other}
    for choice in trusted:
        recorded = merged.get(choice.index)
        merged[choice.index] = choice if recorded is None else _merge_choice(choice, recorded)
    return tuple(merged[index] for index in sorted(merged))


def _merge_choice(trusted: Choice, other: Choice) -> Choice:
    if not compatible(trusted.message, other.message):
        return trusted
    ids = other.token_ids if trusted.token_ids is None else trusted.token_ids
    logprobs = other.logprobs if trusted.logprobs is None else trusted.logprobs
    return Choice(
        index=trusted.index,
        message=_merge_message(trusted.message, other.message),
        finish_reason=trusted.finish_reason or other.finish_reason,
        token_ids=ids,
        logprobs=None if ids is not None and logprobs is not None and len(logprobs) != len(ids) else logprobs,
    )


def _merge_usage(trusted: Usage | None, other: Usage | None) -> Usage | None:
    if trusted is None or other is None:
        return trusted or other
    counts = msgspec.structs.asdict(other)
    counts |= {name: count for name, count in msgspec.structs.asdict(trusted).items() if count is not None}
    return Usage(**counts)
