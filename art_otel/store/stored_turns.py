"""StoredTurn: a turn as a row holds it.

Invariant: a call's prompt is stored with the call, so a turn holds what was sampled and nothing else. The choices of a
call are its turns.
"""

from collections.abc import Iterable, Sequence

import msgspec

from art_otel.calls import Choice, Logprobs, Message, TokenIds
from art_otel.trajectories import Prompt, Trajectory, Turn, Untrained


class StoredTurn(msgspec.Struct, frozen=True, gc=False):
    """A Turn without its call's prompt, and with `choice_index`, the index that the server gave the choice."""

    call: int
    choice: int
    choice_index: int
    untrained: Untrained | None
    message: Message | None
    finish_reason: str | None
    token_ids: TokenIds | None
    logprobs: Logprobs | None


def store_turns(trajectory: Trajectory) -> tuple[StoredTurn, ...]:
    """The stored turns. Raises ValueError or LookupError for a turn that is not one of its call's."""
    stored: list[StoredTurn] = []
    for position, turn in enumerate(trajectory.turns):
        call, prompt = trajectory.calls[turn.call], trajectory.prompts[turn.call]
        if turn.prompt is not prompt and turn.prompt != prompt:
            raise ValueError(f"turn {position} has another prompt than its call {turn.call}")
        # Calls that were read without their choices have none; positions are then the best that is known.
        index = turn.choice if call.choices is None else call.choices[turn.choice].index
        stored.append(
            StoredTurn(  # by position, in the order of its fields: by name takes five times as long
                turn.call,
                turn.choice,
                index,
                turn.untrained,
                turn.message,
                turn.finish_reason,
                turn.token_ids,
                turn.logprobs,
            )
        )
    return tuple(stored)


def restore_turns(stored: Iterable[StoredTurn], prompts: Sequence[Prompt]) -> tuple[Turn, ...]:
    """The turns, each with the prompt of its call."""
    return tuple(
        Turn(
            call=turn.call,
            choice=turn.choice,
            prompt=prompts[turn.call],
            message=turn.message,
            finish_reason=turn.finish_reason,
            token_ids=turn.token_ids,
            logprobs=turn.logprobs,
            untrained=turn.untrained,
        )
        for turn in stored
    )


def restore_choices(stored: Iterable[StoredTurn]) -> dict[int, list[Choice]]:
    """The choices of each call that has any, in their order. Raises ValueError for a turn that is out of place."""
    choices: dict[int, list[Choice]] = {}
    for position, turn in enumerate(stored):
        if turn.message is None:  # it was read without messages and written again
            continue
        of_call = choices.setdefault(turn.call, [])
        # The types hold for what we wrote; a file's columns may hold null all the same.
        if turn.choice != len(of_call) or turn.choice_index is None:  # pyright: ignore[reportUnnecessaryComparison]
            raise ValueError(f"turn {position} is not choice {len(of_call)} of call {turn.call}")
        of_call.append(
            Choice(
                index=turn.choice_index,
                message=turn.message,
                finish_reason=turn.finish_reason,
                token_ids=turn.token_ids,
                logprobs=turn.logprobs,
            )
        )
    return choices
