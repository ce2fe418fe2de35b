"""Judging: which rewards lead from one rollout of a kin to another.

Invariant: where kin can be told apart, each rollout gives the same trajectory from its own records and the spans that
judge it as it gives from the records of all. Where that is not certain they cannot.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple, Self

import msgspec

from art_otel.conventions import GivenReward, parse_call, rewards_of, rewards_of_log, role_of
from art_otel.conventions.dialects.genai import RESPONSE_ID
from art_otel.engines.buckets import Record
from art_otel.spans import LogRecord, Quarantined, Span, SpanKey, SpanTree, build_tree
from art_otel.trajectories import SpanGroup, judged_by
from art_otel.trajectories.rewards.texts import may_be_repeated
from art_otel.trajectories.rollouts.assignment import declared_id, is_named_rollout, is_reward_span


class Judging(NamedTuple):
    """The spans that judge each rollout, and the rollouts in which these stand, which nobody judges."""

    judges: Mapping[str, Sequence[Span]]
    rollouts: AbstractSet[str]


def find_judging(
    records: Callable[[], Iterable[Record]],
    groups: Callable[[AbstractSet[str]], Iterable[tuple[str, SpanGroup]]],
    heads: Mapping[str, str],
    rollout_spans: Sequence[str],
) -> Judging | None:
    """Who judges whom among kin; None where they cannot be told apart.

    `records` gives all records of the kin, `groups` those of some rollouts, `heads` leads a trace to its rollout.
    """
    places = _Places.find(records, heads)
    if places is None:
        return None
    if not all(map(places.is_certain, records())):
        return None
    rollouts = {heads[span.trace_id] for span in _spans(records) if places.judged_elsewhere(span)}
    judges: dict[str, list[Span]] = defaultdict(list)
    for _, group in groups(rollouts):
        if not all(damage.partial for damage in group.damages):
            return None
        trial = _Trial.of(group, rollout_spans)
        for span in trial.united.spans.values():
            others = places.judged_elsewhere(span)
            if not others.isdisjoint(rollouts) or places.links_here(span) or (others and not trial.only_judges(span)):
                return None
            for other in others:
                judges[other].append(span)
    return Judging(judges, rollouts)


def _spans(records: Callable[[], Iterable[Record]]) -> Iterator[Span]:
    return (record for record in records() if isinstance(record, Span))


class _Places(msgspec.Struct, frozen=True, kw_only=True):
    """Where what is judged stands: the rollout of each trace, and of each response that a reward names, if any."""

    heads: Mapping[str, str]
    answering: Mapping[str, str]

    @classmethod
    def find(cls, records: Callable[[], Iterable[Record]], heads: Mapping[str, str]) -> Self | None:
        """The places; None where a reward's is not certain, or it has the rollout's id and belongs to it."""
        naming: dict[str, set[str]] = defaultdict(set)
        for record in records():
            if isinstance(record, Span) and is_reward_span(record) and declared_id(record) is not None:
                return None
            for response_id in _named(record):
                naming[response_id].add(heads[str(record.trace_id)])
        answers: dict[str, set[SpanKey]] = defaultdict(set)
        for span in _spans(records) if naming else ():
            if role_of(span) == "inference" and (response_id := parse_call(span).response_id) in naming:
                answers[response_id].add(span.key)
        answering: dict[str, str] = {}
        for response_id, keys in answers.items():
            places = {heads[trace_id] for trace_id, _ in keys}
            if len(keys) > 1 and not (len(places) == 1 and naming[response_id] == places):
                return None
            answering[response_id] = min(places)
        return cls(heads=heads, answering=answering)

    def judged_elsewhere(self, span: Span) -> AbstractSet[str]:
        """The other rollouts that the rewards on a span may judge."""
        judged = judged_by(span)
        own = self.heads[span.trace_id]
        linked = {self.heads[trace_id] for trace_id in judged.traces if trace_id in self.heads}
        named = {self.answering[response_id] for response_id in judged.responses if response_id in self.answering}
        return (linked | named) - {own} if linked or named else frozenset()

    def is_certain(self, record: Record) -> bool:
        """Whether the responses that rewards name are where all links lead, and those of log records in their own."""
        if isinstance(record, Quarantined):
            return True
        if isinstance(record, LogRecord):
            expected = {self.heads[record.trace_id]}
        else:
            expected = {self.heads.get(trace_id) for trace_id in judged_by(record).traces}
        return not expected or all({self.answering.get(name)} in ({None}, expected) for name in _named(record))

    def links_here(self, span: Span) -> bool:
        """Whether its rewards link into its own trace, maybe to a span that goes with what that one judges."""
        return span.trace_id in judged_by(span).traces


def _named(record: Record) -> list[str]:
    """The responses that the rewards of a record name, if they may be elsewhere."""
    if isinstance(record, Span):
        judged = judged_by(record)
        rewards = rewards_of(record) if judged.traces or judged.responses else ()
    else:
        rewards = rewards_of_log(record) if isinstance(record, LogRecord) else ()
    given = (reward for reward in rewards if isinstance(reward, GivenReward))
    return [reward.response_id for reward in given if reward.response_id is not None]


class _Trial(msgspec.Struct, frozen=True, kw_only=True):
    """Records of a rollout that judges others. `touched` are the spans that have log records or damages."""

    united: SpanTree
    touched: AbstractSet[tuple[str | None, str | None]]
    has_calls: bool
    rollout_spans: Sequence[str]

    @classmethod
    def of(cls, group: SpanGroup, rollout_spans: Sequence[str]) -> Self:
        """The trial of a group."""
        united = build_tree(group.spans)
        others = (*group.logs, *group.damages, *united.cyclic)
        return cls(
            united=united,
            touched={(record.trace_id, record.span_id) for record in others},
            has_calls=any(role_of(span) == "inference" for span in united.spans.values()),
            rollout_spans=rollout_spans,
        )

    def only_judges(self, span: Span) -> bool:
        """Whether whom a span judges needs nothing but the span, and misses nothing of it without its trace."""
        is_whole = span.end_ns is not None and not span.dropped_attributes_count and not span.dropped_events_count
        is_sound = is_whole and span.key not in self.united.orphans and span.key not in self.touched
        judges = is_sound and role_of(span) in ("agent", "tool", "other") and RESPONSE_ID not in span.attributes
        return judges and not self._may_be_rollout(span) and _are_of_spans(span)

    def _may_be_rollout(self, span: Span) -> bool:
        """Whether it may be a rollout's own span, which judges that rollout whatever it links to."""
        if is_named_rollout(span, self.rollout_spans):
            return True
        declared, parent = declared_id(span), self.united.parents.get(span.key)
        above = None if parent is None else declared_id(self.united.spans[parent])
        return declared != above if declared is not None else parent is None and self.has_calls


def _are_of_spans(span: Span) -> bool:
    """Whether all rewards on it are of spans, and of all that it links to."""
    rewards = rewards_of(span)
    given = [reward for reward in rewards if isinstance(reward, GivenReward)]
    whole = [reward for reward in given if reward.choice is None and reward.token_end is None]
    return len(whole) == len(rewards) and may_be_repeated(whole, len(span.links))
