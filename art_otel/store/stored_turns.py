"""StoredTurn: a turn as a row holds it.

Invariant: what the choices of one call share (new messages, context token ids, edits) is stored with the first only.
"""

from collections.abc import Iterable, Sequence

import msgspec

from art_otel.calls import Choice, InferenceCall, Logprobs, Message, TokenIds
from art_otel.trajectories.trajectory import Edit, Turn


class StoredTurn(msgspec.Struct, frozen=True, gc=False):
    """A Turn and the index its choice had.

    `edits` is None where messages, context_token_ids and edits are those of the call's first turn (the later choices
    of n > 1); these two are then None as well.
    """

    call: int
    choice: int | None
    choice_index: int | None
    parent: int | None
    drifted_from: int | None
    edits: tuple[Edit, ...] | None
    messages: tuple[Message, ...] | None
    context_token_ids: TokenIds | None
    message: Message | None
    finish_reason: str | None
    token_ids: TokenIds | None
    logprobs: Logprobs | None
    untrained: str | None


def store_turns(turns: Iterable[Turn], calls: Sequence[InferenceCall]) -> tuple[StoredTurn, ...]:
    """The stored turns, with the index that each choice had in its call."""
    first_turns: dict[int, Turn] = {}
    stored: list[StoredTurn] = []
    for turn in turns:
        first = first_turns.setdefault(turn.call, turn)
        repeated = first is not turn and _prompt(first) == _prompt(turn)
        stored.append(
            StoredTurn(  # by position, in the order of its fields: by name takes five times as long
                turn.call,
                turn.choice,
                _choice_index(turn, calls),
                turn.parent,
                turn.drifted_from,
                None if repeated else turn.edits,
                None if repeated else turn.messages,
                None if repeated else turn.context_token_ids,
                turn.message,
                turn.finish_reason,
                turn.token_ids,
                turn.logprobs,
                turn.untrained,
            )
        )
    return tuple(stored)


def _prompt(turn: Turn) -> tuple[object, ...]:
    """What the choices of one call share."""
    return (turn.messages, turn.context_token_ids, turn.edits)


def restore_turns(stored: Iterable[StoredTurn]) -> tuple[Turn, ...]:
    """The inverse of store_turns, but for the choices' indexes."""
    first_turns: dict[int, StoredTurn] = {}
    return tuple(_restore_turn(turn, first_turns.setdefault(turn.call, turn)) for turn in stored)


def _restore_turn(turn: StoredTurn, first: StoredTurn) -> Turn:
    told = first if turn.edits is None else turn
    return Turn(
        call=turn.call,
        choice=turn.choice,
        parent=turn.parent,
        drifted_from=turn.drifted_from,
        edits=told.edits or (),
        messages=told.messages,
        context_token_ids=told.context_token_ids,
        message=turn.message,
        finish_reason=turn.finish_reason,
        token_ids=turn.token_ids,
        logprobs=turn.logprobs,
        untrained=turn.untrained,
    )


def _choice_index(turn: Turn, calls: Sequence[InferenceCall]) -> int | None:
    """The index the choice itself had: its position, but for recordings that miss choices."""
    choices = calls[turn.call].choices
    return turn.choice if turn.choice is None or choices is None else choices[turn.choice].index


def restore_choices(stored: Sequence[StoredTurn], turns: Sequence[Turn]) -> dict[int, list[Choice]]:
    """The choices of each call that has any, in their order. Raises ValueError for a message that is no choice."""
    choices: dict[int, list[Choice]] = {}
    indexes = [turn.choice_index for turn in stored]
    sampled = [(turn, index) for turn, index in zip(turns, indexes, strict=True) if turn.message is not None]
    for turn, index in sorted(sampled, key=lambda each: each[0].choice or 0):
        if turn.message is None or index is None:
            raise ValueError(f"a message of call {turn.call} that is no choice")
        choices.setdefault(turn.call, []).append(
            Choice(
                index=index,
                message=turn.message,
                finish_reason=turn.finish_reason,
                token_ids=turn.token_ids,
                logprobs=turn.logprobs,
            )
        )
    return choices
