"""RicherRepeats: samples that a later prompt repeats with more in them than was recorded.

Invariant: a sample is one of them only when a later call's prompt is its own prompt and then an assistant's message
that nobody is known to have sampled there, which has all that the sample has and a text or tool calls more.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise

from art_otel.calls import Choice, InferenceCall, Message, canonical_arguments
from art_otel.trajectories.origins import Prompts, Sample, all_go_on


def find_richer_repeats(calls: Sequence[InferenceCall]) -> set[Sample]:
    """The samples of calls, in the order of their start, that lost something. Linear in the number of messages."""
    if all_go_on(calls):
        return set()
    prompts = Prompts()
    prefixes = [prompts.prefixes(call.input_messages or ()) for call in calls]
    asked: dict[int, list[int]] = {}
    compared: set[int] = set()
    for index, (call, chains) in enumerate(zip(calls, prefixes, strict=True)):
        if call.input_messages is not None:
            asked.setdefault(chains[-1], []).append(index)
            compared.update(prompts.extend(chains[-1], choice.message) for choice in call.choices or ())
    found: set[Sample] = set()
    for index, (call, chains) in enumerate(zip(calls, prefixes, strict=True)):
        for message, (before, with_it) in zip(call.input_messages or (), pairwise(chains), strict=True):
            if message.role == "assistant" and before in asked and with_it not in compared:
                compared.add(with_it)
                found.update(_poorer(message, calls, [earlier for earlier in asked[before] if earlier < index]))
    return found


def _poorer(repeat: Message, calls: Sequence[InferenceCall], asked: Iterable[int]) -> list[Sample]:
    """The samples of these calls that the message repeats with more; none if it is just what one of them sampled."""
    samples = [
        ((index, position), choice)
        for index in asked
        for position, choice in enumerate(calls[index].choices or ())
        if not _is_tokens_only(choice)
    ]
    if any(_content(choice.message) == _content(repeat) for _, choice in samples):
        return []
    return [sample for sample, choice in samples if _has_more(repeat, choice.message)]


def _has_more(repeat: Message, recorded: Message) -> bool:
    """Whether the repeat has all that was recorded, and more.

    An agent that reads its tool calls out of the text writes them beside it, with the names that stand in the text; and
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


def _content(message: Message) -> tuple[str, Counter[tuple[str, str]]]:
    return _text(message), _tools(message)


def _text(message: Message) -> str:
    return (message.content or message.refusal or "").strip()


def _tools(message: Message) -> Counter[tuple[str, str]]:
    return Counter((call.name, canonical_arguments(call.arguments)) for call in message.tool_calls)


def _is_tokens_only(choice: Choice) -> bool:
    """Whether nothing but the tokens was recorded, so that the message is unknown and not empty."""
    message = choice.message
    return bool(choice.token_ids) and not (message.content or message.refusal or message.tool_calls or message.parts)
