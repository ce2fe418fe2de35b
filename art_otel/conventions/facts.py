"""CallFacts: the fields of a call that one dialect recorded, and the merge of the facts of two dialects.

    trusted   model None      answer: "4", ids 11 12
    lesser    model "gpt-5"   answer: "Four", reasoning "2 + 2 = 4"
    merged    model "gpt-5"   answer: "4", ids 11 12                  another text: nothing of this answer is taken over

Invariant: unknown is None, and if both dialects have a field, the more trusted one wins. Content, refusal and tool
calls of a message are one field, never combined from two recordings. If both recorded the same message, each adds the
reasoning, ids, parts and names that only it has.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache, reduce
from typing import Final

import msgspec

from art_otel.calls import (
    ON_SERVER,
    Choice,
    Gap,
    GapKind,
    Known,
    Message,
    StreamClose,
    TokenIds,
    ToolCall,
    Usage,
    canonical_arguments,
)
from art_otel.conventions.attributes import AttributeReader
from art_otel.sampling import LogprobsMode
from art_otel.spans import Value


class CallFacts(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The fields of an InferenceCall that a dialect may record, with the same meaning."""

    conventions: tuple[str, ...] = ()
    operation_name: str | None = None
    response_id: str | None = None
    previous_response_id: str | None = None
    provider: str | None = None
    request_model: str | None = None
    response_model: str | None = None
    parameters: dict[str, Value] = {}
    tools: Sequence[Value] | None = None
    input_messages: tuple[Message, ...] | None = None
    choices: tuple[Choice, ...] | None = None
    prompt_token_ids: TokenIds | None = None
    usage: Usage | None = None
    policy_version: str | None = None
    policy_version_end: str | None = None
    stream: bool | None = None
    closed_by_app: StreamClose | None = None
    prompt_known: Known | None = None
    answer_known: Known | None = None
    gaps: tuple[Gap, ...] = ()
    has_instructions: bool | None = None
    logprobs_mode: LogprobsMode | None = None


NO_FACTS: Final = CallFacts()


UNKNOWN_MESSAGE: Final = Message(role="assistant")
"""The message of a choice if only its tokens were recorded."""


def merge_facts(trusted: CallFacts, lesser: CallFacts) -> CallFacts:
    """Merge the facts of two dialects: if both have a field, the more trusted one wins."""
    prompt, choices, usage = trusted.input_messages, trusted.choices, trusted.usage
    # A verbatim body has its own instructions, if there were any: a framework's must not be added.
    if prompt and lesser.input_messages and trusted.prompt_known != "verbatim body":
        prompt = _with_lost_instructions(prompt, lesser.input_messages)
    merged = CallFacts(
        operation_name=trusted.operation_name or lesser.operation_name,
        response_id=trusted.response_id or lesser.response_id,
        provider=trusted.provider or lesser.provider,
        request_model=trusted.request_model or lesser.request_model,
        response_model=trusted.response_model or lesser.response_model,
        parameters={**lesser.parameters, **trusted.parameters},
        tools=lesser.tools if trusted.tools is None else trusted.tools,
        input_messages=lesser.input_messages if prompt is None else _merge_inputs(prompt, lesser.input_messages),
        choices=lesser.choices if choices is None else _merge_choices(choices, lesser.choices),
        prompt_token_ids=lesser.prompt_token_ids if trusted.prompt_token_ids is None else trusted.prompt_token_ids,
        usage=lesser.usage if usage is None else _merge_usage(usage, lesser.usage),
        stream=lesser.stream if trusted.stream is None else trusted.stream,
    )
    versioned = trusted if trusted.policy_version else lesser
    return msgspec.structs.replace(  # in two steps: more than 15 arguments at once take four times as long
        merged,
        conventions=_conventions(trusted.conventions, lesser.conventions),
        previous_response_id=trusted.previous_response_id or lesser.previous_response_id,
        policy_version=versioned.policy_version,
        policy_version_end=versioned.policy_version_end,
        prompt_known=lesser.prompt_known if prompt is None else trusted.prompt_known,
        answer_known=trusted.answer_known if _tells(choices) else lesser.answer_known or trusted.answer_known,
        gaps=_merge_gaps(trusted, lesser) if lesser.gaps else trusted.gaps,
        has_instructions=lesser.has_instructions if trusted.has_instructions is None else trusted.has_instructions,
        logprobs_mode=trusted.logprobs_mode or lesser.logprobs_mode,
        closed_by_app=_closed_by_app(trusted.closed_by_app, lesser.closed_by_app),
    )


