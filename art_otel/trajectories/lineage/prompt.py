"""Prompt: the new part of a call's prompt, what it continues, and where messages and token ids disagree about it.

Invariant: a prompt holds only what is not in the paths that it continues, so that all prompts together are as large
as what is new in them, also where every prompt was tokenized anew. Rebuilding them gives the calls' prompts again.
"""

from collections.abc import Sequence
from itertools import takewhile

from art_otel.calls import InferenceCall, Message
from art_otel.trajectories.lineage.token_parents import shared_prefix
from art_otel.trajectories.model import Edit, Prompt, Turn


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
