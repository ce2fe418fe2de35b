"""Token parents: the turn whose token path each prompt continues.

Invariant: a call's token parent is the turn of an earlier call with the longest token path that the call's prompt ids
begin with. Of equal paths it is the message parent's, else the latest. A completion without tokens shows nothing, so it
counts only as the message parent. Calls without prompt ids have none.

Paths are in a radix tree, so a prompt is compared with all of them at once. A plain conversation needs no tree.
"""

from collections.abc import Sequence
from typing import TypeAlias

import msgspec

from art_otel.calls import InferenceCall, TokenIds
from art_otel.trajectories.message_lineage import continues_tokens

_WIDTH = 4  # bytes of an id


class _Node(msgspec.Struct):
    """A point in the tree: the ids that lead to it from the node above, and the latest turn whose path ends here."""

    edge: bytes = b""
    turn: int | None = None
    children: "dict[bytes, _Node]" = msgspec.field(default_factory=dict[bytes, "_Node"])


_End: TypeAlias = tuple[_Node, int]
"""Where a path ends in the tree, and how many bytes it has."""


def find_token_parents(calls: Sequence[InferenceCall], parents: Sequence[int | None]) -> list[int | None]:
    """The token parent of each call as a position of a turn; `parents` are the message parents, also by call.

    `calls` stand in causal order, and the turns of all calls are numbered in that order.
    """
    if all(call.prompt_token_ids is None for call in calls):
        return [None] * len(calls)
    if _is_chain(calls, parents):
        return list(parents)
    return _search(calls, parents)


def _is_chain(calls: Sequence[InferenceCall], parents: Sequence[int | None]) -> bool:
    """Whether each call continues the one before it by messages and ids: then no other path can be longer."""
    before: InferenceCall | None = None
    for position, call in enumerate(calls):
        if len(call.choices or ()) != 1 or call.prompt_token_ids is None:
            return False
        if parents[position] != (position - 1 if position else None):
            return False
        if before is not None and not continues_tokens(call, before, 0):
            return False
        before = call
    return True


def _search(calls: Sequence[InferenceCall], parents: Sequence[int | None]) -> list[int | None]:
    root = _Node()
    token_parents: list[int | None] = []
    ends: list[_End | None] = []  # of each turn's path
    completions: list[tuple[InferenceCall, int]] = []
    for call, parent in zip(calls, parents, strict=True):
        prompt = None if call.prompt_token_ids is None else call.prompt_token_ids.data
        node, size, longest = root, 0, None
        if parent is not None and (end := ends[parent]) is not None and continues_tokens(call, *completions[parent]):
            (node, size), longest = end, parent  # a longer path can only go on from there
        token_parents.append(None if prompt is None else _longest_path(node, prompt, size, longest))
        prompt_end = None if prompt is None else (_insert(node, prompt[size:]), len(prompt))
        for position, choice in enumerate(call.choices or ()):
            ends.append(_end_of_path(prompt_end, choice.token_ids, turn=len(completions)))
            completions.append((call, position))
    return token_parents


def _end_of_path(prompt_end: _End | None, sampled: TokenIds | None, *, turn: int) -> _End | None:
    """Where a turn's path ends in the tree; one that sampled tokens is noted there."""
    if prompt_end is None or sampled is None:
        return None
    node, size = prompt_end
    if sampled:
        node = _insert(node, sampled.data)
        node.turn = turn
    return node, size + len(sampled.data)


def _longest_path(node: _Node, prompt: bytes, end: int, turn: int | None) -> int | None:
    """The turn with the longest path that the prompt begins with, from a node on that stands at byte `end` of it.

    `turn` is the one whose path ends there.
    """
    while (child := node.children.get(prompt[end : end + _WIDTH])) is not None and prompt.startswith(child.edge, end):
        node, end = child, end + len(child.edge)
        if node.turn is not None:
            turn = node.turn
    return turn


def _insert(node: _Node, path: bytes) -> _Node:
    """The node at the end of a path below `node`, made where there was none."""
    end = 0
    while end < len(path):
        first = path[end : end + _WIDTH]
        child = node.children.get(first)
        if child is None:
            child = node.children[first] = _Node(path[end:])
        elif not path.startswith(child.edge, end):
            child = _split(node, first, child, shared_prefix(child.edge, path[end : end + len(child.edge)]))
        node, end = child, end + len(child.edge)
    return node


def _split(above: _Node, first: bytes, child: _Node, size: int) -> _Node:
    """A new node `size` bytes down the edge to `child`, which keeps its own end."""
    between = _Node(child.edge[:size])
    child.edge = child.edge[size:]
    between.children[child.edge[:_WIDTH]] = child
    above.children[first] = between
    return between


def shared_prefix(one: bytes, other: bytes) -> int:
    """How many bytes of whole ids both begin with."""
    size = min(len(one), len(other))
    # Compared as two large numbers: the lowest bit that differs lies in the first id that does.
    differing = int.from_bytes(one[:size], "little") ^ int.from_bytes(other[:size], "little")
    return ((differing & -differing).bit_length() - 1) // 32 * _WIDTH if differing else size
