"""Lineage: the calls of a rollout in causal order, each with its prompt, and a turn for every completion.

`prompt_parents` says which completion a prompt continues, by its messages and by its token ids.

Invariant: a call comes after the call that its prompt continues, else in the order of its start. A prompt holds only
what is not in the paths that it continues, so that all prompts together are as large as what is new in them, also where
every prompt was tokenized anew; rebuilding them gives the calls' prompts again. Each sampled completion is one turn,
and `wholeness.verdicts_on` alone decides whether it may be trained.

Every tool span of a rollout is one execution. It belongs to a turn only where its tool call's id says so: of repeated
ids the latest call of its name before it that no other execution has. Without an id it belongs to a turn only where
just one tool call before it has its name and arguments and no other execution.
"""

import heapq
import json
from collections.abc import Iterable, Sequence
from itertools import takewhile
from typing import NamedTuple

import msgspec

from art_otel.calls import Choice, InferenceCall, Message, ToolCall, canonical_arguments, media_in
from art_otel.conventions import ToolFacts, failure_of, tool_facts
from art_otel.spans import Span, SpanTree
from art_otel.trajectories.model import Edit, Prompt, ToolExecution, Turn
from art_otel.trajectories.prompt_parents import (
    MessageParent,
    PrefixNumbers,
    find_message_parents,
    find_token_parents,
    is_chain,
    shared_prefix,
    with_answer_ids,
    with_joined_pieces,
)
from art_otel.trajectories.wholeness import Verdicts, verdicts_on, with_conversation_gaps


class Lineage(NamedTuple):
    """Calls in causal order with a prompt each, the turns of all of them, and the numbers of the prompts' prefixes."""

    calls: tuple[InferenceCall, ...]
    prompts: tuple[Prompt, ...]
    turns: tuple[Turn, ...]
    numbers: PrefixNumbers


def build_lineage(calls: Sequence[InferenceCall]) -> Lineage:
    """Order calls, which come in the order of their start, and link their prompts to what they continue.

    A call moves behind the call whose completion its prompt holds, even if the clocks say otherwise.
    """
    numbers = PrefixNumbers()
    calls = _with_media(with_answer_ids(with_joined_pieces(calls), numbers))
    needed = None if is_chain(calls) else numbers
    calls = with_conversation_gaps(calls, needed)
    message_parents = find_message_parents(calls, needed)
    order = _causal_order(message_parents)
    ordered = [calls[index] for index in order]
    first_turns = _first_turns(ordered)
    position = {index: new_index for new_index, index in enumerate(order)}
    parents: list[int | None] = []
    for index in order:
        match = message_parents[index]
        parents.append(None if match is None else first_turns[position[match.completion[0]]] + match.completion[1])
    token_parents = find_token_parents(ordered, parents)
    ordered = _with_new_routing(ordered, token_parents)
    prompts: list[Prompt] = []
    turns: list[Turn] = []
    for new_index, (index, parent, token_parent) in enumerate(zip(order, parents, token_parents, strict=True)):
        call, match = ordered[new_index], message_parents[index]
        verbatim = match is not None and match.verbatim
        prompt = describe_prompt(call, ordered, turns, parent, token_parent, verbatim=verbatim)
        prompts.append(prompt)
        for choice_position, choice in enumerate(call.choices or ()):
            turns.append(_turn(new_index, choice_position, prompt, choice, verdicts_on(call, choice)))
    return Lineage(tuple(ordered), tuple(prompts), tuple(turns), numbers)


def _with_media(calls: Sequence[InferenceCall]) -> list[InferenceCall]:
    """Add to calls what kinds of content beside text their prompts have.

    Of a prompt that begins as the one before it only the rest is looked at.
    """
    result: list[InferenceCall] = []
    earlier: tuple[Message, ...] = ()
    media: tuple[str, ...] = ()
    for call in calls:
        prompt = call.input_messages
        if prompt is None:
            result.append(call)
            continue
        goes_on = prompt[: len(earlier)] == earlier
        new = media_in(prompt[len(earlier) :] if goes_on else prompt)
        media = tuple(sorted({*media, *new})) if goes_on else new
        earlier = prompt
        result.append(call if call.media == media else msgspec.structs.replace(call, media=media))
    return result


