"""Endings: when a rollout has ended. Everything that waits for rollouts asks here.

Invariant: a rollout has ended when its own span has ended and everything is there that it counted, or when somebody
told a gateway that it is over. Counts do not depend on the order in which spans come, nor on repeated ones. Where
nobody counted, or where something never comes, a rollout counts as ended when it was quiet for a grace; what comes
later opens it again, and its trajectory is the next revision.

    who waits                        knows it by                                      grace
    RolloutBuffer, in the app        RolloutCounts: spans as they start and end          none: it sees all of them
    Rollouts of a gateway            RolloutCounts: calls as they start and end          since the last call
    ArrivingRollouts, received       SpanTally: spans that came, and what they count  since the last span
    engines/decisions, incremental   SpanTally of all spans of a group                since its files were written to

Two kinds of own spans count:

- That of a **process** says how many spans started and ended in that process. They are compared with spans of the same
  process: those of other services stand for none of them.
- That of **gateways** is written in editions with the ids of one span, another one for each attempt. Each says how
  many calls one gateway began, and whether it waits for more (it has no end). Of each gateway the newest edition
  counts; a gateway that was restarted is another one. A call from a gateway that has not said how many it began is one
  too many.

      gateway A, edition 1: 1 call, waits       gateway A, edition 2: 2 calls, over
      gateway B, edition 1: 1 call, over        ended when two calls of A are there, and one of B
"""

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import NamedTuple

from art_otel.attributes import GATEWAY_SCOPE
from art_otel.conventions import INSTANCE
from art_otel.spans import Resource, Span
from art_otel.spans.copies import edition_of
from art_otel.trajectories.rollouts import is_marked_root, is_reward_span
from art_otel.trajectories.wholeness import calls_counted_on, may_be_one_process, spans_counted_on


def is_quiet(changed: float, now: float, grace: float) -> bool:
    """Whether nothing came for the grace. All three have one unit, and the times one clock."""
    return now - changed >= grace


@dataclass(slots=True)
class RolloutCounts:
    """Spans besides the rollout's own, or calls of a gateway, that this process sees start and end."""

    started: int = 0
    ended: int = 0

    @property
    def is_any_running(self) -> bool:
        """Whether one has not ended."""
        return self.ended < self.started


class SpanTally:
    """The spans of a rollout that came, in any order. `has_ended` says whether they are all."""

    __slots__ = ("_attempts", "_counted", "_ended", "_roots", "_running", "_told")

    def __init__(self) -> None:
        self._running: set[int] = set()
        self._ended: set[int] = set()
        self._roots: dict[int, tuple[int | None, Resource]] = {}
        """What the own spans of processes count, by their numbers."""
        self._counted: list[tuple[Resource, int]] = []
        """Ended spans besides these, by the resource of their process."""
        self._attempts: defaultdict[str, _GatewayAttempt] = defaultdict(_GatewayAttempt)
        """What gateways say of each attempt, whose own span is in a trace of its own."""
        self._told: set[int] = set()
        """The numbers of what gateways said."""

    @property
    def has_ended(self) -> bool:
        """Whether every span that began has ended, and there are as many as the rollout's own spans count."""
        if self._running:
            return False
        attempts = [attempt for attempt in self._attempts.values() if attempt.parts]
        if not (self._roots or attempts) or not all(attempt.has_ended for attempt in attempts):
            return False
        counts = [count for count, _ in self._roots.values() if count is not None]
        return len(counts) == len(self._roots) and self._of_roots() >= sum(counts)

    @property
    def numbers(self) -> set[int]:
        """The numbers of what is here: spans, and what gateways said."""
        return self._ended | self._running | self._told

    def has(self, number: int) -> bool:
        """Whether something is here, by its number."""
        return number in self._ended or number in self._running or number in self._told

    def add_span(self, span: Span) -> None:
        """Take a span."""
        number = span_number(span.trace_id, span.span_id)
        is_root = is_marked_root(span)
        if is_root and (says := edition_numbers(span)):
            self._told |= {number, *says}
            attempt = self._attempts[span.trace_id]
            attempt.is_over = attempt.is_over or says_the_end(span)
            for gateway, calls in calls_counted_on(span).items():
                part = _GatewayPart(edition_of(span), calls, span.end_ns is None)
                attempt.parts[gateway] = max(part, attempt.parts.get(gateway, part))
            return
        if number in self._ended:
            return
        if span.end_ns is None:
            self._running.add(number)
            return
        self._running.discard(number)
        self._ended.add(number)
        if span.scope.name == GATEWAY_SCOPE:
            attempt = self._attempts[span.trace_id]
            attempt.calls[str(span.resource.attributes.get(INSTANCE, ""))] += 1
        if is_root:
            self._roots[number] = (spans_counted_on(span), span.resource)
        elif span.parent_span_id is not None or not is_reward_span(span):  # nobody counts rewards given later
            self._count(span.resource)

    def _count(self, resource: Resource) -> None:
        for position, (counted_resource, count) in enumerate(self._counted):
            if counted_resource is resource or counted_resource == resource:
                self._counted[position] = (resource, count + 1)
                return
        self._counted.append((resource, 1))

    def _of_roots(self) -> int:
        """How many spans the processes of the roots have."""
        processes = [resource for _, resource in self._roots.values()]
        return sum(
            count
            for resource, count in self._counted
            if any(may_be_one_process(resource, process) for process in processes)
        )


class _GatewayPart(NamedTuple):
    """What the newest edition of a gateway says; ordered by the edition."""

    edition: int
    calls: int
    waits: bool


@dataclass(slots=True)
class _GatewayAttempt:
    """What gateways say of one attempt.

    `parts` is what the newest edition of each says. `calls` are the ended calls by their gateway, whose name is empty
    where a store did not keep it. `is_over` says that somebody told a gateway that the attempt is over.
    """

    parts: dict[str, _GatewayPart] = field(default_factory=dict[str, _GatewayPart])
    calls: Counter[str] = field(default_factory=Counter[str])
    is_over: bool = False

    @property
    def has_ended(self) -> bool:
        """Whether it is over, and has as many calls as the gateways count."""
        if not self.is_over and any(part.waits for part in self.parts.values()):
            return False
        began = Counter({gateway: part.calls for gateway, part in self.parts.items()})
        # More calls of a gateway than it counts: its newest edition is still on its way.
        missing, uncounted = began - self.calls, self.calls - began
        return not uncounted.keys() - {""} and missing.total() == uncounted[""]


def says_the_end(edition: Span) -> bool:
    """Whether somebody had ended the rollout when a gateway wrote this edition."""
    return edition.end_ns is not None and edition.status != "unset"


def span_number(trace_id: str, span_id: str) -> int:
    """Give the number of a span, the same in every process."""
    return int.from_bytes(blake2b(f"{trace_id} {span_id}".encode(), digest_size=8).digest(), signed=True)


def end_number(edition: Span) -> int:
    """The number of the end that somebody said to a gateway."""
    return span_number(edition.trace_id, f"{edition.span_id} end")


def edition_numbers(edition: Span) -> set[int]:
    """The numbers of what a gateway says in an edition of a rollout's own span; none where it is no gateway's."""
    counts = calls_counted_on(edition).items()
    numbers = {span_number(edition.trace_id, f"{edition.span_id} {gateway} {calls}") for gateway, calls in counts}
    return {*numbers, end_number(edition)} if numbers and says_the_end(edition) else numbers
