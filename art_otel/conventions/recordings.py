"""Recordings of one call: two instrumentors describe the same request in two spans.

Invariant: a call is trained once. Two spans are one call only when they come from different instrumentation scopes and
nothing that both know contradicts it. Equal response ids alone prove nothing: servers repeat them.
"""

from collections.abc import Hashable, Sequence
from functools import reduce
from itertools import zip_longest
from typing import Final

import msgspec

from art_otel.calls import Choice, InferenceCall, Message, Usage, canonical_arguments
from art_otel.conventions.dialects import DIALECTS
from art_otel.conventions.dialects.litellm import RAW_SPAN
from art_otel.conventions.dialects.openinference import RAW
from art_otel.conventions.facts import CallFacts, merge_facts, merge_prompts
from art_otel.errors import UsageError
from art_otel.spans import Span

_TRUST: Final = {name: rank for rank, name in enumerate(DIALECTS)}


def same_call(outer: Span, outer_call: InferenceCall, inner: Span, inner_call: InferenceCall) -> bool:
    """Whether an inference span nested in another, at any depth, describes the same request.

    A span nested in one of its own scope is another call: some instrumentors leave their span current while a stream is
    read. Response ids decide where both are known; else models and prompts must not contradict each other.
    """
    if outer.scope.name == inner.scope.name and inner.name != RAW_SPAN:
        return False
    if outer_call.response_id is not None and inner_call.response_id is not None:
        return outer_call.response_id == inner_call.response_id
    return _same_model(outer_call.request_model, inner_call.request_model) and _same_prompt(
        outer_call.input_messages, inner_call.input_messages
    )


def same_answer(outer: Span, outer_call: InferenceCall, inner: Span, inner_call: InferenceCall) -> bool:
    """Whether an inference span nested in another has its answer, as a framework's has that shows the prompt otherwise.

    Frameworks show it before they lay it out for the API: without instructions, tool results wrapped, messages apart.
    Of equal answers those are different that differ in a tool call's id or in how many tokens they took.
    """
    if outer.scope.name == inner.scope.name:
        return False
    if outer_call.response_id is not None and inner_call.response_id is not None:
        return False
    said, repeated = outer_call.choices or (), inner_call.choices or ()
    return (
        any(_says(choice.message) for choice in said)
        and _same_answers(said, repeated)
        and same_tool_calls(said, repeated)
        and _same_model(outer_call.request_model, inner_call.request_model)
        and _same_usage(outer_call.usage, inner_call.usage)
    )


def same_tool_calls(first: Sequence[Choice], second: Sequence[Choice]) -> bool:
    """Whether no id contradicts that the tool calls of two equal answers are the same."""
    pairs = zip(_tool_call_ids(first), _tool_call_ids(second), strict=False)
    return all(one is None or other is None or one == other for one, other in pairs)


def same_model(first: InferenceCall, second: InferenceCall) -> bool:
    """Whether nothing known contradicts that both are of one model."""
    one, other = model_of(first), model_of(second)
    return one is None or other is None or one == other


def merge_calls(calls: Sequence[InferenceCall]) -> InferenceCall:
    """Several recordings of one call, the outermost first, as one. Raises UsageError when there is none.

    Identity and times are the outermost one's. The most trusted convention's facts win whoever's span they were on, and
    of equally trusted ones those of the recording that knows the response. The prompt is the one that was sent.
    """
    if not calls:
        raise UsageError("merge_calls needs at least one recording of the call; pass the outermost first")
    if len(calls) == 1:
        return calls[0]
    trusted = sorted(calls, key=_distrust)
    facts = reduce(merge_facts, map(_facts, trusted))
    error_type, error = _failure(calls)
    outermost = calls[0]
    return msgspec.structs.replace(
        outermost,
        **{**msgspec.structs.asdict(facts), "input_messages": _sent(calls)},
        error_type=error_type,
        error=error,
        agent=next((call.agent for call in calls if call.agent is not None), None),
        step=next((call.step for call in calls if call.step is not None), None),
        dropped_attributes=sum(call.dropped_attributes for call in calls),
        env_state={name: value for call in reversed(calls) for name, value in call.env_state.items()},
        extra={name: value for call in reversed(calls) for name, value in call.extra.items()},
    )