def _closed_by_app(trusted: StreamClose | None, lesser: StreamClose | None) -> StreamClose | None:
    """Merge two reports of a closed stream: `finished` wins, because only the app itself knows that it was done."""
    return "finished" if "finished" in (trusted, lesser) else trusted or lesser


def recorded_facts(convention: str, reader: AttributeReader, *parts: CallFacts | None) -> CallFacts | None:
    """Merge the parts that a dialect read, the most trusted first; None if the dialect has recorded nothing."""
    facts = reduce(merge_facts, [part for part in parts if part is not None] or [NO_FACTS])
    if facts == NO_FACTS and not reader.gaps:
        return None
    return msgspec.structs.replace(facts, conventions=(convention,), gaps=reader.gaps)


def _tells(choices: Sequence[Choice] | None) -> bool:
    """Whether any choice has content, and not only tokens."""
    return choices is not None and any(choice.message is not UNKNOWN_MESSAGE for choice in choices)


def _merge_gaps(trusted: CallFacts, lesser: CallFacts) -> tuple[Gap, ...]:
    """The gaps of both dialects, without the lesser one's gaps in fields that the trusted one has whole."""
    # Some gaps always stay: a lossy recorder may have written both dialects, and what the server did to a prompt, or
    # has of it alone, is in no recording.
    whole = _whole_fields(trusted)
    kept = [
        gap
        for gap in lesser.gaps
        if gap.kind in ("lossy recorder", "compacted")
        or gap.field not in whole
        or lacks_what_server_has(gap, lesser.input_messages, trusted.input_messages)
    ]
    return tuple(dict.fromkeys((*trusted.gaps, *kept)))


def lacks_what_server_has(gap: Gap, prompt: Sequence[Message] | None, other: Sequence[Message] | None) -> bool:
    """Whether the gap is content that only the server has, and the other recording of the prompt is no longer."""
    return gap.kind in ON_SERVER and len(other or ()) <= len(prompt or ())


def _whole_fields(facts: CallFacts) -> frozenset[str]:
    """The fields of a call that are known and have no gap."""
    gapped = {gap.field for gap in facts.gaps}
    if "call" in gapped:
        return frozenset()
    known = {
        "prompt": facts.input_messages is not None,
        "answer": facts.choices is not None,
        "call": facts.input_messages is not None and facts.choices is not None and not gapped,
        "tools": facts.tools is not None,
    }
    return frozenset(field for field, is_known in known.items() if is_known and field not in gapped)


def with_gap(facts: CallFacts, kind: GapKind, evidence: str, *, field: str = "call") -> CallFacts:
    """Return the facts with one more gap."""
    return msgspec.structs.replace(facts, gaps=(*facts.gaps, Gap(kind=kind, field=field, evidence=evidence)))


_WITHOUT_IDS: Final = dict.fromkeys(("token_ids", "logprobs", "weight_versions", "routed_experts", "sampling_mask"))


def choices_without_ids(choices: Iterable[Choice]) -> tuple[Choice, ...]:
    """Leave out the ids of choices, and the facts of their tokens."""
    return tuple(msgspec.structs.replace(choice, **_WITHOUT_IDS) for choice in choices)


def union(first: Sequence[str], second: Sequence[str]) -> tuple[str, ...]:
    """The names of both sequences, each once, in order."""
    if not second:
        return tuple(first)
    return tuple(dict.fromkeys((*first, *second)))


_conventions: Final = lru_cache(maxsize=256)(union)  # most calls have the same few conventions


def compatible(first: Message, second: Message) -> bool:
    """Whether two recordings may be of one message: fields that both have are equal, except ids and names."""
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


def _merge_message(trusted: Message, lesser: Message) -> Message | None:
    """Merge two recordings of a message; None if they cannot be of one message."""
    if trusted is lesser:
        return trusted
    if (
        trusted is UNKNOWN_MESSAGE and lesser.content is not None and lesser.role == UNKNOWN_MESSAGE.role
    ):  # as below, without comparing each field; an empty text is known
        return lesser
    if trusted == Message(role=lesser.role) and _has_content(lesser):  # e.g. the trusted one has only token ids
        return lesser
    if not compatible(trusted, lesser):
        return None
    first, second = _without_repeated(trusted, lesser.refusal), _without_repeated(lesser, trusted.refusal)
    is_second = _says_more(second, first) or (_has_content(second) and not _has_content(first))
    content_source = second if is_second else first
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


def _says_more(message: Message, other: Message) -> bool:
    """Whether a message has the content of a compatible one, and also tool calls, which the other one lacks."""
    return bool(message.tool_calls) and not other.tool_calls and message.content == other.content


