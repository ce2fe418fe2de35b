"""Rewards: deliver every reward of a group to its target, or count the reason why it has no target.

    what the record names          the target of the reward
    links of its span              each linked span
    a response id                  the call with this response id; beside a rollout id, the call in this rollout
    a rollout id                   the rollout, or its step; a trace id or an attempt tells rollouts of one id apart
    nothing                        the span that carries the reward

The first line that fits counts. `addressed_rewards` reads this address from the span or log record alone, so it is the
same in every process. A target may be in another group: `external_rewards` copies such rewards for the other group.

Invariant: no target is chosen by chance. Among several candidates that nothing tells apart, none is chosen.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2b
from itertools import chain
from typing import Final, NamedTuple, TypeAlias

import msgspec

from art_otel import attributes
from art_otel.calls import InferenceCall
from art_otel.conventions import (
    SPAN_NAME,
    BadReward,
    RecordedReward,
    Role,
    has_response,
    integer,
    may_give_to_others,
    rewards_of,
    rewards_of_log,
    role_of,
)
from art_otel.spans import Attributes, LogRecord, Quarantined, Span, SpanKey, SpanTree, Value
from art_otel.trajectories.inference_calls import RecordedCalls, step_index
from art_otel.trajectories.model import Reward
from art_otel.trajectories.rollouts import RolloutAssignment, RolloutIndex, RolloutSpans, is_reward_span, is_rollout

NO_SPAN: Final = "linked span not in the sources"
NO_RESPONSE: Final = "response not in the sources"
SEVERAL_CALLS: Final = "response of several calls"
NO_ROLLOUT: Final = "rollout not in the sources"
SEVERAL_ROLLOUTS: Final = "several rollouts with this id"
OUTSIDE: Final = "outside every rollout"
NO_PART: Final = "no such choice or tokens"
OVER_A_LIMIT: Final = "rollout over a limit"
TOO_LATE: Final = "too late"

_CONVERT_TOGETHER: Final = "convert the judged spans together with the rewards"

ADVICE: Final[Mapping[str, str]] = {
    NO_SPAN: _CONVERT_TOGETHER,
    NO_RESPONSE: f"{_CONVERT_TOGETHER}; a response is found where its call recorded gen_ai.response.id",
    SEVERAL_CALLS: "servers may repeat response ids: link the reward to the call's span, or name its rollout too",
    NO_ROLLOUT: f"check the rollout ids, and {_CONVERT_TOGETHER}",
    SEVERAL_ROLLOUTS: "give target=trajectory, or art.rollout.trace_id or art.rollout.attempt",
    OUTSIDE: "they judge something outside of any rollout: link them to a span of a rollout, or name art.rollout.id",
    NO_PART: "the call has no such choice or not so many tokens: positions count from 0, the end is exclusive",
    OVER_A_LIMIT: "raise the limits of a rollout",
    TOO_LATE: "it had no new span for --retain, or was converted without --incremental: convert everything again",
}
"""What a user can do about an undelivered reward, by reason."""

MAX_REWARD_BYTES: Final = 64 << 20
"""The most bytes of one span's rewards times its links: a small span with many links must not fill the memory."""

_REWARD_OVERHEAD_BYTES: Final = 100
"""The size of a reward without its texts, in bytes."""

_FIRST_LOG_POSITION: Final = 1 << 32
"""Positions of rewards in log records begin here, behind all positions of rewards on a span."""


