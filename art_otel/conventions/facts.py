"""CallFacts: the fields of a call that one dialect recorded, and how those of two dialects are merged.

Invariant: unknown is None, and known facts of the more trusted side always win, field by field. What a message says
(content, refusal, tool calls) is one such fact: it is never put together from two recordings. Where both recorded the
same message, which they often did with different losses, each gives what lies around it: reasoning, ids, parts, names.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

import msgspec

from art_otel.calls import Choice, Message, TokenIds, ToolCall, Usage, canonical_arguments
from art_otel.spans import Value


class CallFacts(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The fields of an InferenceCall that a dialect may record; see there for what they mean."""

    conventions: tuple[str, ...] = ()
    operation_name: str | None = None
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


NOTHING: Final = CallFacts()

UNSAID: Final = Message(role="assistant")
"""The message of a choice of which only the tokens were recorded."""


def merge_facts(trusted: CallFacts, other: CallFacts) -> CallFacts:
    """Merge the facts of two dialects: where both have a field, the more trusted one wins."""
    prompt, choices, used, cut = trusted.input_messages, trusted.choices, trusted.usage, other.cut
    merged = CallFacts(
        operation_name=trusted.operation_name or other.operation_name,
        response_id=trusted.response_id or other.response_id,
        provider=trusted.provider or other.provider,
        request_model=trusted.request_model or other.request_model,
        response_model=trusted.response_model or other.response_model,
        parameters={**other.parameters, **trusted.parameters},
        tools=other.tools if trusted.tools is None else trusted.tools,
        input_messages=other.input_messages if prompt is None else _merge_inputs(prompt, other.input_messages),
        choices=other.choices if choices is None else _merge_choices(choices, other.choices),
        prompt_token_ids=other.prompt_token_ids if trusted.prompt_token_ids is None else trusted.prompt_token_ids,
        usage=other.usage if used is None else _merge_usage(used, other.usage),
        policy_version=trusted.policy_version or other.policy_version,
        stream=other.stream if trusted.stream is None else trusted.stream,
    )
    return msgspec.structs.replace(  # in two steps: more than 15 arguments at once take four times as long
        merged,
        conventions=_conventions(trusted.conventions, other.conventions),
        previous_response_id=trusted.previous_response_id or other.previous_response_id,
        cut=union(trusted.cut, cut) if cut else trusted.cut,
    )


def union(first: Sequence[str], second: Sequence[str]) -> tuple[str, ...]:
    """The names of both, each once, in order."""
    if not second:
        return tuple(first)
    return tuple(dict.fromkeys((*first, *second)))


_conventions: Final = lru_cache(maxsize=256)(union)  # they are few, and most calls have the same


def compatible(first: Message, second: Message) -> bool:
    """Whether two recordings may be of one message: nothing that both have differs but ids and participant names."""
    return first is second or (
        first.role == second.role
        and _no_conflict(first.content, second.content)
        and _no_conflict(first.refusal, second.refusal)
        and _no_conflict(first.parts, second.parts)
        and _no_conflict(first.tool_call_id, second.tool_call_id)
        and _no_conflict(_tool_calls_of(first), _tool_calls_of(second))
    )


def _no_conflict(first: object, second: object) -> bool:
    return not first or not second or first == second


def _tool_calls_of(message: Message) -> list[tuple[str, str]]:
    return [(call.name, canonical_arguments(call.arguments)) for call in message.tool_calls]


