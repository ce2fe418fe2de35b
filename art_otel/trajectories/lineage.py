"""Lineage: the calls of a rollout in causal order, and the two trees of what they were asked and sampled.

`prompt_parents` says which completion a prompt continues, by its messages and by its token ids; `trees` draws what
comes of it. A call stands behind the call that its prompt continues, else in the order of its start.
"""

import operator
from collections.abc import Iterable, Sequence
from itertools import accumulate, takewhile
from typing import Final, NamedTuple

import msgspec

from art_otel.calls import (
    CallRecord,
    Choice,
    InferenceCall,
    Message,
    TokenIds,
    media_in,
)
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
    """Calls in causal order, as recorded and in the trees of a trajectory, and the numbers of the prompts' prefixes."""

    recorded: tuple[InferenceCall, ...]
    calls: tuple[Call, ...]
    numbers: PrefixNumbers

    @property
    def turns(self) -> list[Turn]:
        """The choices of all calls."""
        return [turn for call in self.calls for turn in call.choices or ()]


def build_lineage(calls: Sequence[InferenceCall]) -> Lineage:
    """Order calls, which come in the order of their start, and put their prompts and choices into the trees.

    A call moves behind the call whose completion its prompt holds, even if the clocks say otherwise.
    """
    numbers = PrefixNumbers()
    calls = _with_media(calls)
    if len(calls) < 2:  # there is nothing that they could continue
        recorded = tuple(with_conversation_gaps(calls, None))
        trees = _Trees(recorded, is_chain=True)
        return Lineage(recorded, tuple([trees.add(0, None, None, is_verbatim=False) for _ in recorded]), numbers)
    calls = with_answer_ids(with_joined_pieces(calls), numbers)
    needed = None if is_chain(calls) else numbers
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
    """Both trees, while calls are added in causal order."""

    def __init__(self, calls: Sequence[InferenceCall], *, is_chain: bool) -> None:
        self._calls = calls
        self._is_chain = is_chain
        self._turns: list[Turn] = []
        # What several prompts go on with is one node. In a chain there is no such thing to look for.
        self._given: dict[tuple[int, int, Message], MessageNode] = {}
        self._runs: dict[tuple[int, int | None, TokenIds], TokenNode] = {}

    def add(self, position: int, parent: int | None, token_parent: int | None, *, is_verbatim: bool) -> Call:
        """The call at a position, whose prompt continues these turns; `is_verbatim`: word for word."""
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
        # Where the trees part: ids that leave the parent's path are drift, messages that leave the token parent's path
        # were rewritten. Unknown on either side is no difference.
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
        """The node of the prompt's last message; None if the prompt is unknown."""
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
                elif end is node.first.parent and message == node.first.message:  # in the first words again
                    end = node.first
                else:  # in other words, or behind a message in other words
                    end = self._node(end, message, node.first)
        for message in prompt[kept:]:
            end = self._node(end, message, None)
        return end

    def _node(self, parent: MessageNode | None, message: Message, restates: MessageNode | None) -> MessageNode:
        if self._is_chain:
            return MessageNode(parent=parent, message=message, restates=restates)
        key = id(parent), id(restates), message
        if key not in self._given:
            self._given[key] = MessageNode(parent=parent, message=message, restates=restates)
        return self._given[key]

    def _add_ids(self, recorded: InferenceCall, parent: int | None, token_parent: int | None) -> TokenNode | None:
        """The node of the prompt's last ids; None if they are unknown.

        The prompt keeps the whole path of the token parent. If it shares more ids with the path of the message parent,
        on which the token parent lies, it branches off inside the run where they part.
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
        """The node of a run of ids behind a path, of which the last `surplus` bytes are left out."""
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
        """The ids of a turn's prompt and of its completion, as far as they are known from the start."""
        turn = self._turns[position]
        prompt = self._calls[turn.call].prompt_token_ids
        if prompt is None:
            return b""
        return prompt.data if turn.token_ids is None else prompt.data + turn.token_ids.data


def link_calls(calls: Iterable[InferenceCall]) -> tuple[Call, ...]:
    """The calls of a trajectory, of calls that were made by hand."""
    return build_lineage(sorted(calls, key=lambda call: call.start_ns)).calls


def recorded_call(call: Call) -> InferenceCall:
    """The call of a trajectory as it was recorded: with its whole prompt, and without its place in the trees."""
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


def _with_new_routing(calls: Sequence[InferenceCall], token_parents: Sequence[int | None]) -> list[InferenceCall]:
    """Leave out the routed experts of tokens whose experts the turn before has, so that all are linear in the tokens.

    The turn before has no experts of its own last token, which no server had sent through the model yet.
    """
    if all(parent is None for parent in token_parents):
        return [*calls]
    known: list[int] = []  # of each turn: the tokens of its path, where it has their experts
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
    """The turns by the id of their response and the index of the choice: the last one where several have both."""
    turns = ((call, turn) for call in calls for turn in call.choices or ())
    return {(call.response_id, turn.index): position for position, (call, turn) in enumerate(turns)}


def unrecorded_answers(lineage: Lineage) -> list[Message]:
    """The assistant's messages behind a recorded completion that no recorded call sampled, each once.

        turn 0 ── user ── assistant ── user      the middle answer: its call was lost, or the app wrote it

    A prompt that begins with such messages (few-shot examples) continues no completion, and one whose recorded answer
    the app changed has the call. So has an answer that the app repeats behind other messages, as filters of handoffs
    do. The last message of a prompt is a prefill.
    """
    calls, turns = lineage.recorded, lineage.turns
    if len(calls) < 2:
        return []
    behind: list[tuple[int, int]] = []  # positions of a call, and of a message in its prompt
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
        if prefixes[index][at] not in asked and what_is_said(message) not in sampled:
            unrecorded[prefixes[index][at + 1]] = message
    return [*unrecorded.values()]
