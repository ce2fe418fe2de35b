"""Doubtful completions: what was recorded of them says less than the model sampled.

Two things show it. The finish reason says that tools were called, and no tool call was recorded. Or a later prompt
repeats the completion with a text or tool calls more. Invariant: a repeat counts only where the later prompt is the
call's own prompt and then an assistant's message that nobody is known to have sampled there.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final, TypeAlias

from art_otel.calls import Choice, InferenceCall, Message, canonical_arguments
from art_otel.trajectories.lineage.message_parents import CompletionRef, is_chain
from art_otel.trajectories.lineage.prefix_numbers import PrefixNumbers

_TOOL_FINISH_REASONS: Final = ("tool_calls", "function_call")

_Tools: TypeAlias = Counter[tuple[str, str]]
"""Tool calls by name and canonical arguments."""


def find_doubtful(calls: Sequence[InferenceCall]) -> set[CompletionRef]:
    """The doubtful completions of calls in the order of their start. Linear in the number of messages."""
    without_tools = {
        (index, position)
        for index, call in enumerate(calls)
        for position, choice in enumerate(call.choices or ())
        if _lost_tool_calls(choice)
    }
    return without_tools if is_chain(calls) else without_tools | _repeated_with_more(calls)


def _lost_tool_calls(choice: Choice) -> bool:
    """Whether the model called tools and the calls are not there, but for a completion known by its tokens only."""
    called_tools = choice.finish_reason in _TOOL_FINISH_REASONS
    return called_tools and not choice.message.tool_calls and not _is_tokens_only(choice)


def _is_tokens_only(choice: Choice) -> bool:
    """Whether nobody recorded what the completion says, but its tokens are known."""
    return bool(choice.token_ids) and choice.message.is_unknown


def _repeated_with_more(calls: Sequence[InferenceCall]) -> set[CompletionRef]:
    numbers = PrefixNumbers()
    prefixes = [numbers.of(call.input_messages or ()) for call in calls]
    calls_by_prompt: dict[int, list[int]] = {}
    sampled_paths: set[int] = set()
    for index, (call, its_prefixes) in enumerate(zip(calls, prefixes, strict=True)):
        if call.input_messages is not None:
            calls_by_prompt.setdefault(its_prefixes[-1], []).append(index)
            sampled_paths.update(numbers.longer(its_prefixes[-1], choice.message) for choice in call.choices or ())
    doubtful: set[CompletionRef] = set()
    for index, (call, its_prefixes) in enumerate(zip(calls, prefixes, strict=True)):
        for message, (prompt, path) in zip(call.input_messages or (), pairwise(its_prefixes), strict=True):
            if message.role == "assistant" and prompt in calls_by_prompt and path not in sampled_paths:
                sampled_paths.add(path)
                earlier = [call_index for call_index in calls_by_prompt[prompt] if call_index < index]
                doubtful.update(_completions_with_less(message, calls, earlier))
    return doubtful


def _completions_with_less(
    repeat: Message, calls: Sequence[InferenceCall], earlier: Iterable[int]
) -> list[CompletionRef]:
    """The completions of these calls of which a message says more; none if it is just what one of them says."""
    completions = [
        ((index, position), choice.message)
        for index in earlier
        for position, choice in enumerate(calls[index].choices or ())
        if not _is_tokens_only(choice)
    ]
    content = (_text(repeat), _tools(repeat))
    if any((_text(message), _tools(message)) == content for _, message in completions):
        return []
    return [completion for completion, message in completions if _has_more(repeat, message)]


def _has_more(repeat: Message, recorded: Message) -> bool:
    """Whether the repeat has all that was recorded, and more.

    An agent that reads its tool calls out of the text writes them beside it, with the names that are in the text; and
    a framework may put the reasoning into an empty text.
    """
    text, tools = _text(recorded), _tools(recorded)
    repeated_text, repeated_tools = _text(repeat), _tools(repeat)
    if not tools <= repeated_tools:
        return False
    if text == repeated_text:
        more = repeated_tools - tools
        return bool(more) and not (text and all(name in text for name, _ in more))
    return not text and bool(tools) and (recorded.reasoning or "\0") not in repeated_text


def _text(message: Message) -> str:
    return (message.content or message.refusal or "").strip()


def _tools(message: Message) -> _Tools:
    return Counter((call.name, canonical_arguments(call.arguments)) for call in message.tool_calls)
