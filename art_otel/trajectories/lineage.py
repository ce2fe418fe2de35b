"""Lineage: the calls of a rollout in causal order, and their prompts and completions in two trees.

`prompt_parents` finds the completion that each prompt continues, by messages and by token ids; `trees` has the nodes
and a picture of both trees. Invariant: a call comes after the call that its prompt continues.
"""

import operator
from collections.abc import Iterable, Sequence
from itertools import accumulate, takewhile
from typing import Final, NamedTuple

import msgspec

from art_otel.calls import CallRecord, Choice, InferenceCall, Message, TokenIds, media_in
from art_otel.trajectories.conversation_gaps import what_is_said, with_conversation_gaps
from art_otel.trajectories.model import Call, Turn
from art_otel.trajectories.prompt_parents import (
    PrefixNumbers,
    causal_order,
    find_message_parents,
    find_token_parents,
    is_chain,
    shared_prefix,
    with_answer_ids,
    with_joined_pieces,
)
from art_otel.trajectories.trees import MESSAGE_ROOT, TOKEN_ROOT, MessageNode, TokenNode, last_turn, path_to
from art_otel.trajectories.wholeness import verdicts_on


class Lineage(NamedTuple):
    """The calls of a rollout in causal order, as they were recorded and as calls of a trajectory with tree nodes.

    `numbers` are the numbers of the prompts' prefixes.
    """

    recorded: tuple[InferenceCall, ...]
    calls: tuple[Call, ...]
    numbers: PrefixNumbers

    @property
    def turns(self) -> list[Turn]:
        """The sampled choices of all calls. Their positions in this list are the turns' positions everywhere."""
        return [turn for call in self.calls for turn in call.choices or ()]


def build_lineage(calls: Sequence[InferenceCall]) -> Lineage:
    """Order calls, which are given by start, and put their prompts and choices into the two trees.

    A call moves after the call whose completion its prompt contains, even where the clocks of two machines disagree.
    """
    numbers = PrefixNumbers()
    calls = _with_media(calls)
    if len(calls) < 2:  # a single call continues nothing
        recorded = tuple(with_conversation_gaps(calls, None))
        trees = _Trees(recorded, is_chain=True)
        return Lineage(recorded, tuple([trees.add(0, None, None, is_verbatim=False) for _ in recorded]), numbers)
    calls = with_answer_ids(with_joined_pieces(calls), numbers)
    needed = None if is_chain(calls) else numbers  # numbering all prefixes is slow, and a plain chain does without it
    calls = with_conversation_gaps(calls, needed)
    message_parents = find_message_parents(calls, needed)
    order = causal_order(message_parents)
    ordered = [calls[index] for index in order]
    first_turns = [0, *accumulate(len(call.choices or ()) for call in ordered)]
    position = {index: new_index for new_index, index in enumerate(order)}
    parents: list[int | None] = []
    for index in order:
        match = message_parents[index]
        parents.append(None if match is None else first_turns[position[match.completion[0]]] + match.completion[1])
    token_parents = find_token_parents(ordered, parents)
    ordered = _with_new_routing(ordered, token_parents)
    trees = _Trees(ordered, is_chain=needed is None)
    linked: list[Call] = []
    for new_index, (index, parent, token_parent) in enumerate(zip(order, parents, token_parents, strict=True)):
        match = message_parents[index]
        is_verbatim = match is not None and match.verbatim
        linked.append(trees.add(new_index, parent, token_parent, is_verbatim=is_verbatim))
    return Lineage(tuple(ordered), tuple(linked), numbers)


_FACTS: Final = CallRecord.__struct_fields__
_facts_of: Final = operator.attrgetter(*_FACTS)


