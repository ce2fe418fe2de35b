"""Ancestry: what stands above the spans of a tree.

Invariant: each span is asked once what it says, however many calls and rollouts of the tree are below it.
"""

from collections.abc import Collection, Mapping
from functools import cached_property
from typing import Final, NamedTuple

from art_otel import attributes
from art_otel.conventions import Role, agent_name
from art_otel.spans import Span, SpanKey, SpanTree


class AncestorContext(NamedTuple):
    """The nearest agent's name, the nearest step and the nearest call above a span.

    No request is asked around a rollout, so the call is one between the span and the rollout's own span. `runs` counts
    the tools and agents above the span.
    """

    agent: str | None = None
    step: Span | None = None
    call: SpanKey | None = None
    runs: int = 0


_NOTHING: Final = AncestorContext()


class Ancestry:
    """Those of one tree. `rollouts` are the rollouts' own spans."""

    def __init__(self, tree: SpanTree, roles: Mapping[SpanKey, Role], rollouts: Collection[SpanKey]) -> None:
        self._tree = tree
        self._roles = roles
        self._rollouts = rollouts
        self._known: dict[SpanKey, AncestorContext] = {}  # what a span and those above it say

    def above(self, key: SpanKey) -> AncestorContext:
        """What the spans above one say."""
        parent = self._tree.parents.get(key)
        return _NOTHING if parent is None else self._with(parent)

    def beside(self, key: SpanKey) -> range:
        """The places of all spans below the one that a span is right below; the first is its own, and its siblings'.

        What is below a rollout's own span is below nothing further up.
        """
        parent = self._tree.parents.get(key)
        return range(len(self._tree.spans) + 1) if parent is None else self._places[parent]

    def is_passed_on(self, key: SpanKey, outer: SpanKey) -> bool:
        """Whether neither a tool nor an agent runs between a span and one above it."""
        return self.above(key).runs == self._with(outer).runs

    @cached_property
    def _places(self) -> Mapping[SpanKey, range]:
        """The number of each span and of all below it, which stand right behind it. Those of 1 and more."""
        order = list(self._tree.topological_order())
        parents = {key: above for key, above in self._tree.parents.items() if key not in self._rollouts}
        sizes = dict.fromkeys(order, 1)
        for key in reversed(order):
            if key in parents:
                sizes[parents[key]] += sizes[key]
        free: dict[SpanKey | None, int] = {None: 1}  # the next number below a span
        places: dict[SpanKey, range] = {}
        for key in order:
            above, size = parents.get(key), sizes[key]
            places[key] = range(free[above], free[above] + size)
            free[above] += size
            free[key] = places[key].start + 1
        return places

    def _with(self, key: SpanKey) -> AncestorContext:
        """What a span and those above it say."""
        return self._known.get(key) or self._ask(key)

    def _ask(self, key: SpanKey) -> AncestorContext:
        path: list[SpanKey] = []
        at: SpanKey | None = key
        while at is not None and at not in self._known:
            path.append(at)
            at = self._tree.parents.get(at)
        above = _NOTHING if at is None else self._known[at]
        for step in reversed(path):
            span, role = self._tree.spans[step], self._roles[step]
            above = self._known[step] = AncestorContext(
                agent=agent_name(span) or above.agent,
                step=span if attributes.STEP_INDEX in span.attributes else above.step,
                call=step if role == "inference" else None if step in self._rollouts else above.call,
                runs=above.runs + (role in ("tool", "agent")),
            )
        return above
