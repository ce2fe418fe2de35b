"""AttributionContext: the indexes of a group that attribution reads.

Invariant: it only answers questions. Most groups have few rewards or none, so each index is made when it is first used.
"""

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import cached_property
from itertools import chain
from typing import NamedTuple

import msgspec

from art_otel import attributes
from art_otel.calls import InferenceCall
from art_otel.conventions import Role
from art_otel.spans import LogRecord, Span, SpanKey, SpanTree
from art_otel.trajectories.calls.recorded_calls import RecordedCalls
from art_otel.trajectories.rewards.external import ExternalReward, RewardKey, distinct
from art_otel.trajectories.rollouts.assignment import RolloutAssignment
from art_otel.trajectories.rollouts.index import RolloutSpans


class EnclosingCallAndStep(NamedTuple):
    """The call (its span id) and the step that a span is or lies in."""

    call: str | None = None
    step: Span | None = None


class AttributionContext(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """A tree, its rollouts, roles, log records, and the calls of its spans.

    `logs` are those of the tree's spans, `logs_without_span` those of spans that are not here. `external` are rewards
    from other traces, None if no rewards are delivered between groups.
    """

    tree: SpanTree
    assignment: RolloutAssignment
    roles: Mapping[SpanKey, Role]
    logs: Mapping[SpanKey, Sequence[LogRecord]]
    logs_without_span: Sequence[LogRecord] = ()
    recorded: Mapping[RolloutSpans, RecordedCalls]
    external: Sequence[ExternalReward] | None = None

    def records(self) -> Iterator[Span | LogRecord]:
        """Everything that may give a reward."""
        return chain(self.tree.spans.values(), *self.logs.values(), self.logs_without_span)

    def rollout_of(self, key: SpanKey) -> RolloutSpans | None:
        """The rollout that a span is in."""
        return self.assignment.of.get(key)

    def call_at(self, key: SpanKey) -> InferenceCall | None:
        """The call that an inference span describes."""
        rollout = self.rollout_of(key)
        return None if rollout is None else self.calls.get((rollout, self.call_of.get(key)))

    @cached_property
    def traces(self) -> AbstractSet[str]:
        """The traces of the group."""
        return {record.trace_id for record in self.records()}

    @cached_property
    def copies(self) -> Mapping[RewardKey, ExternalReward]:
        """The copies of rewards of this group, which were delivered to it or returned as undeliverable."""
        return {reward.key: reward for reward in distinct(self.external or ()) if reward.origin[0] in self.traces}

    @cached_property
    def call_of(self) -> Mapping[SpanKey, str]:
        """The span id of the call that an inference span describes."""
        return {key: call for recorded in self.recorded.values() for key, call in recorded.call_of.items()}

    @cached_property
    def calls(self) -> Mapping[tuple[RolloutSpans, str | None], InferenceCall]:
        """Every call by its rollout and span id."""
        return {(rollout, call.span_id): call for rollout, recorded in self.recorded.items() for call in recorded.calls}

    @cached_property
    def responses(self) -> Mapping[str, Sequence[SpanKey]]:
        """The calls that have a response id."""
        keys: dict[str, list[SpanKey]] = {}
        for call in self.calls.values():
            if call.response_id is not None:
                keys.setdefault(call.response_id, []).append((call.trace_id, call.span_id))
        return keys

    @cached_property
    def enclosing(self) -> Mapping[SpanKey, EnclosingCallAndStep]:
        """The nearest call and step at or above each span, within its rollout. No call above the step counts."""
        return self.tree.inherit(self._enclosing)

    def _enclosing(self, key: SpanKey, above: EnclosingCallAndStep | None) -> EnclosingCallAndStep:
        span, rollout, parent = self.tree.spans[key], self.assignment.of[key], self.tree.parents.get(key)
        if rollout is not None and span is rollout.root:
            return EnclosingCallAndStep()
        call = self.call_of.get(key)
        if attributes.STEP_INDEX in span.attributes:
            return EnclosingCallAndStep(call, span)
        if parent is None or above is None or self.assignment.of[parent] is not rollout:
            return EnclosingCallAndStep(call)
        return EnclosingCallAndStep(call or above.call, above.step)
