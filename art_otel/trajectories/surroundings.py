"""Surroundings: what stands above the spans of a tree.

Invariant: each span is asked once what it says, however many calls and rollouts of the tree are below it.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Final, NamedTuple

from art_otel import attributes
from art_otel.conventions import Role, agent_name
from art_otel.spans import Span, SpanKey, SpanTree


class Above(NamedTuple):
    """The nearest agent's name, the nearest step and the nearest call above a span.

    No request is asked around a rollout, so the call is one between the span and the rollout's own span.
    """

    agent: str | None = None
    step: Span | None = None
    call: SpanKey | None = None


_NOTHING: Final = Above()


class Surroundings:
    """Those of one tree. `rollouts` are the rollouts' own spans."""

    def __init__(self, tree: SpanTree, roles: Mapping[SpanKey, Role], rollouts: Collection[SpanKey]) -> None:
        self._tree = tree
        self._roles = roles
        self._rollouts = rollouts
        self._known: dict[SpanKey, Above] = {}  # what a span and those above it say

    def above(self, key: SpanKey) -> Above:
        """What the spans above one say."""
        parent = self._tree.parents.get(key)
        if parent is None:
            return _NOTHING
        return self._known.get(parent) or self._ask(parent)

    def inside(self, key: SpanKey) -> Iterator[SpanKey]:
        """The spans above one, up to the nearest rollout's own span and with it."""
        at = self._tree.parents.get(key)
        while at is not None:
            yield at
            at = None if at in self._rollouts else self._tree.parents.get(at)

    def is_passed_on(self, key: SpanKey, outer: SpanKey) -> bool:
        """Whether neither a tool nor an agent runs between a span and one above it."""
        at = self._tree.parents.get(key)
        while at is not None and at != outer:
            if self._roles[at] in ("tool", "agent"):
                return False
            at = self._tree.parents.get(at)
        return True

    def _ask(self, key: SpanKey) -> Above:
        path: list[SpanKey] = []
        at: SpanKey | None = key
        while at is not None and at not in self._known:
            path.append(at)
            at = self._tree.parents.get(at)
        above = _NOTHING if at is None else self._known[at]
        for step in reversed(path):
            span = self._tree.spans[step]
            above = self._known[step] = Above(
                agent=agent_name(span) or above.agent,
                step=span if attributes.STEP_INDEX in span.attributes else above.step,
                call=step if self._roles[step] == "inference" else None if step in self._rollouts else above.call,
            )
        return above