class RewardAddress(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The target that a reward names. An empty address means the span that carries the reward (`OWN_SPAN`).

    `rollout_id` beside `response_id` is the rollout of the response. `trace_id` and `attempt` tell rollouts with one
    id apart. `step` is the index of a step of the rollout.
    """

    links: tuple[SpanKey, ...] = ()
    response_id: str | None = None
    rollout_id: str | None = None
    trace_id: str | None = None
    attempt: int | None = None
    step: int | None = None


OWN_SPAN: Final = RewardAddress()


class AddressedReward(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A reward, the key of the span that carries it (two empty ids: no span), and the reward's address."""

    origin: SpanKey
    reward: RecordedReward
    address: RewardAddress


def addressed_rewards(record: Span | LogRecord) -> Sequence[AddressedReward | BadReward]:
    """Read the rewards of a span or log record, each with its address."""
    if isinstance(record, LogRecord):
        return [_of_log(reward, record) for reward in rewards_of_log(record)]
    rewards = rewards_of(record)
    if not rewards:
        return ()
    links: tuple[SpanKey, ...] = ()
    # Links of a call or a rollout say where the call or rollout came from, not what its rewards judge.
    if record.links and not (role_of(record) == "inference" or is_rollout(record)):
        links = tuple(dict.fromkeys((link.trace_id, link.span_id) for link in record.links))
    if len(links) > 1 and (size := sum(map(_size, rewards)) * len(links)) > MAX_REWARD_BYTES:
        detail = f"{len(rewards)} rewards for {len(links)} spans each are {size} bytes: give them on several spans"
        return [BadReward(name=rewards[0].name, detail=detail)]
    addressed: list[AddressedReward | BadReward] = []
    for reward in rewards:
        if isinstance(reward, BadReward):
            addressed.append(reward)
            continue
        address = RewardAddress(links=links) if links else OWN_SPAN
        is_for_others = reward.response_id is not None or is_reward_span(record)  # fast path: most rewards are not
        if is_for_others and not links and role_of(record) != "inference":
            is_here = reward.response_id is not None and has_response(record, reward.response_id)
            rollout = _named_rollout(record.attributes) if is_reward_span(record) else OWN_SPAN
            address = msgspec.structs.replace(rollout, response_id=None if is_here else reward.response_id)
        addressed.append(AddressedReward(origin=record.key, reward=reward, address=address))
    return addressed


def _of_log(reward: RecordedReward | BadReward, log: LogRecord) -> AddressedReward | BadReward:
    """Address the reward of a log record."""
    if isinstance(reward, BadReward):
        return reward
    # Records with equal times have no order, so the position comes from the content: the same in every delivery.
    digest = blake2b(msgspec.msgpack.encode(log, order="deterministic"), digest_size=7).digest()
    positioned = msgspec.structs.replace(reward, position=_FIRST_LOG_POSITION + int.from_bytes(digest))
    is_of_its_span = reward.response_id is None and log.span_id
    rollout = OWN_SPAN if is_of_its_span else _named_rollout(log.attributes)
    address = msgspec.structs.replace(rollout, response_id=reward.response_id)
    return AddressedReward(origin=log.key, reward=positioned, address=address)


def _named_rollout(named: Attributes) -> RewardAddress:
    """The rollout that attributes name, as an address; `OWN_SPAN` if they name none."""
    rollout_id, trace_id = named.get(attributes.ROLLOUT_ID), named.get(attributes.ROLLOUT_TRACE_ID)
    if rollout_id is None or rollout_id == "":
        return OWN_SPAN
    return RewardAddress(
        rollout_id=str(rollout_id),
        trace_id=str(trace_id) if trace_id else None,
        attempt=integer(named.get(attributes.ROLLOUT_ATTEMPT)),
        step=integer(named.get(attributes.STEP_INDEX)),
    )


def _size(reward: RecordedReward | BadReward) -> int:
    texts = () if isinstance(reward, BadReward) else (reward.name, reward.label, reward.explanation)
    return _REWARD_OVERHEAD_BYTES + sum(len(text) for text in texts if text is not None)


RewardKey: TypeAlias = tuple[SpanKey, int]
"""What identifies a reward over repeated deliveries: the span that carries it, and its position there."""


class ExternalReward(AddressedReward, frozen=True, kw_only=True, gc=False):
    """A copy of a reward for another trace.

    `trace_id` is the trace that the copy is delivered to, empty until the trace is known. `undeliverable` is the
    reason why the copy came back to the trace of its own span; None for a copy that is on its way or delivered.
    """

    trace_id: str = ""
    undeliverable: str | None = None

    @property
    def key(self) -> RewardKey:
        """The span that carries the reward and the position there: copies with one key are one reward."""
        return (self.origin, self.reward.position)


def external_rewards(record: Span | LogRecord) -> Iterator[ExternalReward]:
    """Copy the rewards whose target may be in another trace than the record, once per trace that the span links to."""
    if isinstance(record, Span) and not record.links and not may_give_to_others(record):
        return  # fast path of most spans
    for addressed in addressed_rewards(record):
        if isinstance(addressed, BadReward):
            continue
        origin, reward, links = addressed.origin, addressed.reward, addressed.address.links
        if not any(origin):
            reason = OUTSIDE if addressed.address == OWN_SPAN else None
            yield ExternalReward(origin=origin, reward=reward, address=addressed.address, undeliverable=reason)
        elif addressed.address != OWN_SPAN and not links:
            yield ExternalReward(origin=origin, reward=reward, address=addressed.address)
        for trace_id in dict.fromkeys(trace_id for trace_id, _ in links if trace_id != record.trace_id):
            there = RewardAddress(links=tuple(key for key in links if key[0] == trace_id))
            yield ExternalReward(origin=origin, reward=reward, address=there, trace_id=trace_id)


def distinct(rewards: Iterable[ExternalReward]) -> list[ExternalReward]:
    """Keep the richest copy of each reward for each linked trace, in an order that does not depend on the delivery."""
    copies: dict[tuple[RewardKey, str], list[ExternalReward]] = {}
    for reward in rewards:
        linked_trace = reward.trace_id if reward.address.links else ""
        copies.setdefault((reward.key, linked_trace), []).append(reward)
    # A store may have lost the links of a copy: such a copy does not count beside one with links.
    linking = {key for key, linked_trace in copies if linked_trace}
    kept = sorted((key, linked_trace) for key, linked_trace in copies if linked_trace or key not in linking)

    def richness(reward: ExternalReward) -> tuple[int, bool, int, str, bytes]:
        # Some stores lose links and round times down: more links and later times are the original.
        encoded = msgspec.msgpack.encode(reward, order="deterministic")
        recorded = reward.reward
        return len(reward.address.links), reward.undeliverable is None, recorded.time_ns, recorded.order, encoded

    return [max(copies[key], key=richness) for key in kept]


# Where the rewards of a group go.


class EnclosingCallAndStep(NamedTuple):
    """The call (its span id) and the step that a span is, or is in."""

    call: str | None = None
    step: Span | None = None


class AttributionContext(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """All that the rewards of a group are delivered by: the group's spans, rollouts, roles, log records and calls.

    `logs` are log records of the tree's spans, `logs_without_span` log records of spans that are missing. `external`
    are rewards from other groups, None if rewards are not delivered between groups.
    """

    tree: SpanTree
    assignment: RolloutAssignment
    roles: Mapping[SpanKey, Role]
    logs: Mapping[SpanKey, Sequence[LogRecord]]
    logs_without_span: Sequence[LogRecord] = ()
    recorded: Mapping[RolloutSpans, RecordedCalls]
    external: Sequence[ExternalReward] | None = None

    def records(self) -> Iterator[Span | LogRecord]:
        """All spans and log records of the group: each may carry a reward."""
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
        """The span keys of the calls with each response id: several, if a server repeats ids."""
        keys: dict[str, list[SpanKey]] = {}
        for call in self.calls.values():
            if call.response_id is not None:
                keys.setdefault(call.response_id, []).append((call.trace_id, call.span_id))
        return keys

    @cached_property
    def enclosing(self) -> Mapping[SpanKey, EnclosingCallAndStep]:
        """The nearest call and step at or above each span within its rollout. A call above the step does not count."""
        return self.tree.inherit(self._enclosing)

    def _enclosing(self, key: SpanKey, above: EnclosingCallAndStep | None) -> EnclosingCallAndStep:
        span, rollout, parent = self.tree.spans[key], self.assignment.of[key], self.tree.parents.get(key)
        if rollout is not None and key in rollout.root_keys:
            return EnclosingCallAndStep()
        call = self.call_of.get(key)
        if attributes.STEP_INDEX in span.attributes:
            return EnclosingCallAndStep(call, span)
        if parent is None or above is None or self.assignment.of[parent] is not rollout:
            return EnclosingCallAndStep(call)
        return EnclosingCallAndStep(call or above.call, above.step)


class Target(NamedTuple):
    """The target of a reward: a span of a rollout; without a span, a step of the rollout; without both, the rollout."""

    rollout: RolloutSpans
    span: Span | None = None
    step: int | None = None


class UnresolvedTarget(NamedTuple):
    """Why an address has no target. `counts_as_bad`: the rollout of the reward's own span is incomplete by it."""

    reason: str
    detail: str = ""
    counts_as_bad: bool = False


Resolution: TypeAlias = Target | UnresolvedTarget


_RewardOrder: TypeAlias = tuple[str, int, SpanKey, int, SpanKey]


@dataclass(frozen=True, kw_only=True, slots=True)
class Attribution:
    """The delivered rewards by rollout, and counts of the others.

    `facts` are attributes that were given to a rollout afterwards, as JSON; `alone` counts those given without a
    reward. `bad` lists the bad rewards, `bad_in` has the spans that carry them, by rollout. `senders` are spans that
    carry a reward for another target. `undeliverable` counts undelivered rewards by reason.
    """

    by_rollout: dict[RolloutSpans, list[tuple[_RewardOrder, Reward]]] = field(
        default_factory=dict[RolloutSpans, list[tuple[_RewardOrder, Reward]]]
    )
    facts: dict[RolloutSpans, list[tuple[_RewardOrder, str]]] = field(
        default_factory=dict[RolloutSpans, list[tuple[_RewardOrder, str]]]
    )
    alone: Counter[RolloutSpans] = field(default_factory=Counter[RolloutSpans])
    bad: list[Quarantined] = field(default_factory=list[Quarantined])
    bad_in: dict[RolloutSpans, list[SpanKey]] = field(default_factory=dict[RolloutSpans, list[SpanKey]])
    senders: set[SpanKey] = field(default_factory=set[SpanKey])
    undeliverable: Counter[str] = field(default_factory=Counter[str])

    @property
    def delivered(self) -> int:
        """How many deliveries reached a target: a reward with several links is delivered once to each."""
        return sum(map(len, self.by_rollout.values())) + self.alone.total()

    def facts_of(self, rollout: RolloutSpans) -> dict[str, Value]:
        """The attributes that were given to the rollout afterwards. The later of two values of one attribute counts."""
        texts = [msgspec.json.decode(text, type=dict[str, Value]) for _, text in sorted(self.facts.get(rollout, ()))]
        return dict(chain.from_iterable(one.items() for one in texts))

    def of(self, rollout: RolloutSpans) -> tuple[Reward, ...]:
        """The rollout's rewards by time, then those whose spans say their order; of one span by their position."""
        return tuple(reward for _, reward in sorted(self.by_rollout.get(rollout, ()), key=lambda entry: entry[0]))


def deliver_rewards(context: AttributionContext) -> Attribution:
    """Deliver the rewards of a group's spans and log records, and the rewards that came from other groups."""
    attribution = Attribution()
    for record in context.records():
        for addressed in addressed_rewards(record):
            if isinstance(addressed, BadReward):
                _note_bad(addressed, record.key, context, attribution)
                continue
            if addressed.address != OWN_SPAN:
                attribution.senders.add(addressed.origin)
            _deliver(addressed, _resolve_here(addressed, context), context, attribution)
    for external in distinct(context.external) if context.external else ():
        if external.origin[0] in context.traces:  # a copy of a reward of this group, delivered above
            continue
        reason = external.undeliverable
        resolutions = resolve_targets(external, context) if reason is None else [UnresolvedTarget(reason)]
        _deliver(external, resolutions, context, attribution)
    return attribution


def _resolve_here(addressed: AddressedReward, context: AttributionContext) -> list[Resolution]:
    """Find the targets of a reward of this group, except targets that a copy of the reward is delivered to."""
    address = addressed.address
    if context.external is None or address == OWN_SPAN:
        return resolve_targets(addressed, context)
    if address.links:
        here = RewardAddress(links=tuple(key for key in address.links if key[0] in context.traces))
        return resolve_targets(msgspec.structs.replace(addressed, address=here), context) if here.links else []
    copy = context.copies.get((addressed.origin, addressed.reward.position))
    is_for_here = copy is not None and copy.undeliverable is None
    (resolution,) = resolve_targets(addressed, context, anywhere=is_for_here)
    is_unresolved = isinstance(resolution, UnresolvedTarget)
    if is_for_here or not is_unresolved or resolution.reason not in (NO_RESPONSE, NO_ROLLOUT, NO_SPAN):
        return [resolution]
    return [] if copy is None else [resolution._replace(reason=copy.undeliverable or resolution.reason)]


def _deliver(
    addressed: AddressedReward, resolutions: Sequence[Resolution], context: AttributionContext, attribution: Attribution
) -> None:
    """Deliver a reward to its targets, and count the reasons why others were not reached."""
    origin_rollout = context.rollout_of(addressed.origin)
    bad_details: list[str] = []
    for outcome in resolutions:
        resolution = outcome
        if isinstance(resolution, Target):
            reward = make_reward(addressed.reward, resolution, context)
            if isinstance(reward, Reward):
                target_key = ("", "") if resolution.span is None else resolution.span.key
                recorded = addressed.reward
                order = (recorded.order, recorded.time_ns, addressed.origin, recorded.position, target_key)
                if recorded.facts is not None and resolution.rollout.root is None:
                    detail = f"has facts of rollout {resolution.rollout.rollout_id}, whose own span is missing"
                    bad = BadReward(name=recorded.name, detail=detail)
                    # Not in `bad_in`: the rollout that carries these facts is complete all the same.
                    attribution.bad.append(_quarantined(bad, addressed.origin))
                elif recorded.facts is not None:
                    attribution.facts.setdefault(resolution.rollout, []).append((order, recorded.facts))
                if recorded.value is None and recorded.label is None:
                    attribution.alone[resolution.rollout] += 1
                else:
                    attribution.by_rollout.setdefault(resolution.rollout, []).append((order, reward))
                continue
            is_same_rollout = resolution.rollout is origin_rollout
            resolution = UnresolvedTarget(NO_PART, reward.detail, counts_as_bad=is_same_rollout)
        attribution.undeliverable[resolution.reason] += 1
        if origin_rollout is not None and resolution.counts_as_bad:
            bad_details.append(resolution.detail)
    if bad_details:
        more = f" (and {len(bad_details) - 1} more)" if len(bad_details) > 1 else ""
        _note_bad(
            BadReward(name=addressed.reward.name, detail=bad_details[0] + more), addressed.origin, context, attribution
        )


def _note_bad(bad: BadReward, origin: SpanKey, context: AttributionContext, attribution: Attribution) -> None:
    attribution.bad.append(_quarantined(bad, origin))
    rollout = context.rollout_of(origin)
    if rollout is not None:
        attribution.bad_in.setdefault(rollout, []).append(origin)


def _quarantined(bad: BadReward, origin: SpanKey) -> Quarantined:
    trace_id, span_id = origin
    return Quarantined(
        reason="bad reward",
        path=f"trace {trace_id} / span {span_id} / reward {bad.name!r}",
        detail=bad.detail,
        trace_id=trace_id,
        span_id=span_id,
        partial=True,
    )


def resolve_targets(
    addressed: AddressedReward, context: AttributionContext, *, anywhere: bool = True
) -> list[Resolution]:
    """Find the target of a reward, or why there is none; for a reward with links, one result per link.

    A response id is searched in the reward's own span, then in its rollout, its trace, and (`anywhere`) its group. If
    the reward names a rollout of the group, only this rollout is searched.
    """
    address, origin = addressed.address, addressed.origin
    origin_rollout, named = context.rollout_of(origin), context.assignment.named(address.rollout_id)
    if address.links:
        return [_resolve_span(key, context, missing=NO_SPAN, is_bad=key[0] == origin[0]) for key in address.links]
    if address.response_id is not None:
        is_span = address.response_id.startswith(SPAN_NAME)
        candidates = context.responses.get(address.response_id, ())
        if is_span:
            candidates = [key for key in context.tree.spans if key[1] == address.response_id[len(SPAN_NAME) :]]
        own_call = context.call_at(origin)
        if address.rollout_id is not None:
            fitting = [] if named is None else [rollout for rollout in named.all if _fits(rollout, address)]
            nearest = [[key for key in candidates if context.rollout_of(key) in fitting]]
        else:
            nearest = [
                [origin] if own_call is not None and own_call.response_id is None else [],
                [key for key in candidates if origin_rollout is not None and context.rollout_of(key) is origin_rollout],
                [key for key in candidates if key[0] == origin[0]],
            ]
        if anywhere and named is None:
            nearest.append([*candidates])
        calls = next(filter(None, nearest), ())
        if len(calls) == 1:
            return [_resolve_span(calls[0], context)]
        detail = f"names response {address.response_id!r}, which {len(calls)} calls have"
        missing = NO_SPAN if is_span else NO_RESPONSE
        return [UnresolvedTarget(SEVERAL_CALLS if calls else missing, detail, counts_as_bad=True)]
    if address.rollout_id is None:
        return [_resolve_span(origin, context)]
    if named is None:
        return [UnresolvedTarget(NO_ROLLOUT)]
    if origin_rollout is not None and origin_rollout in named.all and _fits(origin_rollout, address):
        return [Target(origin_rollout, context.tree.spans[origin])]
    chosen = _choose_rollout(named, addressed)
    return [Target(chosen, step=address.step) if isinstance(chosen, RolloutSpans) else UnresolvedTarget(chosen)]


def _resolve_span(
    key: SpanKey, context: AttributionContext, *, missing: str = OUTSIDE, is_bad: bool = False
) -> Resolution:
    """Resolve the span of a target; `missing` is the reason if the span is not in the sources."""
    rollout = context.rollout_of(key)
    if rollout is not None:
        return Target(rollout, context.tree.spans[key])
    is_unassigned = key in context.assignment.unassigned
    reason = SEVERAL_ROLLOUTS if is_unassigned else OUTSIDE if key in context.tree.spans else missing
    return UnresolvedTarget(reason, f"judges span {key[1]}, which is in no rollout of the sources", is_bad)


def _choose_rollout(rollouts: RolloutIndex, addressed: AddressedReward) -> RolloutSpans | str:
    """Choose among the rollouts with one id by trace, attempt and time; return the reason if none can be chosen."""
    address = addressed.address
    if address.trace_id is None and len(rollouts.all) == 1:
        return rollouts.all[0]
    in_trace = rollouts.of_trace(address.trace_id or addressed.origin[0])
    if in_trace is None and address.trace_id is not None:
        return rollouts.rootless or NO_ROLLOUT
    rollouts = in_trace or rollouts
    attempts = rollouts if address.attempt is None else rollouts.of_attempt(address.attempt)
    if attempts is None:
        return NO_ROLLOUT
    if len(attempts.all) == 1:
        return attempts.all[0]
    return attempts.running_at(addressed.reward.time_ns) or SEVERAL_ROLLOUTS


def _fits(rollout: RolloutSpans, address: RewardAddress) -> bool:
    """Whether the rollout has the trace and attempt of the address. A rollout without its own span always fits."""
    if rollout.root is None:
        return True
    return address.trace_id in (None, rollout.root.trace_id) and address.attempt in (None, rollout.attempt)


def make_reward(recorded: RecordedReward, target: Target, context: AttributionContext) -> Reward | BadReward:
    """Make a trajectory's reward for a target; a bad reward if it judges a choice or tokens that do not exist.

    The reward names the call, step, agent or tool that the target is, or is in. Without any it is for the rollout.
    """
    span, span_id, step, kind = target.span, None, target.step, None
    if span is not None and span.key not in target.rollout.root_keys:
        call, step_span = context.enclosing[span.key]
        role = context.roles[span.key]
        kind = role if role in ("agent", "tool") and span.key not in context.call_of else None
        span_id, step = (call if kind is None else span.span_id), None
        if step_span is not None:
            step = step_index(step_span)
            span_id = span_id or (None if is_reward_span(step_span) else step_span.span_id)
    is_of_part = recorded.choice is not None or recorded.token_end is not None
    if span_id is None and is_of_part and span is not None:
        span_id = context.call_of.get(span.key)  # a call that is a whole rollout by itself
    reward = Reward(
        name=recorded.name,
        value=recorded.value,
        step=step,
        target=span_id,
        target_kind=kind,
        source=recorded.source,
        time_ns=recorded.time_ns,
        label=recorded.label,
        explanation=recorded.explanation,
        choice=recorded.choice,
        token_start=recorded.token_start,
        token_end=recorded.token_end,
    )
    return fit_part(reward, context.calls.get((target.rollout, span_id)))


def fit_part(reward: Reward, call: InferenceCall | None) -> Reward | BadReward:
    """Replace the index of a reward's choice by the choice's position; bad if there is no such choice or token."""
    if reward.choice is None and reward.token_end is None:
        return reward
    if call is None:
        return BadReward(name=reward.name, detail="judges a choice or tokens, but its target is not a call")
    if call.choices is None:  # the answer was not recorded, so the part may exist
        return reward
    index = reward.choice or 0
    position = next((at for at, choice in enumerate(call.choices) if choice.index == index), None)
    if position is None:
        return BadReward(name=reward.name, detail=f"judges choice {index} of a call that has no such choice")
    sampled = call.choices[position].token_ids
    if reward.token_end is not None and sampled is not None and reward.token_end > len(sampled):
        detail = f"judges tokens up to {reward.token_end} of a completion of {len(sampled)} tokens"
        return BadReward(name=reward.name, detail=detail)
    return reward if position == index else msgspec.structs.replace(reward, choice=position)