def _causal_order(parents: Sequence[MessageParent | None]) -> list[int]:
    """The positions of the calls by start, each behind its message parent. Parents form no cycle."""
    if all(match is None or match.completion[0] < index for index, match in enumerate(parents)):
        return list(range(len(parents)))
    children: dict[int, list[int]] = {}
    ready: list[int] = []
    for index, match in enumerate(parents):
        if match is None:
            ready.append(index)
        else:
            children.setdefault(match.completion[0], []).append(index)
    order: list[int] = []
    while ready:
        index = heapq.heappop(ready)
        order.append(index)
        for child in children.get(index, ()):
            heapq.heappush(ready, child)
    return order


def _first_turns(calls: Sequence[InferenceCall]) -> list[int]:
    """The position of each call's first turn."""
    first_turns: list[int] = []
    count = 0
    for call in calls:
        first_turns.append(count)
        count += len(call.choices or ())
    return first_turns


def _with_new_routing(calls: Sequence[InferenceCall], token_parents: Sequence[int | None]) -> list[InferenceCall]:
    """Leave out the routed experts of tokens whose experts the turn before has, so that all are linear in the tokens.

    The turn before has no experts of its own last token, which no server had sent through the model yet.
    """
    known: list[int] = []  # of each turn: the tokens of its path, where it has their experts
    result: list[InferenceCall] = []
    for call, token_parent in zip(calls, token_parents, strict=True):
        choices = call.choices or ()
        before = 0 if token_parent is None else known[token_parent]
        size = 0 if call.prompt_token_ids is None else len(call.prompt_token_ids)
        ends = [size + len(choice.token_ids or ()) for choice in choices]
        known += [0 if choice.routed_experts is None else end for choice, end in zip(choices, ends, strict=True)]
        if before:
            kept = tuple(_with_last_experts(*pair, before) for pair in zip(choices, ends, strict=True))
            call = call if kept == choices else msgspec.structs.replace(call, choices=kept)  # noqa: PLW2901
        result.append(call)
    return result


def _with_last_experts(choice: Choice, end: int, known: int) -> Choice:
    """The choice, whose path has `end` tokens, with the experts of those that are behind the first `known` - 1."""
    experts = choice.routed_experts
    rows = None if experts is None else experts.last(end - known)
    return choice if rows is experts else msgspec.structs.replace(choice, routed_experts=rows)


def _turn(call: int, position: int, prompt: Prompt, choice: Choice, verdicts: Verdicts) -> Turn:
    return Turn(
        call=call,
        choice=position,
        prompt=prompt,
        message=choice.message,
        finish_reason=choice.finish_reason,
        token_ids=choice.token_ids,
        logprobs=choice.logprobs,
        weight_versions=choice.weight_versions,
        routed_experts=choice.routed_experts,
        sampling_mask=choice.sampling_mask,
        tokens_untrained=verdicts.tokens,
        text_untrained=verdicts.text,
    )


def turns_by_completion(calls: Sequence[InferenceCall], turns: Sequence[Turn]) -> dict[tuple[str | None, int], int]:
    """The turns by the id of their response and the index of the choice: the last one where several have both."""
    positions: dict[tuple[str | None, int], int] = {}
    for position, turn in enumerate(turns):
        call = calls[turn.call]
        positions[call.response_id, turn.choice if call.choices is None else call.choices[turn.choice].index] = position
    return positions


