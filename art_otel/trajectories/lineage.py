"""Lineage: the forest of turns, found from the prompts of the calls.

Invariant: a turn's parent is the deepest turn whose whole path, messages and (where the server gave them) token ids,
is a prefix of the call's prompt. Every sampled choice is one turn, and a parent stands before its children.
"""

import heapq
from collections.abc import Collection, Iterator, Sequence

import msgspec

from art_otel.calls import Choice, InferenceCall, Message, TokenIds
from art_otel.spans import SpanKey
from art_otel.trajectories.origins import Origin, Sample, choice_at, find_origins
from art_otel.trajectories.trajectory import Edit, Turn
from art_otel.trajectories.untrained import find_untrained


def build_turns(
    calls: Sequence[InferenceCall], contradicting: Collection[SpanKey] = ()
) -> tuple[tuple[InferenceCall, ...], tuple[Turn, ...]]:
    """Order the calls causally and build the forest of their turns.

    `calls` come in the order of their start; a call moves behind the one whose completion its prompt holds even if the
    clocks say otherwise. `contradicting` are calls of which another recording says otherwise. Linear in the number of
    messages over all prompts.
    """
    untrained = find_untrained(calls, contradicting)
    origins = find_origins(calls)
    order = _causal_order(origins)
    turns: list[Turn] = []
    position: dict[Sample, int] = {}
    for place, index in enumerate(order):
        call, origin = calls[index], origins[index]
        parent = None if origin.parent is None else position[origin.parent]
        drifted = None if origin.drifted_from is None else position[origin.drifted_from]
        added = _added(call, calls, origin)
        for choice_position, choice in enumerate(call.choices or (None,)):
            position[(index, choice_position)] = len(turns)
            reason = untrained.get((index, choice_position))
            turns.append(_turn(place, choice_position, choice, parent, drifted, added, reason))
    return tuple([calls[index] for index in order]), tuple(turns)


def _causal_order(origins: Sequence[Origin]) -> list[int]:
    """Calls by start, each behind those it continues. A path is shorter than its continuation: no cycles."""
    if all(map(_is_behind, range(len(origins)), origins)):
        return list(range(len(origins)))
    aboves = [
        {sample[0] for sample in (origin.parent, origin.drifted_from) if sample is not None} for origin in origins
    ]
    children: dict[int, list[int]] = {}
    waiting = list(map(len, aboves))
    for index, above in enumerate(aboves):
        for call in above:
            children.setdefault(call, []).append(index)
    free = [index for index, count in enumerate(waiting) if count == 0]
    order: list[int] = []
    while free:
        index = heapq.heappop(free)
        order.append(index)
        for child in children.get(index, ()):
            waiting[child] -= 1
            if waiting[child] == 0:
                heapq.heappush(free, child)
    return order


def _is_behind(index: int, origin: Origin) -> bool:
    """Whether the call stands behind those it continues."""
    parent, drifted_from = origin.parent, origin.drifted_from
    return (parent is None or parent[0] < index) and (drifted_from is None or drifted_from[0] < index)


class _Added(msgspec.Struct, frozen=True, gc=False):
    """What a call's prompt adds to its parent's path."""

    edits: tuple[Edit, ...]
    messages: tuple[Message, ...] | None
    context_token_ids: TokenIds | None


def _added(call: InferenceCall, calls: Sequence[InferenceCall], origin: Origin) -> _Added:
    if origin.parent is None:
        return _Added((), call.input_messages, call.prompt_token_ids)
    above = calls[origin.parent[0]]
    choice = choice_at(above, origin.parent[1])
    before, prompt = above.input_messages or (), call.input_messages or ()
    same = origin.verbatim or (prompt[len(before)] == choice.message and prompt[: len(before)] == before)
    edits = () if same else tuple(_edits((*before, choice.message), prompt))
    context = call.prompt_token_ids
    if context is not None and above.prompt_token_ids is not None and choice.token_ids is not None:
        context = context.after(len(above.prompt_token_ids) + len(choice.token_ids))
    return _Added(edits, prompt[len(before) + 1 :], context)


def _edits(path: Sequence[Message], prompt: Sequence[Message]) -> Iterator[Edit]:
    for index, (old, new) in enumerate(zip(path, prompt, strict=False)):
        if old is not new and old != new:
            yield Edit(index=index, message=new)


def _turn(  # the fields of a turn
    call: int,
    position: int,
    choice: Choice | None,
    parent: int | None,
    drifted: int | None,
    added: _Added,
    untrained: str | None,
) -> Turn:
    return Turn(
        call=call,
        choice=None if choice is None else position,
        parent=parent,
        drifted_from=drifted,
        edits=added.edits,
        messages=added.messages,
        context_token_ids=added.context_token_ids,
        message=None if choice is None else choice.message,
        finish_reason=None if choice is None else choice.finish_reason,
        token_ids=None if choice is None else choice.token_ids,
        logprobs=None if choice is None else choice.logprobs,
        untrained=untrained,
    )
