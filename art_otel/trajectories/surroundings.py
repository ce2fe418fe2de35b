"""Surroundings: the ancestors of a span, and the items that ran at a moment.

context of chat      rollout > agent "planner" > step 2 > chat      agent planner, step 2
running at 5         a: 0 to 4, b: 3 to 9                           b
"""

from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping
from itertools import accumulate
from typing import Final, Generic, NamedTuple, TypeVar

from art_otel import attributes
from art_otel.conventions import AgentContent, Role, agent_content, agent_conversation, agent_name
from art_otel.spans import Span, SpanKey, SpanTree

_Item = TypeVar("_Item")

UNTRAINED: Final = "untrained"
"""The label of a mark without a text of its own."""


def untrained_mark(span: Span) -> str | None:
    """The mark by which a span excludes the calls below it from training, e.g. `judge`; None without a mark."""
    value = span.setting(attributes.UNTRAINED)
    if isinstance(value, str) and value.lower() not in ("", "true", "false"):  # some stores write booleans as text
        return value
    return UNTRAINED if str(value).lower() == "true" else None


class AncestorContext(NamedTuple):
    """What a span inherits from its ancestors: the nearest agent, step, call and mark, and counts.

    `agent`, `content` and `conversation` are of the nearest agent. `untrained` is the nearest mark, also of an outer
    rollout. `call_depth` counts calls, `boundary_depth` tools and agents. `call` and `call_depth` begin anew at a
    rollout's root, because no request encloses a rollout.
    """

    agent: str | None = None
    step: Span | None = None
    call: SpanKey | None = None
    call_depth: int = 0
    boundary_depth: int = 0
    content: AgentContent | None = None
    conversation: str | None = None
    untrained: str | None = None


_NO_CONTEXT: Final = AncestorContext()


def find_contexts(
    tree: SpanTree, roles: Mapping[SpanKey, Role], rollouts: Collection[SpanKey]
) -> Mapping[SpanKey, AncestorContext]:
    """The context that each span gives its children. `rollouts` are the keys of the rollouts' own spans."""

    def extend(key: SpanKey, above: AncestorContext | None) -> AncestorContext:
        span, role = tree.spans[key], roles[key]
        agent, step, call, call_depth, boundary_depth, content, conversation, untrained = above or _NO_CONTEXT
        if role == "inference":
            call, call_depth = key, call_depth + 1
        elif key in rollouts:
            call, call_depth = None, 0
        if attributes.STEP_INDEX in span.attributes:
            step = span
        if role == "tool":  # calls inside a tool are not the agent's, so the agent's content is not theirs
            content = None
        if role == "agent":
            content, conversation = agent_content(span), agent_conversation(span)
        return AncestorContext(
            agent_name(span) or agent,
            step,
            call,
            call_depth,
            boundary_depth + (role in ("tool", "agent")),
            content,
            conversation,
            untrained_mark(span) or untrained,
        )

    return tree.inherit(extend)


def contexts_above(contexts: Mapping[SpanKey, AncestorContext], tree: SpanTree) -> Mapping[SpanKey, AncestorContext]:
    """The context of each span itself, from its ancestors only."""
    parents = tree.parents
    return {key: contexts[parents[key]] if key in parents else _NO_CONTEXT for key in contexts}


class IntervalIndex(Generic[_Item]):
    """Finds items by the time when they ran: O(n log n) to build, O(log n) per query.

    IntervalIndex([(0, 4, "a"), (3, 9, "b")]).only_at(5)      "b"
    IntervalIndex([(0, 4, "a"), (3, 9, "b")]).only_at(3)      None: both ran
    """

    def __init__(self, times: Iterable[tuple[int, int | None, _Item]]) -> None:
        """Take each item with its first and last moment in nanoseconds; None as last moment: the item still runs."""
        self._items: list[_Item] = []
        changes: list[tuple[int, int, int]] = []
        for position, (first, last, item) in enumerate(times):
            self._items.append(item)
            changes.append((first, 1, position))
            if last is not None:
                changes.append((last + 1, -1, -position))
        changes.sort()
        self._moments = [moment for moment, _, _ in changes]
        self._counts = list(accumulate(count for _, count, _ in changes))
        # While one item runs, the sum of the positions of all that run is its position.
        self._positions = list(accumulate(position for _, _, position in changes))

    def only_at(self, moment: int) -> _Item | None:
        """The item that was running at a moment; None if none or several were."""
        last_change = bisect_right(self._moments, moment) - 1
        if last_change < 0 or self._counts[last_change] != 1:
            return None
        return self._items[self._positions[last_change]]

    def count_at(self, moment: int) -> int:
        """How many items were running at a moment."""
        last_change = bisect_right(self._moments, moment) - 1
        return 0 if last_change < 0 else self._counts[last_change]
