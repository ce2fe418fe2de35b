"""Span context: what surrounds a span in its tree, and the log records that belong to it.

`Ancestry` knows the nearest agent, step and call above each span, `correlate_logs` finds the span of each log record.

Invariant: each span is read once, however many calls and rollouts of the tree are below it. A log record belongs to the
span it names. A completion that names a span which is no LLM call belongs to the call below that span that was running:
OpenLLMetry writes the completion of a stream when its own span is not current. So do the bodies of an exchange, the
later of which may be written when its call has just ended.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from art_otel import attributes
from art_otel.conventions import (
    Role,
    agent_conversation,
    agent_instructions,
    agent_name,
    exchange_of,
    is_completion_event,
)
from art_otel.spans import LogRecord, Span, SpanKey, SpanTree
from art_otel.spans.tree import IntervalIndex


class AncestorContext(NamedTuple):
    """The nearest agent's name, instructions and conversation, the nearest step and call, from a span upward.

    `call` and `call_depth`, the number of calls, are reset at a rollout's root, because no request encloses a rollout.
    `boundary_depth` counts all tools and agents.
    """

    agent: str | None = None
    step: Span | None = None
    call: SpanKey | None = None
    call_depth: int = 0
    boundary_depth: int = 0
    instructions: str | None = None
    conversation: str | None = None


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
        agent, step, call, call_depth, boundary_depth, instructions, conversation = above or _NO_CONTEXT
        if role == "inference":
            call, call_depth = key, call_depth + 1
        elif key in self._rollouts:
            call, call_depth = None, 0
        if attributes.STEP_INDEX in span.attributes:
            step = span
        if role == "agent":
            instructions, conversation = agent_instructions(span), agent_conversation(span)
        return AncestorContext(
            agent_name(span) or agent,
            step,
            call,
            call_depth,
            boundary_depth + (role in ("tool", "agent")),
            instructions,
            conversation,
        )


class CorrelatedLogs(msgspec.Struct, frozen=True, kw_only=True):
    """The log records of each span, and the `others`, whose span is not here. `duplicate` counts equal ones."""

    of_spans: Mapping[SpanKey, list[LogRecord]] = {}
    others: Sequence[LogRecord] = ()
    duplicate: int = 0

    @property
    def joined(self) -> int:
        """How many records reached a span."""
        return sum(map(len, self.of_spans.values()))


def correlate_logs(logs: Iterable[LogRecord], tree: SpanTree, roles: Mapping[SpanKey, Role]) -> CorrelatedLogs:
    """Find the span of each log record."""
    unique: dict[bytes, LogRecord] = {}
    duplicate = 0
    for log in logs:
        encoded = msgspec.msgpack.encode(log, order="deterministic")
        duplicate += encoded in unique
        unique[encoded] = log
    if not unique:
        return CorrelatedLogs()
    of_spans: dict[SpanKey, list[LogRecord]] = defaultdict(list)
    others: list[LogRecord] = []
    calls_below: dict[SpanKey, IntervalIndex[SpanKey]] = {}
    call_of_exchange: dict[str | None, SpanKey] = {}
    for _, log in sorted(unique.items(), key=lambda item: (item[1].time_ns, item[0])):
        key = log.key
        if key not in tree.spans:
            others.append(log)
            continue
        exchange = exchange_of(log)
        if roles[key] != "inference" and (exchange is not None or is_completion_event(log)):
            if key not in calls_below:
                calls_below[key] = _calls_below(key, tree, roles)
            key = call_of_exchange.get(exchange) or calls_below[key].only_at(log.time_ns) or key
            if exchange is not None:
                call_of_exchange[exchange] = key
        of_spans[key].append(log)
    return CorrelatedLogs(of_spans=dict(of_spans), others=others, duplicate=duplicate)


def _calls_below(key: SpanKey, tree: SpanTree, roles: Mapping[SpanKey, Role]) -> IntervalIndex[SpanKey]:
    children = (tree.spans[child] for child in tree.children.get(key, ()) if roles[child] == "inference")
    return IntervalIndex((span.start_ns, span.end_ns, span.key) for span in children)