def asked_of(call: InferenceCall) -> tuple[str, ...]:
    """The texts of a prompt, by which two recordings of it are compared: recorders lose names, reasoning and images."""
    return tuple(message.content or "" for message in call.input_messages or ())


def content_of(call: InferenceCall) -> Hashable | None:
    """What was asked and answered, by which recordings of one request are alike; None where either is unknown.

    Texts and tool calls only, because recorders lose names, reasoning and images, and how a stream ended.
    """
    asked = asked_of(call)
    if not any(asked) or (call.choices is None and not call.failed):
        return None
    return asked, tuple(map(_answer, call.choices or ()))


def _same_answers(first: Sequence[Choice], second: Sequence[Choice]) -> bool:
    """Whether both say the same. Arguments are parsed only where there are as many: one may have thousands."""
    if _lengths(first) != _lengths(second):
        return False
    return all(_answer(one) == _answer(other) for one, other in zip(first, second, strict=True))


def _lengths(choices: Sequence[Choice]) -> list[int]:
    return [len(choice.message.tool_calls) for choice in choices]


def _answer(choice: Choice) -> Hashable:
    said = choice.message
    calls = tuple((called.name, canonical_arguments(called.arguments)) for called in said.tool_calls)
    return choice.index, said.content or said.refusal or "", calls


def model_of(call: InferenceCall) -> str | None:
    """The model without the provider or organisation that some recorders add or drop."""
    model = call.request_model or call.response_model
    return None if model is None else model.rpartition("/")[2]


def _says(message: Message) -> bool:
    return bool(message.content or message.refusal or message.tool_calls)


def _tool_call_ids(choices: Sequence[Choice]) -> list[str | None]:
    return [called.id for choice in choices for called in choice.message.tool_calls]


def _distrust(call: InferenceCall) -> tuple[int, bool]:
    rank = min((_TRUST.get(name, len(_TRUST)) for name in call.conventions), default=len(_TRUST))
    return rank, call.response_id is None


def _facts(call: InferenceCall) -> CallFacts:
    """What the call tells, without its prompt."""
    return CallFacts(**{name: getattr(call, name) for name in CallFacts.__struct_fields__ if name != "input_messages"})


def _sent(calls: Sequence[InferenceCall]) -> tuple[Message, ...] | None:
    """The prompt, as who saw the request wrote it: one that knows the response, with the body, else the innermost."""
    inside_out = calls[::-1]
    nearest = sorted(inside_out, key=lambda call: (call.response_id is None, RAW not in call.conventions))
    prompts = [call.input_messages for call in nearest if call.input_messages is not None]
    return reduce(merge_prompts, prompts) if prompts else None


def _failure(calls: Sequence[InferenceCall]) -> tuple[str | None, str | None]:
    """The error of the outermost recording that failed, unless a failure further in did not matter.

    The outermost one's failure always counts. One further in was retried or handled when a recording that did not fail
    shows how the completion finished; without that proof it counts (OpenLLMetry calls a dropped stream OK).
    """
    failed = next((call for call in calls if call.failed), None)
    if failed is None:
        return None, None
    if failed is not calls[0] and any(not call.failed and _finished(call) for call in calls):
        return None, None
    return failed.error_type, failed.error


def _finished(call: InferenceCall) -> bool:
    return bool(call.choices) and all(choice.finish_reason is not None for choice in call.choices or ())


def _same_model(first: str | None, second: str | None) -> bool:
    """Models are compared without the provider or organisation that some recorders add or drop."""
    return first is None or second is None or first.rpartition("/")[2] == second.rpartition("/")[2]


def _same_usage(first: Usage | None, second: Usage | None) -> bool:
    """Frameworks write 0 for what they do not know, and count tokens from a cache or leave them out."""
    if first is None or second is None or first.cached_tokens or second.cached_tokens:
        return True
    counts = ((first.input_tokens, second.input_tokens), (first.output_tokens, second.output_tokens))
    return all(not one or not other or one == other for one, other in counts)


def _same_prompt(first: tuple[Message, ...] | None, second: tuple[Message, ...] | None) -> bool:
    """Prompts are compared by their texts, because recorders lose names, reasoning and images."""
    if first is None or second is None:
        return True
    return all(
        one is not None and other is not None and (not one.content or not other.content or one.content == other.content)
        for one, other in zip_longest(first, second)
    )
