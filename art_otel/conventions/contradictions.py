"""Contradictions: whether two recordings can be of one call.

Invariant: only what both recorded whole can contradict. What one of them cut, broke off or did not record contradicts
nothing, nor do tool-call arguments that a recorder parsed: their text is lost.
"""

from collections.abc import Sequence
from itertools import zip_longest
from typing import Final

from art_otel.calls import Choice, InferenceCall, Message, ToolCall, canonical_arguments

_INSTRUCTIONS: Final = ("system", "developer")


def contradict(one: InferenceCall, other: InferenceCall) -> bool:
    """Whether the two cannot be of one call.

    Frameworks show a prompt before they lay it out for the API, so different prompts of one answer are none.
    """
    if not answers_agree(one, other):
        return True
    return not prompts_agree(one, other) and not answer_alike(one, other)


def answers_agree(one: InferenceCall, other: InferenceCall) -> bool:
    """Whether nothing contradicts that both have the same answer."""
    pairs = _common_choices(one, other)
    return all(_is_same(first, one, second, other) for first, second in pairs)


def answer_alike(one: InferenceCall, other: InferenceCall) -> bool:
    """Whether the answers are known on both sides and agree."""
    pairs = _common_choices(one, other)
    return any(_says(first.message) and _says(second.message) for first, second in pairs) and answers_agree(one, other)


def prompts_agree(one: InferenceCall, other: InferenceCall) -> bool:
    """Whether nothing contradicts that both have the same prompt, which a framework may show without instructions."""
    ids, other_ids = one.prompt_token_ids, other.prompt_token_ids
    if ids is not None and other_ids is not None and ids != other_ids:
        return False
    first, second = one.input_messages, other.input_messages
    if not first or not second or first == second:
        return True
    if _damaged(one) or _damaged(other):
        return all(map(_may_begin, first, second))
    if _same_messages(first, second):
        return True
    bare, other_bare = _without_instructions(first), _without_instructions(second)
    one_has_none = (len(bare) == len(first)) != (len(other_bare) == len(second))
    return one_has_none and _same_messages(bare, other_bare)


def _common_choices(one: InferenceCall, other: InferenceCall) -> list[tuple[Choice, Choice]]:
    by_index = {choice.index: choice for choice in other.choices or ()}
    return [(choice, by_index[choice.index]) for choice in one.choices or () if choice.index in by_index]


def _is_same(first: Choice, one: InferenceCall, second: Choice, other: InferenceCall) -> bool:
    """Whether nothing contradicts that two choices are the same."""
    broken, other_broken = _is_partial(first, one), _is_partial(second, other)
    whole = not broken and not other_broken
    if whole and first.token_ids is not None and second.token_ids is not None and first.token_ids != second.token_ids:
        return False
    said, repeated = first.message, second.message
    if not _says(said) or not _says(repeated):
        return True
    text, other_text = _text(said), _text(repeated)
    if text and other_text:
        same = text == other_text or (broken and other_text.startswith(text))
        if not (same or (other_broken and text.startswith(other_text))):
            return False
    calls, other_calls = said.tool_calls, repeated.tool_calls
    if calls and other_calls and whole and not _same_calls(calls, other_calls):
        return False
    return not whole or bool((text and other_text) or (calls and other_calls))


def _same_messages(first: Sequence[Message], second: Sequence[Message]) -> bool:
    return all(
        one is not None and other is not None and _same_message(one, other) for one, other in zip_longest(first, second)
    )


def _same_message(one: Message, other: Message) -> bool:
    text, other_text = _text(one), _text(other)
    if text and other_text and text != other_text:
        return False
    return not one.tool_calls or not other.tool_calls or _same_calls(one.tool_calls, other.tool_calls)


def _may_begin(one: Message, other: Message) -> bool:
    """Whether one text may be the other, cut."""
    text, other_text = _text(one), _text(other)
    return text.startswith(other_text) or other_text.startswith(text)


def _same_calls(first: Sequence[ToolCall], second: Sequence[ToolCall]) -> bool:
    """Whether the tools have the same names, and the same arguments where both recorded their text."""
    return len(first) == len(second) and all(map(_same_call, first, second))


def _same_call(one: ToolCall, other: ToolCall) -> bool:
    if one.name != other.name:
        return False
    is_lossy = not one.exact or not other.exact
    return is_lossy or canonical_arguments(one.arguments) == canonical_arguments(other.arguments)


def _text(message: Message) -> str:
    return (message.content or message.refusal or "").strip()


def _says(message: Message) -> bool:
    return bool(message.content or message.refusal or message.tool_calls)


def _without_instructions(messages: Sequence[Message]) -> list[Message]:
    return [message for message in messages if message.role not in _INSTRUCTIONS]


def _damaged(call: InferenceCall) -> bool:
    return bool(call.cut or call.dropped_attributes)


def _is_partial(choice: Choice, call: InferenceCall) -> bool:
    """Whether the choice may have been longer than it was recorded."""
    return call.failed or _damaged(call) or (call.stream is True and choice.finish_reason is None)
