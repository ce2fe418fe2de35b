"""Turns: the calls of a rollout in causal order, each with its prompt, and a turn for every completion.

Invariant: a call comes after the call that its prompt continues, else in the order of its start; each sampled
completion is one turn, and `wholeness.untrained_because` alone decides whether it is trained.
"""

import heapq
from collections.abc import Sequence
from typing import NamedTuple

from art_otel.calls import Choice, InferenceCall
from art_otel.trajectories.lineage.answer_ids import with_answer_ids
from art_otel.trajectories.lineage.message_parents import MessageParent, find_message_parents
from art_otel.trajectories.lineage.prompt import describe_prompt
from art_otel.trajectories.lineage.token_parents import find_token_parents
from art_otel.trajectories.model import Prompt, Turn, Untrained
from art_otel.trajectories.wholeness import untrained_because, with_conversation_gaps


class Lineage(NamedTuple):
    """Calls in causal order with a prompt each, and the turns of all of them."""

    calls: tuple[InferenceCall, ...]
    prompts: tuple[Prompt, ...]
    turns: tuple[Turn, ...]


def build_lineage(calls: Sequence[InferenceCall]) -> Lineage:
    """Order calls, which come in the order of their start, and link their prompts to what they continue.

    A call moves behind the call whose completion its prompt holds, even if the clocks say otherwise.
    """
    calls = with_conversation_gaps(with_answer_ids(calls))
    message_parents = find_message_parents(calls)
    order = _causal_order(message_parents)
    ordered = [calls[index] for index in order]
    first_turns = _first_turns(ordered)
    position = {index: new_index for new_index, index in enumerate(order)}
    parents: list[int | None] = []
    for index in order:
        match = message_parents[index]
        parents.append(None if match is None else first_turns[position[match.completion[0]]] + match.completion[1])
    token_parents = find_token_parents(ordered, parents)
    prompts: list[Prompt] = []
    turns: list[Turn] = []
    for new_index, (index, parent, token_parent) in enumerate(zip(order, parents, token_parents, strict=True)):
        call, match = calls[index], message_parents[index]
        verbatim = match is not None and match.verbatim
        prompt = describe_prompt(call, ordered, turns, parent, token_parent, verbatim=verbatim)
        prompts.append(prompt)
        for choice_position, choice in enumerate(call.choices or ()):
            reason = untrained_because(call, choice)
            turns.append(_turn(new_index, choice_position, prompt, choice, reason))
    return Lineage(tuple(ordered), tuple(prompts), tuple(turns))


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


def _turn(call: int, position: int, prompt: Prompt, choice: Choice, reason: Untrained | None) -> Turn:
    return Turn(
        call=call,
        choice=position,
        prompt=prompt,
        message=choice.message,
        finish_reason=choice.finish_reason,
        token_ids=choice.token_ids,
        logprobs=choice.logprobs,
        untrained=reason,
    )


def turns_by_completion(calls: Sequence[InferenceCall], turns: Sequence[Turn]) -> dict[tuple[str | None, int], int]:
    """The turns by the id of their response and the index of the choice: the last one where several have both."""
    positions: dict[tuple[str | None, int], int] = {}
    for position, turn in enumerate(turns):
        call = calls[turn.call]
        positions[call.response_id, turn.choice if call.choices is None else call.choices[turn.choice].index] = position
    return positions
