"""Ancestry: what stands above the spans of a tree.

Invariant: each span is asked once what it says, however many calls and rollouts of the tree are below it.
"""

from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

from art_otel import attributes
from art_otel.conventions import Role, agent_name
from art_otel.spans import Span, SpanKey, SpanTree


class AncestorContext(NamedTuple):
    """The nearest agent's name, the nearest step and the nearest call, from a span upward.

    No request is asked around a rollout, so `call` ends at the rollout's own span. `call_depth` counts the calls up to
    there, `boundary_depth` all tools and agents.
    """

    agent: str | None = None
    step: Span | None = None
    call: SpanKey | None = None
    call_depth: int = 0
    boundary_depth: int = 0


_NOTHING: Final = AncestorContext()


class Ancestry:
    """The ancestor contexts of a tree. `rollouts` are the rollouts' own spans."""

    def __init__(self, tree: SpanTree, roles: Mapping[SpanKey, Role], rollouts: Collection[SpanKey]) -> None:
        self._tree = tree
        self._roles = roles
        self._rollouts = rollouts
        self._contexts: Mapping[SpanKey, AncestorContext] = tree.inherit(self._extend)

    def upward(self, key: SpanKey) -> AncestorContext:
        """What a span and those above it say."""
        return self._contexts[key]

    def above(self, key: SpanKey) -> AncestorContext:
        """What the spans above one say."""
        parent = self._tree.parents.get(key)
        return _NOTHING if parent is None else self._contexts[parent]

    def _extend(self, key: SpanKey, above: AncestorContext | None) -> AncestorContext:
        span, role = self._tree.spans[key], self._roles[key]
        context = above or _NOTHING
        name = agent_name(span)
        if name is not None:
            context = context._replace(agent=name)
        if attributes.STEP_INDEX in span.attributes:
            context = context._replace(step=span)
        if role == "inference":
            context = context._replace(call=key, call_depth=context.call_depth + 1)
        elif key in self._rollouts:
            context = context._replace(call=None, call_depth=0)
        if role in ("tool", "agent"):
            context = context._replace(boundary_depth=context.boundary_depth + 1)
        return context
