"""Token lineage: which turn continues which, told by token ids alone.

Invariant: a turn's parent is the deepest earlier turn whose whole path of ids is a prefix of its prompt's ids; where
several have that path, the one its messages continue, else the latest. Turns whose prompt has no ids have no parent.

Paths stand in a radix tree, so a prompt is compared with all of them at once, and only beyond the path of the turn
that its messages continue: the cost is linear in the ids that turns store. A plain conversation needs no tree.
"""

from collections.abc import Sequence

import msgspec

from art_otel.calls import TokenIds
from art_otel.trajectories.trajectory import Turn

_WIDTH = 4  # bytes of an id


class TokenLineage(msgspec.Struct, frozen=True, kw_only=True):
    """What every turn continues. All have shape (turns,).

    `parents` are positions of turns. `contexts` are the ids of the prompt beyond the parent's path, None where the
    prompt has none. `known` tells where prompt and completion have ids.
    """

    parents: tuple[int | None, ...]
    contexts: tuple[TokenIds | None, ...]
    known: tuple[bool, ...]

    def path_to(self, turn: int) -> tuple[int, ...]:
        """The positions of the turns from the root to `turn`."""
        path = [turn]
        while (parent := self.parents[path[-1]]) is not None:
            path.append(parent)
        return tuple(reversed(path))

    def leaves(self) -> list[int]:
        """The known turns that no known turn continues."""
        continued = {parent for parent, known in zip(self.parents, self.known, strict=True) if known}
        return [turn for turn, known in enumerate(self.known) if known and turn not in continued]


class _Node(msgspec.Struct):
    """A place in the tree: the ids from the place above, and the last turn that ends here having sampled something."""

    edge: bytes = b""
    turn: int | None = None
    children: "dict[bytes, _Node]" = msgspec.field(default_factory=dict[bytes, "_Node"])


def token_lineage(turns: Sequence[Turn]) -> TokenLineage:
    """Find the lineage of turns, of which parents stand before their children."""
    if _is_chain(turns):
        parents = tuple([turn.parent for turn in turns])
        contexts = tuple([turn.context_token_ids for turn in turns])
        return TokenLineage(parents=parents, contexts=contexts, known=(True,) * len(turns))
    return _grown_lineage(turns)


def _is_chain(turns: Sequence[Turn]) -> bool:
    """Whether each turn continues the one before it, all with ids: then none has another path to continue."""
    before = None
    for position, turn in enumerate(turns):
        if turn.parent != before or turn.context_token_ids is None or turn.token_ids is None:
            return False
        before = position
    return True


def _grown_lineage(turns: Sequence[Turn]) -> TokenLineage:
    root = _Node()
    ends: list[_Node | None] = []  # where each turn's path ends, None without ids
    parents: list[int | None] = []
    contexts: list[TokenIds | None] = []
    for position, turn in enumerate(turns):
        above = None if turn.parent is None else ends[turn.parent]
        if turn.context_token_ids is None:
            parent, context, end = None, None, None
        else:
            start, parent = (root, None) if above is None else (above, turn.parent)
            data = turn.context_token_ids.data
            parent, used = _deepest(start, data, parent)
            context = TokenIds(data[used:]) if used else turn.context_token_ids
            end = None
            if turn.token_ids is not None:
                end = _insert(start, data + turn.token_ids.data)
                if turn.token_ids.data:
                    end.turn = position
        ends.append(end)
        parents.append(parent)
        contexts.append(context)
    return TokenLineage(parents=tuple(parents), contexts=tuple(contexts), known=tuple(end is not None for end in ends))


def _deepest(node: _Node, prompt: bytes, parent: int | None) -> tuple[int | None, int]:
    """The deepest turn at or below `node` whose path `prompt` begins with, and how many bytes of it that path has."""
    at = used = 0
    while (child := node.children.get(prompt[at : at + _WIDTH])) is not None and prompt.startswith(child.edge, at):
        node, at = child, at + len(child.edge)
        if node.turn is not None:
            parent, used = node.turn, at
    return parent, used


def _insert(node: _Node, path: bytes) -> _Node:
    """The place at the end of `path` below `node`, made where there was none."""
    at = 0
    while at < len(path):
        first = path[at : at + _WIDTH]
        child = node.children.get(first)
        if child is None:
            child = node.children[first] = _Node(path[at:])
        elif not path.startswith(child.edge, at):
            child = _split(node, first, child, shared_start(child.edge, path[at : at + len(child.edge)]))
        node, at = child, at + len(child.edge)
    return node


def _split(above: _Node, first: bytes, child: _Node, size: int) -> _Node:
    """A new place `size` bytes down the edge to `child`, which keeps being the place it was."""
    between = _Node(child.edge[:size])
    child.edge = child.edge[size:]
    between.children[child.edge[:_WIDTH]] = child
    above.children[first] = between
    return between


def shared_start(one: bytes, other: bytes) -> int:
    """How many bytes of whole ids both begin with."""
    size = min(len(one), len(other))
    # Compared as two large numbers: the lowest bit that differs lies in the first id that does.
    differing = int.from_bytes(one[:size], "little") ^ int.from_bytes(other[:size], "little")
    return ((differing & -differing).bit_length() - 1) // 32 * _WIDTH if differing else size