class _Trees:
    """The message tree and the token tree of a rollout, while its calls are added in causal order."""

    def __init__(self, calls: Sequence[InferenceCall], *, is_chain: bool) -> None:
        self._calls = calls
        self._is_chain = is_chain
        self._turns: list[Turn] = []
        # Prompts that continue a node with the same message, or the same ids, share one new node.
        self._given: dict[tuple[int, int, Message], MessageNode] = {}
        self._runs: dict[tuple[int, int | None, TokenIds], TokenNode] = {}

    def add(self, position: int, parent: int | None, token_parent: int | None, *, is_verbatim: bool) -> Call:
        """Add the call at a position, and return it with its nodes.

        Its prompt continues the turn `parent` by messages (`is_verbatim`: word for word) and `token_parent` by ids.
        """
        recorded = self._calls[position]
        prompt = self._add_messages(recorded, parent, is_verbatim=is_verbatim)
        prompt_tokens = self._add_ids(recorded, parent, token_parent)
        choices: list[Turn] = []
        for place, choice in enumerate(recorded.choices or ()):
            turn = len(self._turns)
            tokens_untrained, text_untrained = verdicts_on(recorded, choice)
            choices.append(
                Turn(
                    call=position,
                    choice=place,
                    index=choice.index,
                    finish_reason=choice.finish_reason,
                    message_node=MessageNode(parent=prompt, message=choice.message, turn=turn),
                    token_node=TokenNode(
                        parent=prompt_tokens,
                        ids=choice.token_ids,
                        turn=turn,
                        logprobs=choice.logprobs,
                        weight_versions=choice.weight_versions,
                        routed_experts=choice.routed_experts,
                        sampling_mask=choice.sampling_mask,
                    ),
                    tokens_untrained=tokens_untrained,
                    text_untrained=text_untrained,
                )
            )
            self._turns.append(choices[-1])
        # The trees part in two ways: ids that leave the message parent's path are drift, and messages that leave the
        # token parent's path were rewritten. Where ids or messages are unknown, there is nothing to compare.
        drifted_at = rewritten_at = None
        if parent != token_parent:
            ids, messages = recorded.prompt_token_ids, recorded.input_messages
            if ids is not None and parent is not None and self._turns[parent].has_tokens:
                path = self._known_ids(parent)
                drifted_at = None if ids.data.startswith(path) else shared_prefix(ids.data, path) // 4
            if messages is not None and token_parent is not None:
                turn = self._turns[token_parent]
                before, said = self._calls[turn.call].input_messages, turn.message
                known = () if before is None or said is None or said.is_unknown else (*before, said)
                same = takewhile(lambda pair: _is_same(*pair), zip(messages, known, strict=False))
                shared = sum(1 for _ in same)
                rewritten_at = shared if shared < len(known) else None
        return Call(
            **dict(zip(_FACTS, _facts_of(recorded), strict=True)),
            prompt_node=prompt,
            prompt_token_node=prompt_tokens,
            choices=tuple(choices) or None,
            drifted_at=drifted_at,
            rewritten_at=rewritten_at,
        )

    def _add_messages(self, recorded: InferenceCall, parent: int | None, *, is_verbatim: bool) -> MessageNode | None:
        """Add the prompt's new messages, and return the node of its last message; None if the prompt is unknown."""
        prompt = recorded.input_messages
        if prompt is None:
            return None
        if parent is None:
            end, kept = MESSAGE_ROOT, 0
        elif is_verbatim:
            end = self._turns[parent].message_node
            kept = len(self._calls[self._turns[parent].call].input_messages or ()) + 1
        else:
            path = path_to(self._turns[parent].message_node)
            end, kept = MESSAGE_ROOT, len(path)
            for node, message in zip(path, prompt, strict=False):
                if end is node.parent and (message is node.message or message == node.message):
                    end = node
                elif end is node.first.parent and message == node.first.message:  # the original wording again
                    end = node.first
                else:  # another wording, or a message that follows one with another wording
                    end = self._node(end, message, node.first)
        for message in prompt[kept:]:
            end = self._node(end, message, None)
        return end

    def _node(self, parent: MessageNode | None, message: Message, restates: MessageNode | None) -> MessageNode:
        if self._is_chain:  # no two prompts continue one node, so there is no node to share
            return MessageNode(parent=parent, message=message, restates=restates)
        key = id(parent), id(restates), message
        if key not in self._given:
            self._given[key] = MessageNode(parent=parent, message=message, restates=restates)
        return self._given[key]

    def _add_ids(self, recorded: InferenceCall, parent: int | None, token_parent: int | None) -> TokenNode | None:
        """Add the prompt's new ids, and return the node of its last ids; None if the ids are unknown.

        The prompt goes on from the end of the token parent's path. If it has more ids in common with the path of the
        message parent, it branches off inside that path's run (unless another turn than the token parent is before it).
        """
        prompt = recorded.prompt_token_ids
        if prompt is None:
            return None
        kept, end = 0, TOKEN_ROOT
        if token_parent is not None:
            kept, end = len(self._known_ids(token_parent)), self._turns[token_parent].token_node
        if parent is not None and parent != token_parent:
            path = self._known_ids(parent)
            shared = shared_prefix(prompt.data, path)
            if shared > kept:
                last = self._turns[parent].token_node  # the path's last node with ids
                last = last if last is None or last.ids is not None else last.parent
                node = self._run(last, len(path) - shared, prompt.data[shared:])
                if last_turn(node) == token_parent:
                    return node
        return self._run(end, 0, prompt.data[kept:])

    def _run(self, end: TokenNode | None, surplus: int, data: bytes) -> TokenNode:
        """Add a run of ids to a path without its last `surplus` bytes, and return the run's node."""
        kept: int | None = None
        while end is not None and surplus:
            size = 4 * len(end.ids or ()) if kept is None else 4 * kept
            if surplus < size:
                kept, surplus = (size - surplus) // 4, 0
            else:
                surplus -= size
                kept, end = end.kept, end.parent
        if end is not None and not data and kept is None:
            return end
        ids = TokenIds(data)
        key = id(end), kept, ids
        if key not in self._runs:
            self._runs[key] = TokenNode(parent=end, kept=kept, ids=ids)
        return self._runs[key]

    def _known_ids(self, position: int) -> bytes:
        """The token path of a turn, as bytes: the prompt's ids and the completion's, up to the first unknown ones."""
        turn = self._turns[position]
        prompt = self._calls[turn.call].prompt_token_ids
        if prompt is None:
            return b""
        return prompt.data if turn.token_ids is None else prompt.data + turn.token_ids.data