def _has_content(message: Message) -> bool:
    return bool(message.content or message.refusal or message.tool_calls or message.parts)


def _without_repeated(message: Message, refusal: str | None) -> Message:
    """Drop a content that the other recording has as refusal: some instrumentors record a refusal as text."""
    if not refusal or message.refusal or message.content != refusal:
        return message
    return msgspec.structs.replace(message, content=None, parts=None)


def _merge_tool_call(trusted: ToolCall, lesser: ToolCall) -> ToolCall:
    spelled = lesser if lesser.exact and not trusted.exact else trusted
    return ToolCall(id=trusted.id or lesser.id, name=trusted.name, arguments=spelled.arguments, exact=spelled.exact)


def _merge_inputs(trusted: tuple[Message, ...], lesser: tuple[Message, ...] | None) -> tuple[Message, ...]:
    """Merge message by message if both recorded the same prompt; otherwise the trusted prompt."""
    if not trusted or not lesser:
        return trusted or lesser or trusted
    if len(trusted) != len(lesser) or not all(map(compatible, trusted, lesser)):
        return trusted
    return tuple(_merge_message(*pair) or pair[0] for pair in zip(trusted, lesser, strict=True))


_LEADING: Final = ("system", "developer")


def _with_lost_instructions(prompt: tuple[Message, ...], other: tuple[Message, ...]) -> tuple[Message, ...]:
    """Put the instructions before a prompt that only the other recording of it has.

    Laminar writes the items of the Responses API into one attribute without the instructions, and messages made of
    them, with the instructions, into another.
    """
    if prompt[0].role in _LEADING or other[0].role not in _LEADING:
        return prompt
    count = next((at for at, message in enumerate(other) if message.role not in _LEADING), len(other))
    is_same = count < len(other) and compatible(prompt[0], other[count])
    return (*other[:count], *prompt) if is_same else prompt


def merge_prompts(sent: tuple[Message, ...], displayed: tuple[Message, ...] | None) -> tuple[Message, ...]:
    """Merge the prompt that was sent with another recording of it.

    Tool arguments keep the spelling in which they were sent, because a framework may write sampled JSON anew.
    """
    merged = _merge_inputs(sent, displayed)
    return merged if merged is sent or not sent else tuple(map(_spelled_as, merged, sent))


def _spelled_as(merged: Message, sent: Message) -> Message:
    if not sent.tool_calls or merged.tool_calls == sent.tool_calls:
        return merged
    spelled = [
        msgspec.structs.replace(call, arguments=sent_call.arguments, exact=sent_call.exact)
        for call, sent_call in zip(merged.tool_calls, sent.tool_calls, strict=True)
    ]
    return msgspec.structs.replace(merged, tool_calls=tuple(spelled))


def _merge_choices(trusted: tuple[Choice, ...], lesser: tuple[Choice, ...] | None) -> tuple[Choice, ...]:
    if lesser is None:
        return trusted
    if len(trusted) == len(lesser) == 1 and trusted[0].index == lesser[0].index:  # fast path of nearly all calls
        return (_merge_choice(trusted[0], lesser[0]),)
    merged = {choice.index: choice for choice in lesser}
    for choice in trusted:
        counterpart = merged.get(choice.index)
        merged[choice.index] = choice if counterpart is None else _merge_choice(choice, counterpart)
    return tuple(merged[index] for index in sorted(merged))


def _merge_choice(trusted: Choice, lesser: Choice) -> Choice:
    message = _merge_message(trusted.message, lesser.message)
    if message is None:
        return trusted
    ids = lesser.token_ids if trusted.token_ids is None else trusted.token_ids
    logprobs = lesser.logprobs if trusted.logprobs is None else trusted.logprobs
    exact, other = (lesser, trusted) if trusted.token_ids is None else (trusted, lesser)
    if other.token_ids != exact.token_ids:  # what is said of other tokens
        other = exact
    return Choice(
        index=trusted.index,
        message=message,
        finish_reason=trusted.finish_reason or lesser.finish_reason,
        token_ids=ids,
        logprobs=logprobs if ids is None or logprobs is None or len(logprobs.data) == len(ids.data) else None,
        weight_versions=exact.weight_versions or other.weight_versions,
        routed_experts=exact.routed_experts or other.routed_experts,
        sampling_mask=exact.sampling_mask or other.sampling_mask,
    )


def _merge_usage(trusted: Usage, lesser: Usage | None) -> Usage:
    if lesser is None:
        return trusted
    counts = msgspec.structs.asdict(lesser)
    counts |= {name: count for name, count in msgspec.structs.asdict(trusted).items() if count is not None}
    return Usage(**counts)
