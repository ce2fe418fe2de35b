"""Rebuild prompts: the whole prompt of every call, from the new part that each `Prompt` holds.

Invariant: this is the inverse of `lineage.turns`: the result is what the calls were sent. Each prompt follows from
the turns before it, so one pass over the calls rebuilds all of them.
"""

from collections.abc import Sequence
from typing import NamedTuple

from art_otel.calls import Message, TokenIds
from art_otel.trajectories.model import Prompt, Turn


class RebuiltPrompt(NamedTuple):
    """The messages and the token ids before a completion, each None when unknown."""

    messages: tuple[Message, ...] | None = None
    token_ids: TokenIds | None = None


def rebuild_prompts(prompts: Sequence[Prompt], turns: Sequence[Turn]) -> tuple[RebuiltPrompt, ...]:
    """The prompt of each call. Raises ValueError for links that lead nowhere.

    Time and memory are those of the prompts themselves, whose messages are shared.
    """
    rebuilt: list[RebuiltPrompt] = []
    for position, prompt in enumerate(prompts):
        for link in (prompt.parent, prompt.token_parent):
            if link is not None and not (0 <= link < len(turns) and turns[link].call < position):
                raise ValueError(f"the prompt of call {position} continues turn {link}, which is of no earlier call")
        rebuilt.append(RebuiltPrompt(_messages(prompt, turns, rebuilt), _token_ids(prompt, turns, rebuilt)))
    return tuple(rebuilt)


def _messages(prompt: Prompt, turns: Sequence[Turn], earlier: Sequence[RebuiltPrompt]) -> tuple[Message, ...] | None:
    if prompt.messages is None or not prompt.kept_messages:
        return prompt.messages
    link = message_link(prompt)
    path = () if link is None else _message_path(turns[link], earlier)
    if len(path) < prompt.kept_messages:
        raise ValueError(f"a prompt keeps {prompt.kept_messages} messages of a path that has {len(path)}")
    kept = path if len(path) == prompt.kept_messages else path[: prompt.kept_messages]
    return edited(kept, prompt) + prompt.messages


def _message_path(turn: Turn, earlier: Sequence[RebuiltPrompt]) -> tuple[Message, ...]:
    asked = earlier[turn.call].messages
    return () if asked is None or turn.message is None else (*asked, turn.message)


def edited(kept: tuple[Message, ...], prompt: Prompt) -> tuple[Message, ...]:
    """The kept messages as the prompt writes them. Raises ValueError for an edit of a message that is not kept."""
    if not prompt.edits:
        return kept
    messages = list(kept)
    for edit in prompt.edits:
        if not 0 <= edit.index < len(messages):
            raise ValueError(f"an edit of message {edit.index}, of {len(messages)} that are kept")
        messages[edit.index] = edit.message
    return tuple(messages)


def message_link(prompt: Prompt) -> int | None:
    """The turn whose messages the prompt keeps."""
    return prompt.token_parent if prompt.parent is None else prompt.parent


def _token_ids(prompt: Prompt, turns: Sequence[Turn], earlier: Sequence[RebuiltPrompt]) -> TokenIds | None:
    if prompt.context_token_ids is None or not prompt.kept_tokens:
        return prompt.context_token_ids
    for link in (prompt.token_parent, prompt.parent):
        path = None if link is None else _token_path(turns[link], earlier)
        if path is not None and len(path) >= prompt.kept_tokens:
            return TokenIds(path.data[: 4 * prompt.kept_tokens] + prompt.context_token_ids.data)
    raise ValueError(f"a prompt keeps {prompt.kept_tokens} ids of paths that have fewer")


def _token_path(turn: Turn, earlier: Sequence[RebuiltPrompt]) -> TokenIds | None:
    """The ids of the turn's prompt and completion, as far as they are known from the start."""
    asked = earlier[turn.call].token_ids
    return asked if asked is None or turn.token_ids is None else asked + turn.token_ids
