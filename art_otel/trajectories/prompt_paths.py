"""Prompt paths: whole prompts, put together from the new part that each `Prompt` holds and the turns before it.

Invariant: this is the inverse of `lineage`: the result is what the calls were sent. It follows from the links and kept
counts of the prompts and from what the turns sampled; the calls' own prompts are not needed.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from art_otel.calls import Message, TokenIds
from art_otel.trajectories.model import Prompt, Turn

_WIDTH = 4  # bytes of an id


class RebuiltPrompt(NamedTuple):
    """The messages and the token ids before a completion, each None when unknown."""

    messages: tuple[Message, ...] | None = None
    token_ids: TokenIds | None = None


def rebuild_prompts(prompts: Sequence[Prompt], turns: Sequence[Turn]) -> tuple[RebuiltPrompt, ...]:
    """The prompt of each call. Raises ValueError for links that lead nowhere.

    Each prompt follows from the turns before it, so one pass over the calls rebuilds all of them. Time and memory are
    those of the prompts themselves, whose messages are shared.
    """
    rebuilt: list[RebuiltPrompt] = []
    paths = PromptPaths(turns, rebuilt)
    for position, prompt in enumerate(prompts):
        for link in (prompt.parent, prompt.token_parent):
            if link is not None and not (0 <= link < len(turns) and turns[link].call < position):
                raise ValueError(f"the prompt of call {position} continues turn {link}, which is of no earlier call")
        rebuilt.append(RebuiltPrompt(paths.messages(prompt), paths.token_ids(prompt)))
    return tuple(rebuilt)


def path_to(
    turns: Sequence[Turn], leaf: int, link: Callable[[Turn], int | None] = lambda turn: turn.parent
) -> tuple[int, ...]:
    """The positions of the turns from the root to `leaf`, along one kind of link."""
    path = [leaf]
    while (parent := link(turns[path[-1]])) is not None:
        path.append(parent)
    return tuple(reversed(path))


def message_link(prompt: Prompt) -> int | None:
    """The turn whose messages the prompt keeps; None where it keeps none."""
    if prompt.messages is None or not prompt.kept_messages:
        return None
    link = prompt.token_parent if prompt.parent is None else prompt.parent
    if link is None:
        raise ValueError(f"a prompt keeps {prompt.kept_messages} messages and continues no turn")
    return link


class PromptPaths:
    """The messages and token ids of single prompts. Each takes time linear in what is before it.

    `rebuilt` are the prompts of the first calls, as far as they are known: those before need not be walked again.
    """

    def __init__(self, turns: Sequence[Turn], rebuilt: Sequence[RebuiltPrompt] = ()) -> None:
        self._turns = turns
        self._rebuilt = rebuilt

    def messages(self, prompt: Prompt) -> tuple[Message, ...] | None:
        """The messages of a prompt, None where nobody recorded them."""
        first, steps = self._walk(prompt, message_link)
        if first.messages is None or not steps:
            return first.messages
        messages = list(first.messages)
        for turn, later in steps:
            if turn.message is not None:
                messages.append(turn.message)
            if len(messages) < later.kept_messages:
                raise ValueError(f"a prompt keeps {later.kept_messages} messages of a path that has {len(messages)}")
            del messages[later.kept_messages :]
            for edit in later.edits:
                if not 0 <= edit.index < len(messages):
                    raise ValueError(f"an edit of message {edit.index}, of {len(messages)} that are kept")
                messages[edit.index] = edit.message
            messages += later.messages or ()
        return tuple(messages)

    def token_ids(self, prompt: Prompt) -> TokenIds | None:
        """The token ids of a prompt, None where the server gave none."""
        first, steps = self._walk(prompt, self._token_link)
        if first.token_ids is None or not steps:
            return first.token_ids
        ids = bytearray(first.token_ids.data)
        for turn, later in steps:
            ids += b"" if turn.token_ids is None else turn.token_ids.data
            del ids[_WIDTH * later.kept_tokens :]
            ids += b"" if later.context_token_ids is None else later.context_token_ids.data
        return TokenIds(bytes(ids))

    def context(self, prompt: Prompt) -> bytes:
        """The ids of a prompt behind the path of its token parent, 4 bytes each; without one, the whole prompt's."""
        before = 0 if prompt.token_parent is None else self._known_ids(prompt.token_parent)
        if prompt.kept_tokens == before and prompt.context_token_ids is not None:
            return prompt.context_token_ids.data
        ids = self.token_ids(prompt)
        return b"" if ids is None else ids.data[_WIDTH * before :]

    def _walk(
        self, prompt: Prompt, link_of: Callable[[Prompt], int | None]
    ) -> tuple[RebuiltPrompt, list[tuple[Turn, Prompt]]]:
        """The first prompt that a prompt goes back to, and the prompts from there, each with the turn that it keeps."""
        steps: list[tuple[Turn, Prompt]] = []
        while (link := link_of(prompt)) is not None:
            turn = self._turns[link]
            steps.append((turn, prompt))
            prompt = turn.prompt
            if turn.call < len(self._rebuilt):
                return self._rebuilt[turn.call], steps[::-1]
        return RebuiltPrompt(prompt.messages, prompt.context_token_ids), steps[::-1]

    def _token_link(self, prompt: Prompt) -> int | None:
        """The turn whose path has the ids that the prompt keeps; None where it keeps none."""
        if prompt.context_token_ids is None or not prompt.kept_tokens:
            return None
        for link in (prompt.token_parent, prompt.parent):
            if link is not None and self._known_ids(link) >= prompt.kept_tokens:
                return link
        raise ValueError(f"a prompt keeps {prompt.kept_tokens} ids of paths that have fewer")

    def _known_ids(self, position: int) -> int:
        """How many ids of a turn's path are known from the start: those of its prompt, and of its completion."""
        turn = self._turns[position]
        context = turn.prompt.context_token_ids
        if context is None:
            return 0
        return turn.prompt.kept_tokens + len(context) + (0 if turn.token_ids is None else len(turn.token_ids))
