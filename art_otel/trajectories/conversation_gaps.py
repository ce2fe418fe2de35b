"""Conversation gaps: lost content that only several calls of a rollout together show.

[user] -> "look it up"                       the recorder lost a tool call of this answer:
[user, assistant calls look, tool] -> …      a later prompt repeats the answer with the tool call
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Final, TypeAlias

import msgspec

from art_otel.calls import CONTENT_GAPS, ON_SERVER, Choice, Gap, GapKind, InferenceCall, Message, canonical_arguments
from art_otel.conventions import is_refusal, is_responses_api_id
from art_otel.spans import Value
from art_otel.trajectories.prompt_parents import CompletionRef, PrefixNumbers
from art_otel.trajectories.usage_witness import find_more_counted

_CONTENT: Final = ("prompt", "answer", "call")
_AS_SENT: Final = (None, "verbatim body")
_TOOL_FINISH_REASONS: Final = ("tool_calls", "function_call")
_INSTRUCTING: Final = ("system", "developer")
_NAMELESS: Final = "a tool call without a name"
_UNANSWERED: Final[tuple[GapKind, str]] = ("lossy recorder", "a tool call without a result")


def with_conversation_gaps(calls: Sequence[InferenceCall], numbers: PrefixNumbers | None) -> list[InferenceCall]:
    """Add gaps to the calls of a rollout, given by start. Linear in the number of messages.

    `numbers` are the prefix numbers of the rollout's prompts, None if each call continues the call before it.
    """
    gaps: dict[int, list[Gap]] = {}
    is_recorded = any(call.input_messages for call in calls)
    for index, call in enumerate(calls):
        # Some recorders write no prompt of a refused request. Nothing was sampled from it, so nothing is lost.
        is_refused = call.failed and call.choices is None and is_refusal(call.error_type, call.error)
        new = [] if is_recorded and is_refused else [*_unknown_content(call), *_lost_tool_calls(call)]
        if new:
            gaps[index] = new
    between = (*find_lost_compactions(calls), *find_compacted(calls)) if len(calls) > 1 else ()
    for index, gap in (*find_broken_prompts(calls), *between):
        gaps.setdefault(index, []).append(gap)
    if numbers is not None:
        for index, position in find_repeated_with_more(calls, numbers):
            choice = (calls[index].choices or ())[position]
            gap = Gap(
                kind="not understood", field=f"answer[{choice.index}]", evidence="a later prompt repeats it with more"
            )
            gaps.setdefault(index, []).append(gap)
    found = [_with_gaps(call, gaps[index]) if index in gaps else call for index, call in enumerate(calls)]
    for index, gap in find_more_counted(found):
        found[index] = _with_gaps(found[index], (gap,))
    return found


def _with_gaps(call: InferenceCall, gaps: Iterable[Gap]) -> InferenceCall:
    return msgspec.structs.replace(call, gaps=tuple(dict.fromkeys((*call.gaps, *gaps))))


def _unknown_content(call: InferenceCall) -> Iterator[Gap]:
    """Gaps of an unknown prompt or answer, if no other gap explains it. A failed call needs no answer."""
    fields = (*_CONTENT, "parameters")
    if call.gaps and any(gap.field in fields and gap.kind in CONTENT_GAPS for gap in call.gaps):
        return
    if call.input_messages is None and call.prompt_token_ids is None:
        yield Gap(kind="off", field="prompt", evidence="no prompt")
    elif call.input_messages == () and call.prompt_token_ids is None and call.prompt_known not in _AS_SENT:
        yield Gap(kind="off", field="prompt", evidence="an empty prompt")
    if call.choices is None and not call.failed:
        yield Gap(kind="off", field="answer", evidence="no answer")
    elif call.choices and not (call.has_answer or call.stream or call.failed) and call.answer_known not in _AS_SENT:
        yield Gap(kind="off", field="answer", evidence="an empty answer")


def _lost_tool_calls(call: InferenceCall) -> Iterator[Gap]:
    """Gaps of answers whose finish reason says that tools were called, but whose tool calls or names are missing."""
    # A verbatim body has all that the server parsed. With `tool_choice="required"` vLLM gives the finish reason
    # `tool_calls` also to a text that it could not parse; then the text is the whole answer.
    if call.answer_known == "verbatim body":
        return
    for choice in call.choices or ():
        if any(not tool.name for tool in choice.message.tool_calls):
            yield Gap(kind="not understood", field=f"answer[{choice.index}]", evidence=_NAMELESS)
        called = choice.finish_reason in _TOOL_FINISH_REASONS
        if called and not choice.message.tool_calls and not _is_tokens_only(choice):
            evidence = f"finish reason {choice.finish_reason} without tool calls"
            yield Gap(kind="not understood", field=f"answer[{choice.index}]", evidence=evidence)


def _is_tokens_only(choice: Choice) -> bool:
    """Whether the tokens of a completion were recorded, but not its text."""
    return bool(choice.token_ids) and choice.message.is_unknown


# Prompts that cannot have been sent.


def find_broken_prompts(calls: Sequence[InferenceCall]) -> Iterator[tuple[int, Gap]]:
    """Gaps of prompts that no server would accept, so that a part of them was not recorded.

        [user, assistant calls look as c1, user]      no result of c1: the recorder lost it
        [tool c1: …, user]                            nothing calls c1: the history is on the server

    A verbatim body is exempt, because it was sent like this; so is a failed call, whose prompt may really be broken.
    Only the new part of a prompt is searched.
    """
    earlier: tuple[Message, ...] = ()
    waiting: list[str | None] = []  # ids of tool calls without a result
    called: set[str | None] = set()
    wrong: tuple[GapKind, str] | None = None
    for index, call in enumerate(calls):
        prompt = call.input_messages
        if not prompt or call.failed or call.prompt_known in _AS_SENT or call.has_gap(*ON_SERVER):
            continue
        count = len(earlier)
        if prompt[:count] != earlier:
            count, waiting, called, wrong = 0, [], set[str | None](), None
        for message in prompt[count:]:
            if message.role in ("tool", "function"):
                identifier = message.tool_call_id
                is_unknown = identifier is not None and None not in called and identifier not in called
                if identifier in waiting:
                    waiting.remove(identifier)
                elif waiting:  # some recorders write other ids for results than for calls, or no ids
                    waiting.pop(0)
                elif not called or is_unknown:
                    wrong = wrong or ("history on the server", "an answer of a tool that nothing before it called")
            elif message.role == "assistant":
                wrong = wrong or (_UNANSWERED if waiting else None)
                if any(not tool.name for tool in message.tool_calls):
                    wrong = wrong or ("lossy recorder", _NAMELESS)
                waiting = [tool.id for tool in message.tool_calls]
                called.update(waiting)
        earlier = prompt
        problem = wrong or (_UNANSWERED if waiting else None)
        if problem is not None:
            yield index, Gap(kind=problem[0], field="prompt", evidence=problem[1])


def find_lost_compactions(calls: Sequence[InferenceCall]) -> Iterator[tuple[int, Gap]]:
    """Gaps of calls of the Responses API whose prompt begins with an earlier answer, and of the calls that gave it.

    [user] -> compaction, "yes"
    [compaction, "yes", user] -> …        most recorders leave the compaction out: the prompt begins with "yes"
    """
    answered: dict[tuple[object, ...], int] = {}
    for index, call in enumerate(calls):
        if not is_responses_api_id(call.response_id):
            continue
        prompt = call.input_messages or ()
        first = next((message for message in prompt if message.role not in _INSTRUCTING), None)
        if first is None:
            continue
        instructions = tuple(message.content for message in prompt[: prompt.index(first)])
        earlier = answered.get((instructions, *what_is_said(first))) if first.role == "assistant" else None
        if earlier is not None and not (call.prompt_known in _AS_SENT or call.has_gap(*ON_SERVER, "compacted")):
            evidence = "a prompt begins with an earlier answer"
            yield earlier, Gap(kind="compacted", field="prompt", evidence=evidence)
            yield index, Gap(kind="compacted", field="prompt", evidence=evidence)
        said = [choice.message for choice in call.choices or () if _text(choice.message) or choice.message.tool_calls]
        answered.update(((instructions, *what_is_said(message)), index) for message in said)


def find_compacted(calls: Sequence[InferenceCall]) -> Iterator[tuple[int, Gap]]:
    """Gaps of calls whose recorder left a compaction out of the answer, although a later prompt shows it.

    [user] -> "yes"                              OpenLLMetry shows Anthropic's compactions in prompts only
    [user, compaction and "yes", user] -> …
    """
    compacted = [call.input_messages or () for call in calls if call.has_gap("compacted")]
    if not compacted:
        return
    answered: dict[tuple[object, ...], list[int]] = {}
    for index, call in enumerate(calls):
        for choice in () if call.answer_known in _AS_SENT else call.choices or ():
            key = len(call.input_messages or ()), *what_is_said(choice.message)
            answered.setdefault(key, []).append(index)
    for prompt in compacted:
        for place, message in enumerate(prompt):
            try:  # only a compaction at the beginning of the message was there before the text was sampled
                first, *_ = msgspec.json.decode(message.parts or "[]", type=list[dict[str, Value]]) or [{}]
            except msgspec.MsgspecError:
                continue
            if "compaction" not in str(first.get("type")):
                continue
            for index in answered.get((place, *what_is_said(message)), ()):
                if not calls[index].has_gap("compacted") and calls[index].input_messages == prompt[:place]:
                    yield index, Gap(kind="compacted", field="prompt", evidence="a later prompt repeats it compacted")


# Completions that a later prompt repeats with more content.

_Tools: TypeAlias = Counter[tuple[str, str]]
"""Tool calls by name and canonical arguments."""

_ToolCounts: TypeAlias = frozenset[tuple[tuple[str, str], int]]
_Content: TypeAlias = tuple[str, _ToolCounts, str | None]
"""A text, the tool calls with their counts, and the reasoning if a framework may show it as the text."""


def find_repeated_with_more(calls: Sequence[InferenceCall], numbers: PrefixNumbers) -> set[CompletionRef]:
    """Find the completions that a later prompt repeats with more text or more tool calls.

        [user] -> "looking"      [user, "looking" and calls look, tool] -> …      the recorder lost the tool call

    A message counts as such a repeat only if it follows the completion's own prompt, and if no recorded completion of
    this prompt is equal to it.
    """
    prefixes = [numbers.of(call.input_messages or ()) for call in calls]
    asked: set[int] = set()
    sampled_paths: set[int] = set()
    for call, its_prefixes in zip(calls, prefixes, strict=True):
        if call.input_messages is not None:
            asked.add(its_prefixes[-1])
            sampled_paths.update(numbers.longer(its_prefixes[-1], choice.message) for choice in call.choices or ())
    # The completions so far, by prompt, text and one tool call, so that each repeat is compared with few of them. A
    # completion that is found doubtful is removed and not compared again.
    said: set[tuple[int, str, _ToolCounts]] = set()
    sampled: dict[tuple[int, str, tuple[str, str] | None], dict[_Content, list[CompletionRef]]] = {}
    doubtful: set[CompletionRef] = set()
    for index, (call, its_prefixes) in enumerate(zip(calls, prefixes, strict=True)):
        for message, (prompt, path) in zip(call.input_messages or (), pairwise(its_prefixes), strict=True):
            if message.role != "assistant" or prompt not in asked or path in sampled_paths:
                continue
            sampled_paths.add(path)
            text, tools = _text(message), _tools(message)
            if (prompt, text, _tool_set(tools)) in said:
                continue
            keys: list[tuple[str, tuple[str, str] | None]] = [(text, None)]
            keys += [(either, tool) for either in {text, ""} for tool in tools]
            for either, tool in keys:
                similar = sampled.get((prompt, either, tool), {})
                for content in [content for content in similar if _has_more(text, tools, content)]:
                    doubtful.update(similar.pop(content))
        for position, choice in enumerate(call.choices or ()):
            if call.input_messages is not None and not _is_tokens_only(choice):
                prompt, text, tools = its_prefixes[-1], _text(choice.message), _tools(choice.message)
                said.add((prompt, text, _tool_set(tools)))
                content = text, _tool_set(tools), choice.message.reasoning if tools and not text else None
                similar = sampled.setdefault((prompt, text, next(iter(tools), None)), {})
                similar.setdefault(content, []).append((index, position))
    return doubtful


def _has_more(repeated_text: str, repeated_tools: _Tools, recorded: _Content) -> bool:
    """Whether the repeat has all of the recorded content, and more that the recorder must have lost.

    Two additions are not lost content: tool calls that an agent parsed out of the text (their names are in the text),
    and reasoning that a framework puts into an empty text.
    """
    text, tool_set, reasoning = recorded
    tools = Counter(dict(tool_set))
    if not tools <= repeated_tools:
        return False
    if text == repeated_text:
        more = repeated_tools - tools
        return bool(more) and not (text and all(name in text for name, _ in more))
    return not text and bool(tools) and (reasoning or "\0") not in repeated_text


def _tool_set(tools: _Tools) -> _ToolCounts:
    return frozenset(tools.items())


def _text(message: Message) -> str:
    return (message.content or message.refusal or "").strip()


def _tools(message: Message) -> _Tools:
    return Counter((call.name, canonical_arguments(call.arguments)) for call in message.tool_calls)


def what_is_said(message: Message) -> tuple[str, _ToolCounts, tuple[str | None, ...]]:
    """The content by which an answer is recognized in a later prompt: text, tool calls with arguments, and call ids."""
    return _text(message), _tool_set(_tools(message)), tuple(call.id for call in message.tool_calls)