def _merge_message(trusted: Message, other: Message) -> Message | None:
    """Merge two recordings of a message; None when they cannot be of one."""
    if trusted is other:
        return trusted
    if trusted is UNSAID and other.content and other.role == UNSAID.role:  # as below, without comparing each field
        return other
    if trusted == Message(role=other.role) and _has_content(other):  # as where only ids are known exactly
        return other
    if not compatible(trusted, other):
        return None
    first, second = _without_repeated(trusted, other.refusal), _without_repeated(other, trusted.refusal)
    content_source = first if _has_content(first) or not _has_content(second) else second
    calls = zip(first.tool_calls, second.tool_calls, strict=True) if first.tool_calls and second.tool_calls else ()
    return Message(
        role=first.role,
        content=content_source.content,
        name=first.name or second.name,
        reasoning=first.reasoning or second.reasoning,
        refusal=content_source.refusal,
        tool_calls=tuple(_merge_tool_call(*pair) for pair in calls) or content_source.tool_calls,
        tool_call_id=first.tool_call_id or second.tool_call_id,
        parts=first.parts or (second.parts if second.content == content_source.content else None),
    )


def _has_content(message: Message) -> bool:
    return bool(message.content or message.refusal or message.tool_calls or message.parts)


def _without_repeated(message: Message, refusal: str | None) -> Message:
    """Drop a content that the other recording has as refusal: some instrumentors record text only."""
    if not refusal or message.refusal or message.content != refusal:
        return message
    return msgspec.structs.replace(message, content=None, parts=None)


def _merge_tool_call(trusted: ToolCall, other: ToolCall) -> ToolCall:
    spelled = other if other.exact and not trusted.exact else trusted
    return ToolCall(id=trusted.id or other.id, name=trusted.name, arguments=spelled.arguments, exact=spelled.exact)


def _merge_inputs(trusted: tuple[Message, ...], other: tuple[Message, ...] | None) -> tuple[Message, ...]:
    """Merge message by message when both recorded the same prompt; else the trusted one."""
    if not trusted or not other:
        return trusted or other or trusted
    if len(trusted) != len(other) or not all(map(compatible, trusted, other)):
        return trusted
    return tuple(_merge_message(*pair) or pair[0] for pair in zip(trusted, other, strict=True))


def merge_prompts(sent: tuple[Message, ...], shown: tuple[Message, ...] | None) -> tuple[Message, ...]:
    """Merge the prompt that was sent with another recording of it.

    Arguments of tool calls are spelled as they were sent: a framework may spell what was sampled anew.
    """
    merged = _merge_inputs(sent, shown)
    return merged if merged is sent or not sent else tuple(map(_spelled_as, merged, sent))


def _spelled_as(merged: Message, sent: Message) -> Message:
    if not sent.tool_calls or merged.tool_calls == sent.tool_calls:
        return merged
    spelled = [
        msgspec.structs.replace(call, arguments=known.arguments, exact=known.exact)
        for call, known in zip(merged.tool_calls, sent.tool_calls, strict=True)
    ]
    return msgspec.structs.replace(merged, tool_calls=tuple(spelled))


def _merge_choices(trusted: tuple[Choice, ...], other: tuple[Choice, ...] | None) -> tuple[Choice, ...]:
    if other is None:
        return trusted
    if len(trusted) == len(other) == 1 and trusted[0].index == other[0].index:
        return (_merge_choice(trusted[0], other[0]),)
    merged = {choice.index: choice for choice in other}
    for choice in trusted:
        counterpart = merged.get(choice.index)
        merged[choice.index] = choice if counterpart is None else _merge_choice(choice, counterpart)
    return tuple(merged[index] for index in sorted(merged))


def _merge_choice(trusted: Choice, other: Choice) -> Choice:
    message = _merge_message(trusted.message, other.message)
    if message is None:
        return trusted
    ids = other.token_ids if trusted.token_ids is None else trusted.token_ids
    logprobs = other.logprobs if trusted.logprobs is None else trusted.logprobs
    return Choice(
        index=trusted.index,
        message=message,
        finish_reason=trusted.finish_reason or other.finish_reason,
        token_ids=ids,
        logprobs=logprobs if ids is None or logprobs is None or len(logprobs.data) == len(ids.data) else None,
    )


def _merge_usage(trusted: Usage, other: Usage | None) -> Usage:
    if other is None:
        return trusted
    counts = msgspec.structs.asdict(other)
    counts |= {name: count for name, count in msgspec.structs.asdict(trusted).items() if count is not None}
    return Usage(**counts)