def link_calls(calls: Iterable[InferenceCall]) -> tuple[Call, ...]:
    """Make the calls of a trajectory from calls that were built by hand, in any order.

    Trajectory(rollout_id="r1", trace_id=32 * "1", calls=link_calls([first_call, second_call]))
    """
    return build_lineage(sorted(calls, key=lambda call: call.start_ns)).calls


def recorded_call(call: Call) -> InferenceCall:
    """Undo `link_calls` for one call: return it with its whole prompt, and without its nodes in the trees."""
    return InferenceCall(
        **{name: getattr(call, name) for name in CallRecord.__struct_fields__},
        input_messages=call.input_messages,
        prompt_token_ids=call.prompt_token_ids,
        choices=None
        if call.choices is None
        else tuple(
            Choice(
                index=turn.index,
                message=turn.message or Message(role="assistant"),
                finish_reason=turn.finish_reason,
                token_ids=turn.token_ids,
                logprobs=turn.logprobs,
                weight_versions=turn.weight_versions,
                routed_experts=turn.routed_experts,
                sampling_mask=turn.sampling_mask,
            )
            for turn in call.choices
        ),
    )


def _is_same(one: Message, other: Message) -> bool:
    return one is other or one == other or one.identity == other.identity


def _with_media(calls: Sequence[InferenceCall]) -> list[InferenceCall]:
    """Set `media` of each call: the kinds of content other than text in its prompt, e.g. `image`."""
    result: list[InferenceCall] = []
    earlier: tuple[Message, ...] = ()
    media: tuple[str, ...] = ()
    for call in calls:
        prompt = call.input_messages
        if prompt is None:
            result.append(call)
            continue
        # A prompt that begins with the one before is searched only behind it, else long rollouts would be quadratic.
        goes_on = prompt[: len(earlier)] == earlier
        new = media_in(prompt[len(earlier) :] if goes_on else prompt)
        media = tuple(sorted({*media, *new})) if goes_on else new
        earlier = prompt
        result.append(call if call.media == media else msgspec.structs.replace(call, media=media))
    return result


