"""Ancestry: the context of each span: the nearest agent, step and call above it.

Invariant: each span is read once, however many calls and rollouts of the tree are below it.
"""

from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

from art_otel import attributes
from art_otel.conventions import Role, agent_instructions, agent_name
from art_otel.spans import Span, SpanKey, SpanTree


class AncestorContext(NamedTuple):
    """The nearest agent's name and instructions, the nearest step and the nearest call, from a span upward.

    `call` and `call_depth`, the number of calls, are reset at a rollout's root, because no request encloses a rollout.
    `boundary_depth` counts all tools and agents.
    """

    agent: str | None = None
    step: Span | None = None
    call: SpanKey | None = None
    call_depth: int = 0
    boundary_depth: int = 0
    instructions: str | None = None


_NO_CONTEXT: Final = AncestorContext()


class Ancestry:
    """The ancestor contexts of a tree. `rollouts` are the rollouts' own spans."""

    def __init__(self, tree: SpanTree, roles: Mapping[SpanKey, Role], rollouts: Collection[SpanKey]) -> None:
        self._tree = tree
        self._roles = roles
        self._rollouts = rollouts
        self._contexts: Mapping[SpanKey, AncestorContext] = tree.inherit(self._extend)

    def context_including(self, key: SpanKey) -> AncestorContext:
        """The context of a span's children: by the span and its ancestors."""
        return self._contexts[key]

    def context_above(self, key: SpanKey) -> AncestorContext:
        """The context of a span: by its ancestors alone."""
        parent = self._tree.parents.get(key)
        return _NO_CONTEXT if parent is None else self._contexts[parent]

    def _extend(self, key: SpanKey, above: AncestorContext | None) -> AncestorContext:
        span, role = self._tree.spans[key], self._roles[key]
        agent, step, call, call_depth, boundary_depth, instructions = above or _NO_CONTEXT
        if role == "inference":
            call, call_depth = key, call_depth + 1
        elif key in self._rollouts:
            call, call_depth = None, 0
        if attributes.STEP_INDEX in span.attributes:
            step = span
        if role == "agent":
            instructions = agent_instructions(span)
        return AncestorContext(
            agent_name(span) or agent,
            step,
            call,
            call_depth,
            boundary_depth + (role in ("tool", "agent")),
            instructions,
        )