def describe_prompt(
    call: InferenceCall,
    calls: Sequence[InferenceCall],
    turns: Sequence[Turn],
    parent: int | None,
    token_parent: int | None,
    *,
    verbatim: bool,
) -> Prompt:
    """The prompt of a call. Its parents are in `turns`, which are of the `calls` before it.

    `verbatim` says that it is known to repeat the parent's messages word for word.
    """
    message_link = token_parent if parent is None else parent
    path = () if message_link is None or verbatim else _message_path(turns[message_link], calls)
    asked = call.input_messages
    if asked is None:
        kept_messages = 0
    elif verbatim and parent is not None:
        kept_messages = len(calls[turns[parent].call].input_messages or ()) + 1
    else:
        kept_messages = _shared_messages(asked, path)
    prompt_ids = None if call.prompt_token_ids is None else call.prompt_token_ids.data
    kept_tokens = 0 if prompt_ids is None else _kept_tokens(prompt_ids, calls, turns, parent, token_parent)
    return Prompt(
        parent=parent,
        token_parent=token_parent,
        kept_messages=kept_messages,
        edits=() if asked is None or verbatim else _edits(asked[:kept_messages], path),
        messages=None if asked is None else asked[kept_messages:],
        kept_tokens=kept_tokens,
        context_token_ids=None if call.prompt_token_ids is None else call.prompt_token_ids.after(kept_tokens),
        drifted_at=_drifted_at(prompt_ids, calls, turns, parent, token_parent),
        respelled_at=_respelled_at(asked, calls, turns, parent, token_parent),
    )


def _message_path(turn: Turn, calls: Sequence[InferenceCall]) -> tuple[Message, ...]:
    """The messages of a turn's path; empty where its prompt is unknown."""
    asked = calls[turn.call].input_messages
    return () if asked is None or turn.message is None else (*asked, turn.message)


def _shared_messages(asked: Sequence[Message], path: Sequence[Message]) -> int:
    """How many messages both begin with, in whatever words."""
    pairs = zip(asked, path, strict=False)
    return sum(1 for _ in takewhile(lambda pair: _is_same(*pair), pairs))


def _is_same(one: Message, other: Message) -> bool:
    return one is other or one == other or one.identity == other.identity


def _edits(kept: Sequence[Message], path: Sequence[Message]) -> tuple[Edit, ...]:
    """The kept messages that the prompt writes in other words."""
    return tuple(
        Edit(index=index, message=new)
        for index, (new, old) in enumerate(zip(kept, path, strict=False))
        if new is not old and new != old
    )


