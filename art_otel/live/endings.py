"""Endings: when a rollout has ended. All code that waits for rollouts counts with these.

Invariant: a rollout has ended when its own span has ended and all spans are there that the own span counted. Where only
gateways record, it has ended when a request told one of them so, or when all of them were quiet for their grace, and
all counted calls are there. The order of spans and repeated ones change nothing. Without a count, or if a counted span
never comes, a rollout counts as ended when no span of it came for a grace. A later span opens the rollout again, and
its trajectory is the next revision.

    who waits                        knows the end by                                 grace
    RolloutBuffer, in the app        RolloutCounts: spans as they start and end          `grace_seconds` of gathering
    Rollouts of a gateway            RolloutCounts: calls as they start and end          since the last call
    ArrivingRollouts, received       SpanTally: spans that came, and what they count  since the last span
    engines/decisions, incremental   SpanTally of all spans of a group                since its files were written to

A rollout's own span comes from one of two writers:

- **A process** writes the span once and says how many spans started and ended in it. Only spans of the same process are
  compared with this count: a span of another service must not stand for a missing one.
- **Gateways** write the span again and again, in editions: same ids, for each attempt another span. An edition says how
  many calls one gateway began, and whether that gateway waits for more (then the edition has no end time). Only the
  newest edition of a gateway counts; a restarted gateway is another gateway. A call of a gateway whose editions do not
  count that call keeps the rollout open: a newer edition is on its way.

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
    """Whether nothing came for the grace. `changed` and `now` are times of one clock, in the unit of `grace`."""
    return now - changed >= grace


@dataclass(slots=True)
class RolloutCounts:
    """How many spans of a rollout (besides its own span), or calls of a gateway, this process saw start and end."""

    started: int = 0
    ended: int = 0

    @property
    def is_any_running(self) -> bool:
        """Whether a span that started has not ended."""
        return self.ended < self.started

    def are_quiet(self, changed: float, now: float, grace: float) -> bool:
        """Whether nothing runs, and nothing came for the grace; times as in `is_quiet`."""
        return not self.is_any_running and is_quiet(changed, now, grace)


class SpanTally:
    """The spans of a rollout that came so far, in any order. `has_ended` says whether none is missing."""

    __slots__ = ("_attempts", "_counted", "_ended", "_roots", "_running", "_told")

    def __init__(self) -> None:
        self._running: set[int] = set()
        self._ended: set[int] = set()
        self._roots: dict[int, tuple[int | None, Resource]] = {}
        """The rollout's own spans that processes wrote, by span number: the count that each has, and its process."""
        self._counted: list[tuple[Resource, int]] = []
        """How many other spans ended, by the resource of their process."""
        self._attempts: defaultdict[str, _GatewayAttempt] = defaultdict(_GatewayAttempt)
        """The counts of gateways by trace id: each attempt has a trace of its own."""
        self._told: set[int] = set()
        """The numbers of the gateways' editions (`edition_numbers`)."""

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
        """The numbers of all spans and gateway editions that came."""
        return self._ended | self._running | self._told

    def has(self, number: int) -> bool:
        """Whether the span or edition with this number came."""
        return number in self._ended or number in self._running or number in self._told

    def add_span(self, span: Span) -> None:
        """Count a span. An edition of a gateway replaces the older editions of that gateway."""
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
        elif span.parent_span_id is not None or not is_reward_span(span):  # no own span counts rewards given later
            self._count(span.resource)

    def _count(self, resource: Resource) -> None:
        # A rollout has spans of few processes, so a search through the list is fast.
        for position, (counted_resource, count) in enumerate(self._counted):
            if counted_resource is resource or counted_resource == resource:
                self._counted[position] = (resource, count + 1)
                return
        self._counted.append((resource, 1))

    def _of_roots(self) -> int:
        """How many ended spans came of the processes that wrote the rollout's own spans."""
        processes = [resource for _, resource in self._roots.values()]
        return sum(
            count
            for resource, count in self._counted
            if any(may_be_one_process(resource, process) for process in processes)
        )


class _GatewayPart(NamedTuple):
    """The newest edition of a gateway: its number, how many calls it counts, and whether the gateway waits for more.

    `edition` stands first, so that `max` finds the newest.
    """

    edition: int
    calls: int
    waits: bool


@dataclass(slots=True)
class _GatewayAttempt:
    """The counts of gateways for one attempt.

    `parts` has the newest edition of each gateway. `calls` counts the ended calls that came, by gateway; the name is ""
    where a store of traces did not keep it. `is_over` says that a request told a gateway that the attempt is over.
    """

    parts: dict[str, _GatewayPart] = field(default_factory=dict[str, _GatewayPart])
    calls: Counter[str] = field(default_factory=Counter[str])
    is_over: bool = False

    @property
    def has_ended(self) -> bool:
        """Whether the attempt is over and as many calls came as the gateways count."""
        if not self.is_over and any(part.waits for part in self.parts.values()):
            return False
        began = Counter({gateway: part.calls for gateway, part in self.parts.items()})
        # More calls of a gateway than it counts: its newest edition is still on its way. Calls without a gateway's name
        # ("") may be of any gateway, so they stand for the missing ones, if the numbers agree.
        missing, uncounted = began - self.calls, self.calls - began
        return not uncounted.keys() - {""} and missing.total() == uncounted[""]


def says_the_end(edition: Span) -> bool:
    """Whether the gateway had been told that the rollout is over when it wrote this edition."""
    # A rollout that was only quiet for the grace has an end time, too; its status stays unset.
    return edition.end_ns is not None and edition.status != "unset"


def span_number(trace_id: str, span_id: str) -> int:
    """A 64-bit number for a span, the same in every process: an integer takes less memory than two texts."""
    return int.from_bytes(blake2b(f"{trace_id} {span_id}".encode(), digest_size=8).digest(), signed=True)


def end_number(edition: Span) -> int:
    """The number for "this rollout is over", as an edition of a gateway may say."""
    return span_number(edition.trace_id, f"{edition.span_id} end")


def edition_numbers(edition: Span) -> set[int]:
    """The numbers for the statements of a gateway's edition: one for each gateway and count, one for the end.

    Empty for a span that no gateway wrote. Equal statements have equal numbers, so a repeated edition adds none.
    """
    counts = calls_counted_on(edition).items()
    numbers = {span_number(edition.trace_id, f"{edition.span_id} {gateway} {calls}") for gateway, calls in counts}
    return {*numbers, end_number(edition)} if numbers and says_the_end(edition) else numbers
