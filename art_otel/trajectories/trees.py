"""Trees: every message and every token id of a rollout once, in two trees of nodes.

A prompt goes on from the node of the turn that it continues, so only its new part gets nodes. A node refers to the
node before it:

    messages    root ── user q ── [turn 0: a] ── user q2 ── [turn 1: b] ── user q3 ── [turn 2: c]

    token ids   root ── 1 2 3 ── [turn 0: 11 12 13]
                                      └ (kept 1) 99 20 21 ── [turn 1: 31 32] ── 40 ── [turn 2: 51]

A prompt is the path to one node of each tree; a sampled completion is one node of each tree (in brackets). The prompt
of turn 1 continues turn 0 in messages, but its ids are 1 2 3 11 99 20 21: the server tokenized the conversation anew,
and the ids part after 11. This is **drift** (`Call.drifted_at` is 4). There are two token histories: one trains
11 12 13, the other 31 32 and 51.

Two rules are not plain:

- *Another wording.* Two messages with one `Message.identity` are the same message, e.g. when a client sends an answer
  back without its reasoning. The message then has a second node, which `restates` the first one:

      user ── [turn 0: thinks, says "4"]
        └──── says "4" (restates turn 0) ── user ── [turn 1]

  A call's prompt has the wording of its own path; a history has the first wording of each message.
- *A run that is kept in part.* A prompt may leave a run before the run's end. `kept` of the next node (99 20 21 above)
  says how many ids of the run before are on the path. A completion is on a path only if its whole run is.

Invariant: a path begins at the root, or at a completion whose prompt is unknown. Nodes never change, so paths can share
them, and the trees' size is linear in the new messages and ids.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, TypeVar

import msgspec

from art_otel.calls import Logprobs, Message, RoutedExperts, TokenIds, WeightVersion

_WIDTH: Final = 4  # bytes of an id


# Unlike other records, nodes have no `gc=False`: the garbage collector frees a long path without recursion in C.


class MessageNode(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A message, and the node of the message before it (`parent`).

    `turn` is the position of the turn that sampled the message, None for a message that was given to the model.
    `restates` is the node with the first wording of the same message. `parent` is None for the root, and for a
    completion whose prompt is unknown.
    """

    parent: "MessageNode | None" = None
    message: Message = Message(role="")
    turn: int | None = None
    restates: "MessageNode | None" = None

    @property
    def is_root(self) -> bool:
        """Whether the node is the root, where all prompts begin. The root has no message."""
        return self.parent is None and self.turn is None

    @property
    def first(self) -> "MessageNode":
        """The node with the first wording of the message."""
        return self.restates or self

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MessageNode) and _are_equal(self, other, _said)

    def __hash__(self) -> int:
        return hash(_said(self))

    def __repr__(self) -> str:  # without its path, which may be longer than Python's stack
        by = "" if self.turn is None else f", turn {self.turn}"
        return "<MessageNode root>" if self.is_root else f"<MessageNode {self.message!r}{by}>"


class TokenNode(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A run of token ids, and the node of the run before it (`parent`).

    `turn` is the position of the turn that sampled the run; `logprobs`, `weight_versions`, `routed_experts` and
    `sampling_mask` are from its choice. `ids` is None if the server gave no ids. `kept` is how many ids of the parent's
    run are on the path, None if all are. `end` is the number of ids on the path to the end of this node. `parent` is
    None for the root, and for a completion whose prompt has no ids.
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
        """Whether the node is the root, where all prompts begin. The root has no ids."""
        return self.parent is None and self.turn is None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TokenNode) and _are_equal(self, other, _run)

    def __hash__(self) -> int:
        return hash(_run(self))

    def __repr__(self) -> str:  # without its path, which may be longer than Python's stack
        by = "" if self.turn is None else f", turn {self.turn}"
        return "<TokenNode root>" if self.is_root else f"<TokenNode {self.ids!r}{by}, end {self.end}>"


MESSAGE_ROOT: Final = MessageNode()
TOKEN_ROOT: Final = TokenNode()

Node = TypeVar("Node", MessageNode, TokenNode)


def path_to(node: Node | None) -> list[Node]:
    """The nodes of a path from the first node after the root to this node; empty for the root."""
    path: list[Node] = []
    while node is not None:
        parent = node.parent
        if parent is None and node.turn is None:  # the root
            break
        path.append(node)
        node = parent
    return path[::-1]


def messages_to(node: MessageNode) -> tuple[Message, ...]:
    """The messages of a path, in the path's own wording."""
    return tuple([each.message for each in path_to(node)])


def runs_to(node: TokenNode | None) -> list[tuple[TokenNode, bytes]]:
    """The runs of a path from its beginning, each with the ids that the path keeps of it, as bytes (4 per id)."""
    runs: list[tuple[TokenNode, bytes]] = []
    kept: int | None = None
    while node is not None and not node.is_root:
        data = b"" if node.ids is None else node.ids.data
        runs.append((node, data if kept is None else data[: _WIDTH * kept]))
        node, kept = node.parent, node.kept
    return runs[::-1]


def last_turn(node: MessageNode | TokenNode | None) -> int | None:
    """The turn of the last sampled node on a path. A run of ids counts only if the path keeps it whole."""
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
    """Every node of the paths to these ends once, each after the nodes that it refers to; without the root."""
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
    """The nodes of a tree in the order of `in_order`, and the position of each by its `id()`; for None it is None."""
    nodes = in_order(ends)
    positions: dict[int, int | None] = {id(None): None}
    for position, node in enumerate(nodes):
        positions[id(node)] = position
    return nodes, positions


def position_of(node: Node | None, positions: Mapping[int, int | None]) -> int | None:
    """The position of a node, `ROOT` for the root; None stays None."""
    return positions.get(id(node), ROOT)


def node_at(position: int | None, nodes: Sequence[Node], root: Node) -> Node | None:
    """The inverse of `position_of`. Raises ValueError if there is no node at the position yet."""
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
