"""Ancestry: the nearest agent, step, mark and call above each span, which is read once for all that is below it."""

from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

from art_otel import attributes
from art_otel.conventions import AgentContent, Role, agent_content, agent_conversation, agent_name
from art_otel.spans import Span, SpanKey, SpanTree
from art_otel.trajectories.rollout_span import setting

UNTRAINED: Final = "untrained"
"""The label where a mark does not say what the calls are for."""


def untrained_mark(span: Span) -> str | None:
    """What the calls below a span are for, if the policy does not learn from them."""
    value = setting(span, attributes.UNTRAINED)
    if isinstance(value, str) and value.lower() not in ("", "true", "false"):  # some stores make a boolean a text
        return value
    return UNTRAINED if str(value).lower() == "true" else None


class AncestorContext(NamedTuple):
    """The nearest agent's name, content and conversation, the nearest step and call, from a span upward.

    `untrained` is the nearest mark that the policy does not learn from the calls, also of a rollout further out.
    `call` and `call_depth`, the number of calls, are reset at a rollout's root, because no request encloses a rollout.
    `boundary_depth` counts all tools and agents.
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


class Ancestry:
    """The ancestor contexts of a tree. `rollouts` are the rollouts' own spans."""

    def __init__(self, tree: SpanTree, roles: Mapping[SpanKey, Role], rollouts: Collection[SpanKey]) -> None:
        self._tree = tree

        def extend(key: SpanKey, above: AncestorContext | None) -> AncestorContext:
            span, role = tree.spans[key], roles[key]
            agent, step, call, call_depth, boundary_depth, content, conversation, untrained = above or _NO_CONTEXT
            if role == "inference":
                call, call_depth = key, call_depth + 1
            elif key in rollouts:
                call, call_depth = None, 0
            if attributes.STEP_INDEX in span.attributes:
                step = span
            if role == "tool":  # whose calls are not the agent's
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

        self._contexts: Mapping[SpanKey, AncestorContext] = tree.inherit(extend)

    def context_including(self, key: SpanKey) -> AncestorContext:
        """The context of a span's children: by the span and its ancestors."""
        return self._contexts[key]

    def context_above(self, key: SpanKey) -> AncestorContext:
        """The context of a span: by its ancestors alone."""
        parent = self._tree.parents.get(key)
        return _NO_CONTEXT if parent is None else self._contexts[parent]