def _with_new_routing(calls: Sequence[InferenceCall], token_parents: Sequence[int | None]) -> list[InferenceCall]:
    """Keep in each choice only the routed experts of tokens that the token parent has no experts for.

    A server lists the experts of the whole path in each answer, which would be quadratic over a rollout. The experts
    of a completion's last token come with the next turn, because only then the token is sent through the model.
    """
    if all(parent is None for parent in token_parents):
        return [*calls]
    known: list[int] = []  # for each turn the number of tokens of its path, 0 without routed experts
    result: list[InferenceCall] = []
    for call, token_parent in zip(calls, token_parents, strict=True):
        before = 0 if token_parent is None else known[token_parent]
        size = 0 if call.prompt_token_ids is None else len(call.prompt_token_ids)
        choices: list[Choice] = []
        for choice in call.choices or ():
            end, experts = size + len(choice.token_ids or ()), choice.routed_experts
            known.append(0 if experts is None else end)
            new = experts.last(end - before) if experts is not None and before else experts
            choices.append(choice if new is experts else msgspec.structs.replace(choice, routed_experts=new))
        is_same = all(map(operator.is_, choices, call.choices or ()))
        result.append(call if is_same else msgspec.structs.replace(call, choices=tuple(choices)))
    return result


def turns_by_completion(calls: Iterable[Call]) -> dict[tuple[str | None, int], int]:
    """The position of each turn by response id and choice index; the last turn if a server repeats both."""
    turns = ((call, turn) for call in calls for turn in call.choices or ())
    return {(call.response_id, turn.index): position for position, (call, turn) in enumerate(turns)}


def unrecorded_answers(lineage: Lineage) -> list[Message]:
    """Find the assistant messages of prompts that follow a recorded completion, but that no recorded call sampled.

        turn 0 ── user ── assistant ── user      the assistant message: its call was lost, or the app wrote it

    These are not counted: few-shot examples (they follow no completion), an answer that the app changed or moved (its
    call is recorded), and the last message of a prompt (a prefill).
    """
    calls, turns = lineage.recorded, lineage.turns
    if len(calls) < 2:
        return []
    behind: list[tuple[int, int]] = []  # the position of a call, and the position of a message in its prompt
    for index, (recorded, call) in enumerate(zip(calls, lineage.calls, strict=True)):
        parent = last_turn(call.prompt_node)
        if parent is not None:
            messages = recorded.input_messages or ()
            path = len(calls[turns[parent].call].input_messages or ()) + 1
            behind += [(index, at) for at in range(path, len(messages) - 1) if messages[at].role == "assistant"]
    if not behind:
        return []
    prefixes = [lineage.numbers.of(call.input_messages or ()) for call in calls]
    asked = {its_prefixes[-1] for its_prefixes in prefixes}
    sampled = {what_is_said(choice.message) for call in calls for choice in call.choices or ()}
    unrecorded: dict[int, Message] = {}
    for index, at in behind:
        message = (calls[index].input_messages or ())[at]
        # A recorded call with just this prompt was answered here: the app only changed its answer.
        if prefixes[index][at] not in asked and what_is_said(message) not in sampled:
            unrecorded[prefixes[index][at + 1]] = message
    return [*unrecorded.values()]
