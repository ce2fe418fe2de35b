"""Trees: the messages and the token ids of a rollout, each at its place once.

A prompt goes on from the node of the turn that it continues, and only what is new in it gets nodes. A node knows the
node before it:

    messages    root ── user q ── [turn 0: a] ── user q2 ── [turn 1: b] ── user q3 ── [turn 2: c]

    token ids   root ── 1 2 3 ── [turn 0: 11 12 13]
                                      └ (kept 1) 99 20 21 ── [turn 1: 31 32] ── 40 ── [turn 2: 51]

A prompt is the path that ends at one node of each tree, and a sampled completion is one node of each (in brackets). The
prompt of turn 1 continues turn 0 in messages, but its ids are 1 2 3 11 99 20 21: the server tokenized the conversation
anew, and the trees part behind 11. That is **drift** (`Call.drifted_at` is 4), and of ids alone there are two
histories: one trains 11 12 13, the other 31 32 and 51.

Two rules are not plain:

- *Said in other words.* Messages are one if their `Message.identity` is; clients drop the reasoning of what they send
  back. The message then has a second node, which `restates` the first, and what follows is behind the second:

      user ── [turn 0: thinks, says "4"]
        └──── says "4" (restates turn 0) ── user ── [turn 1]

  A call's prompt has the words of its own path; a history those in which each message was said first.
- *Left in the middle.* A prompt may leave a run before its end: `TokenNode.kept` stands at the node that goes on (99 20
  21 above), and says how many ids of the run before it are kept. A completion is on the path only where its whole run
  is kept.

Invariant: paths lead to the root, or to a completion whose prompt is unknown. Nodes never change, so trees share what
they have in common, and their size is linear in what was new.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, TypeVar

import msgspec

from art_otel.calls import Logprobs, Message, RoutedExperts, TokenIds, WeightVersion

_WIDTH: Final = 4  # bytes of an id


# Nodes are known to the garbage collector, unlike other records: it frees a long path without recursion in C.


class MessageNode(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A message, and the node of the message before it.

    `turn` is the position of the turn that sampled it, None for what was given to the model. `restates` is the node of
    the same message in the words in which it was said first. `parent` is None for the root, and for a completion whose
    prompt is unknown.
    """

    parent: "MessageNode | None" = None
    message: Message = Message(role="")
    turn: int | None = None
    restates: "MessageNode | None" = None

    @property
    def is_root(self) -> bool:
        """Whether it is where all prompts begin, and no message."""
        return self.parent is None and self.turn is None

    @property
    def first(self) -> "MessageNode":
        """The node of the message in the words in which it was said first."""
        return self.restates or self

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MessageNode) and _are_equal(self, other, _said)

    def __hash__(self) -> int:
        return hash(_said(self))

    def __repr__(self) -> str:  # without its path, which may be longer than Python's stack
        by = "" if self.turn is None else f", turn {self.turn}"
        return "<MessageNode root>" if self.is_root else f"<MessageNode {self.message!r}{by}>"