def _kept_tokens(
    prompt_ids: bytes,
    calls: Sequence[InferenceCall],
    turns: Sequence[Turn],
    parent: int | None,
    token_parent: int | None,
) -> int:
    """How many ids the prompt has in common with what it continues.

    That is the whole path of the token parent, or what it shares with the known ids of the parent, if that is more.
    """
    kept = 0 if token_parent is None else _count_known_ids(turns[token_parent], calls)
    if parent is None or parent == token_parent:
        return kept
    return max(kept, shared_prefix(prompt_ids, _known_ids(turns[parent], calls)) // 4)


def _count_known_ids(turn: Turn, calls: Sequence[InferenceCall]) -> int:
    prompt_ids = calls[turn.call].prompt_token_ids
    return 0 if prompt_ids is None else len(prompt_ids) + (0 if turn.token_ids is None else len(turn.token_ids))


def _known_ids(turn: Turn, calls: Sequence[InferenceCall]) -> bytes:
    """The ids of a turn's prompt and of its completion, as far as they are known from the start."""
    prompt_ids = calls[turn.call].prompt_token_ids
    if prompt_ids is None:
        return b""
    return prompt_ids.data if turn.token_ids is None else prompt_ids.data + turn.token_ids.data


def _drifted_at(
    prompt_ids: bytes | None,
    calls: Sequence[InferenceCall],
    turns: Sequence[Turn],
    parent: int | None,
    token_parent: int | None,
) -> int | None:
    """Where the prompt's ids leave the parent's token path; None if they agree or either is unknown."""
    if prompt_ids is None or parent is None or parent == token_parent or not turns[parent].has_tokens:
        return None
    path = _known_ids(turns[parent], calls)
    return None if prompt_ids.startswith(path) else shared_prefix(prompt_ids, path) // 4


def _respelled_at(
    asked: Sequence[Message] | None,
    calls: Sequence[InferenceCall],
    turns: Sequence[Turn],
    parent: int | None,
    token_parent: int | None,
) -> int | None:
    """Where the prompt's messages leave the token parent's message path; None if they agree or either is unknown."""
    if asked is None or token_parent is None or parent == token_parent:
        return None
    path = _message_path(turns[token_parent], calls)
    shared = _shared_messages(asked, path)
    return shared if shared < len(path) else None


# The tools that ran.


class _SampledCall(NamedTuple):
    """A tool call that a turn sampled. `start_ns` is the start of the LLM call, on corrected clocks."""

    start_ns: int
    turn: int
    position: int
    call: ToolCall

    @property
    def key(self) -> tuple[int, int]:
        """What tells it apart from the other tool calls of its rollout."""
        return self.turn, self.position


def find_tool_executions(spans: Iterable[Span], lineage: Lineage, tree: SpanTree) -> tuple[ToolExecution, ...]:
    """The executions that tool spans recorded, in the order of their start. Takes n log n, whatever ids repeat."""
    ordered = sorted(spans, key=tree.order)
    requests = _Requests(lineage, tree) if ordered else None
    executions: list[ToolExecution] = []
    for span in ordered:
        facts = tool_facts(span)
        turn = None if requests is None else requests.take(facts, tree.starts[span.key])
        error_type, error = failure_of(span)
        executions.append(
            ToolExecution(
                span_id=span.span_id,
                name=facts.name,
                call_id=facts.call_id,
                arguments=facts.arguments,
                result=facts.result,
                error=error or error_type,
                start_ns=span.start_ns,
                end_ns=span.end_ns,
                turn=turn,
            )
        )
    return tuple(executions)


class _Waiting:
    """Tool calls of one kind that were sampled so far, the latest last, without those that are known to have run."""

    def __init__(self) -> None:
        self.calls: dict[tuple[int, int], _SampledCall] = {}
        self.latest: _SampledCall | None = None

    def add(self, one: _SampledCall) -> None:
        """Add a tool call, which comes behind those before it."""
        self.calls[one.key] = self.latest = one


class _Requests:
    """The tool calls that were sampled before an execution, by their id, by id and name, and by name and arguments.

    Executions are asked for in the order of their start.
    """

    def __init__(self, lineage: Lineage, tree: SpanTree) -> None:
        self._waiting: dict[tuple[str, str | None, str | None], _Waiting] = {}
        sampled: list[_SampledCall] = []
        for turn_position, turn in enumerate(lineage.turns):
            call = lineage.calls[turn.call]
            for position, tool_call in enumerate(turn.message.tool_calls if turn.message else ()):
                start_ns = tree.starts[call.trace_id, call.span_id]
                sampled.append(_SampledCall(start_ns, turn_position, position, tool_call))
        self._later = sorted(sampled, key=lambda one: one[:3], reverse=True)

    def take(self, facts: ToolFacts, start_ns: int) -> int | None:
        """The turn that asked for an execution: by the latest call of its id and name, else by the only one like it."""
        while self._later and self._later[-1].start_ns <= start_ns:
            one = self._later.pop()
            for key in _keys(one.call):
                self._waiting.setdefault(key, _Waiting()).add(one)
        request = self._like(facts) if facts.call_id is None else self._of_id(facts.call_id, facts.name)
        if request is None:
            return None
        for key in _keys(request.call):
            self._waiting[key].calls.pop(request.key, None)
        return request.turn

    def _of_id(self, call_id: str, name: str) -> _SampledCall | None:
        """The latest call of an id that has not run, else the latest; of those of the tool if there are any."""
        waiting = self._waiting.get((call_id, name, None)) or self._waiting.get((call_id, None, None))
        if waiting is None:
            return None
        return waiting.calls.popitem()[1] if waiting.calls else waiting.latest

    def _like(self, facts: ToolFacts) -> _SampledCall | None:
        arguments = _canonical_arguments(facts)
        waiting = None if arguments is None else self._waiting.get(("", facts.name, arguments))
        return next(iter(waiting.calls.values())) if waiting is not None and len(waiting.calls) == 1 else None


def _keys(call: ToolCall) -> list[tuple[str, str | None, str | None]]:
    by_content = ("", call.name, canonical_arguments(call.arguments))
    return [by_content] if call.id is None else [by_content, (call.id, call.name, None), (call.id, None, None)]


def _canonical_arguments(facts: ToolFacts) -> str | None:
    """The arguments with which the tool ran, in one spelling; None when no recorder kept them."""
    if facts.arguments is None:
        return None
    return canonical_arguments(facts.arguments if isinstance(facts.arguments, str) else json.dumps(facts.arguments))
