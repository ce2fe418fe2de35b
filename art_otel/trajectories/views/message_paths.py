"""MessagePaths: the turns from a root to a turn, and the messages along them.

Invariant: a path is computed from the links of the prompts alone; the calls' own prompts are not needed.
"""

from collections.abc import Callable, Sequence

from art_otel.calls import Message
from art_otel.trajectories.model import Prompt, Turn
from art_otel.trajectories.views.rebuild_prompts import edited, message_link


def parent_of(turn: Turn) -> int | None:
    """The message parent of a turn."""
    return turn.prompt.parent


def token_parent_of(turn: Turn) -> int | None:
    """The token parent of a turn."""
    return turn.prompt.token_parent


def path_to(turns: Sequence[Turn], leaf: int, link: Callable[[Turn], int | None] = parent_of) -> tuple[int, ...]:
    """The positions of the turns from the root to `leaf`, along one kind of link."""
    path = [leaf]
    while (parent := link(turns[path[-1]])) is not None:
        path.append(parent)
    return tuple(reversed(path))


def prompt_messages(prompt: Prompt, turns: Sequence[Turn]) -> tuple[Message, ...] | None:
    """The whole prompt of one call; None where nobody recorded a message of it. Linear in the messages before it."""
    continued = [prompt]
    while continued[-1].kept_messages:
        link = message_link(continued[-1])
        if link is None:
            raise ValueError(f"a prompt keeps {continued[-1].kept_messages} messages and continues no turn")
        continued.append(turns[link].prompt)
    messages: tuple[Message, ...] = ()
    for earlier, later in zip(reversed(continued), [*reversed(continued[:-1]), None], strict=True):
        if earlier.messages is None:
            return None
        messages = edited(messages, earlier) + earlier.messages
        if later is not None:
            sampled = turns[message_link(later) or 0].message
            if sampled is None:
                return None
            messages = (*messages, sampled)[: later.kept_messages]
    return messages