class TokenNode(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A run of token ids, and the node of the run before it.

    `turn` is the position of the turn that sampled it; `logprobs`, `weight_versions`, `routed_experts` and
    `sampling_mask` are those of its choice. `ids` is None where the server gave none. `kept` is how many ids of the run
    before the path keeps, None if all. `end` is how many ids the path to this node has. `parent` is None for the root,
    and for a completion whose prompt has no ids.
    """

    parent: "TokenNode | None" = None
    kept: int | None = None
    ids: TokenIds | None = None
    turn: int | None = None
    logprobs: Logprobs | None = None
    weight_versions: tuple[WeightVersion, ...] | None = None
    routed_experts: RoutedExperts | None = None
    sampling_mask: tuple[TokenIds, ...] | None = None
    end: int = 0

    def __post_init__(self) -> None:
        """Count the ids of the path."""
        before = self.parent
        start = 0 if before is None else before.end
        if before is not None and self.kept is not None:
            start += self.kept - len(before.ids or ())
        msgspec.structs.force_setattr(self, "end", start + len(self.ids or ()))

    @property
    def is_root(self) -> bool:
        """Whether it is where all prompts begin, and has no ids."""
        return self.parent is None and self.turn is None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TokenNode) and _are_equal(self, other, _run)

    def __hash__(self) -> int:
        return hash(_run(self))

    def __repr__(self) -> str:  # as above
        by = "" if self.turn is None else f", turn {self.turn}"
        return "<TokenNode root>" if self.is_root else f"<TokenNode {self.ids!r}{by}, end {self.end}>"


MESSAGE_ROOT: Final = MessageNode()
TOKEN_ROOT: Final = TokenNode()

Node = TypeVar("Node", MessageNode, TokenNode)


def path_to(node: Node | None) -> list[Node]:
    """The nodes from the first behind the root to this one; empty for the root."""
    path: list[Node] = []
    while node is not None:
        parent = node.parent
        if parent is None and node.turn is None:  # the root
            break
        path.append(node)
        node = parent
    return path[::-1]


def messages_to(node: MessageNode) -> tuple[Message, ...]:
    """The messages of a path, in the words of the path."""
    return tuple([each.message for each in path_to(node)])


def runs_to(node: TokenNode | None) -> list[tuple[TokenNode, bytes]]:
    """The runs of a path from its beginning, each with those of its ids that the path keeps, 4 bytes each."""
    runs: list[tuple[TokenNode, bytes]] = []
    kept: int | None = None
    while node is not None and not node.is_root:
        data = b"" if node.ids is None else node.ids.data
        runs.append((node, data if kept is None else data[: _WIDTH * kept]))
        node, kept = node.parent, node.kept
    return runs[::-1]


def last_turn(node: MessageNode | TokenNode | None) -> int | None:
    """The turn that sampled the last sampled node of a path; of runs of ids, the last that is kept whole."""
    if isinstance(node, MessageNode):
        while node is not None and node.first.turn is None:
            node = node.parent
        return None if node is None else node.first.turn
    is_whole = True
    while node is not None and not (is_whole and node.turn is not None):
        is_whole = node.kept is None
        node = node.parent
    return None if node is None else node.turn


def in_order(ends: Iterable[Node | None]) -> list[Node]:
    """Every node of the paths to these ends once, each behind those that it names; without the root."""
    seen: set[int] = set()
    nodes: list[Node] = []
    for end in ends:
        new: list[Node] = []
        node = end
        while node is not None and id(node) not in seen:
            parent = node.parent
            if parent is None and node.turn is None:  # the root
                break
            seen.add(id(node))
            new.append(node)
            node = parent
        nodes += reversed(new)
    return nodes


ROOT: Final = -1
"""The position of a root among the nodes of its tree."""


def numbered(ends: Iterable[Node | None]) -> tuple[list[Node], dict[int, int | None]]:
    """The nodes of a tree as `in_order` has them, and the position of each by its `id`; None has none."""
    nodes = in_order(ends)
    positions: dict[int, int | None] = {id(None): None}
    for position, node in enumerate(nodes):
        positions[id(node)] = position
    return nodes, positions


def position_of(node: Node | None, positions: Mapping[int, int | None]) -> int | None:
    """The position of a node, `ROOT` for the root; None stays None."""
    return positions.get(id(node), ROOT)


def node_at(position: int | None, nodes: Sequence[Node], root: Node) -> Node | None:
    """The inverse of `position_of`. Raises ValueError for a node that does not stand before."""
    if position is None:
        return None
    if not ROOT <= position < len(nodes):
        raise ValueError(f"a path goes on from node {position}, of {len(nodes)} before it")
    return root if position == ROOT else nodes[position]


def _are_equal(one: Node | None, other: Node | None, fields_of: Callable[[Node], tuple[object, ...]]) -> bool:
    """Whether two paths are equal. A loop, because a path may be longer than Python's stack."""
    while one is not other:
        if one is None or other is None or fields_of(one) != fields_of(other):
            return False
        one, other = one.parent, other.parent
    return True


def _said(node: MessageNode) -> tuple[object, ...]:
    return (node.message, node.turn, node.first.message, node.first.turn)


def _run(node: TokenNode) -> tuple[object, ...]:
    return (
        node.kept,
        node.turn,
        node.ids,
        node.logprobs,
        node.weight_versions,
        node.routed_experts,
        node.sampling_mask,
    )
