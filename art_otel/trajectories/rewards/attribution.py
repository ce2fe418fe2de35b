"""Rewards: what was given for what.

Invariant: every reward found on any span or log record of a tree goes to exactly the rollouts it judges, with its raw
number; one that is no number is a Quarantined and never a value. Missing stays None. Corrections are kept, the last wins.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from functools import cached_property
from typing import Final, Literal, NamedTuple, TypeAlias

import msgspec

from art_otel import attributes
from art_otel.calls import InferenceCall
from art_otel.conventions import BadReward, GivenReward, Role, rewards_of, rewards_of_log
from art_otel.conventions.dialects.genai import RESPONSE_ID
from art_otel.spans import LogRecord, Quarantined, Span, SpanKey, SpanTree
from art_otel.trajectories.calls.recorded_calls import RecordedCalls, step_index
from art_otel.trajectories.limits import MAX_REPEATED, Budget
from art_otel.trajectories.model import Reward, Trajectory
from art_otel.trajectories.rewards.effective import final_reward
from art_otel.trajectories.rewards.parts import fit_part, is_of_part
from art_otel.trajectories.rewards.texts import has_room, too_long
from art_otel.trajectories.rollouts.assignment import RolloutAssignment, declared_id, is_reward_span, named_trace
from art_otel.trajectories.rollouts.index import RolloutSpans

_ANSWERING: Final = ("agent", "embeddings", "retrieval")
"""Spans that are no calls and may have the response that they are judged for."""


MAX_REWARDS: Final = 100_000
"""The most that the rewards of one span, several of which judge several spans each, become."""

_NAMED: Final = 5
"""Spans that one message names."""

RewardKey: TypeAlias = tuple[SpanKey, str | None]
"""What a reward is known by from group to group: its span, and the response that it names."""


class FoundRewards(msgspec.Struct, frozen=True, kw_only=True):
    """Rewards by rollout, what was no reward, and the spans whose rewards reached a rollout or none."""

    of: dict[RolloutSpans, list[Reward]] = {}
    bad: list[Quarantined] = []
    heard: set[SpanKey] = msgspec.field(default_factory=set[SpanKey])
    unheard: set[SpanKey] = msgspec.field(default_factory=set[SpanKey])

    def given_to(self, rollout: RolloutSpans) -> tuple[Reward, ...]:
        """The rollout's rewards in the order they were given, each once."""
        return _in_order(self.of.get(rollout, ()))


def _in_order(rewards: Sequence[Reward]) -> tuple[Reward, ...]:
    if len({reward.time_ns for reward in rewards}) == len(rewards):  # as most are, and then the rest decides nothing
        return tuple(sorted(rewards, key=_time))
    return tuple(sorted(dict.fromkeys(rewards), key=_moment))


def _time(reward: Reward) -> int:
    return reward.time_ns


def _moment(reward: Reward) -> tuple[object, ...]:
    value = "" if reward.value is None else repr(reward.value)
    part = [-1 if known is None else known for known in (reward.choice, reward.token_start, reward.token_end)]
    texts = (reward.target or "", value, reward.source, reward.label or "", reward.explanation or "")
    return (reward.time_ns, reward.name, *texts, *part, reward.comparison or "")


class _Part(NamedTuple):
    """Which part of its rollout a span is or lies in: a call's span id and a step's span."""

    call: str | None = None
    step: Span | None = None


class AttributionContext(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """Where rewards are looked for and resolved: a tree, its rollouts, roles, logs, and the calls of its spans.

    `heard` are rewards of this tree that reached a rollout of another. `parts` is what `_part_of` found out already,
    `budgets` are left in rollouts for texts of rewards that judge several of their spans. Most trees have few rewards or
    none: indexes are made on demand.
    """

    tree: SpanTree
    assignment: RolloutAssignment
    roles: Mapping[SpanKey, Role]
    logs: Mapping[SpanKey, Sequence[LogRecord]]
    recorded: Mapping[RolloutSpans, RecordedCalls]
    heard: AbstractSet[RewardKey] = frozenset()
    parts: dict[SpanKey, _Part] = {}
    budgets: dict[RolloutSpans, Budget] = {}

    @cached_property
    def call_of(self) -> Mapping[SpanKey, str]:
        """The span id of the call that an inference span describes."""
        return {key: call for recorded in self.recorded.values() for key, call in recorded.call_of.items()}

    @cached_property
    def calls(self) -> Mapping[tuple[RolloutSpans, str | None], InferenceCall]:
        """Every call by its rollout and span id."""
        return {(rollout, call.span_id): call for rollout, recorded in self.recorded.items() for call in recorded.calls}

    @cached_property
    def responses(self) -> Mapping[tuple[str, RolloutSpans | None], Sequence[Span]]:
        """The spans of the calls that have a response id, by that id and rollout, and all by the id and None."""
        spans: dict[tuple[str, RolloutSpans | None], list[Span]] = {}
        for rollout, recorded in self.recorded.items():
            for call in recorded.calls:
                if call.response_id is not None:
                    span = self.tree.spans[call.trace_id, call.span_id]
                    spans.setdefault((call.response_id, rollout), []).append(span)
                    spans.setdefault((call.response_id, None), []).append(span)
        return spans


class _Giver(msgspec.Struct, kw_only=True, dict=True, eq=False):
    """A span that gives rewards, and what is the same for all of them, found once.

    `shared` counts what those of its rewards became that judge several spans; `is_full` says that one more would be too
    many. `budget` is left for the texts of its rewards, once for each span that it links to, wherever that is.
    """

    span: Span
    scene: AttributionContext
    shared: int = 0
    is_full: bool = False
    budget: Budget = msgspec.field(default_factory=lambda: Budget(MAX_REPEATED))

    @cached_property
    def own(self) -> RolloutSpans | None:
        """The rollout that it stands in."""
        return self.scene.assignment.of.get(self.span.key)

    @cached_property
    def links(self) -> Sequence[SpanKey]:
        """What it links to, each once; a rollout's own span judges nothing by links."""
        if self.own is not None and self.span is self.own.root:
            return ()
        return tuple(dict.fromkeys((link.trace_id, link.span_id) for link in self.span.links))

    @cached_property
    def linked(self) -> Sequence[Span]:
        """The spans among these that rollouts of the tree have."""
        spans, rollouts = self.scene.tree.spans, self.scene.assignment.of
        return [spans[key] for key in self.links if key in spans and rollouts[key] is not None]

    @cached_property
    def missing(self) -> str | None:
        """The first of the spans that it links to, where one of them is of its own trace."""
        if all(trace_id != self.span.trace_id for trace_id, _ in self.links):
            return None
        more = f" and {len(self.links) - _NAMED} more" if len(self.links) > _NAMED else ""
        return ", ".join(span_id for _, span_id in self.links[:_NAMED]) + more


def find_rewards(scene: AttributionContext) -> FoundRewards:
    """Collect every reward of a tree and lead it to the rollouts it judges."""
    found = FoundRewards()
    for key, span in scene.tree.spans.items():
        given = rewards_of(span)
        if key in scene.logs:
            given = [*given, *(reward for log in scene.logs[key] for reward in rewards_of_log(log))]
        if not given:
            continue
        giver = _Giver(span=span, scene=scene)
        for reward in given:
            if isinstance(reward, BadReward):
                found.bad.append(_damage(reward, span))
            elif not _lead(reward, giver, found):
                is_heard = (key, reward.response_id) in scene.heard
                (found.heard if is_heard else found.unheard).add(key)
    return found


def lead_judges(judges: Iterable[Span], scene: AttributionContext, found: FoundRewards) -> list[RewardKey]:
    """Add the rewards of judges from elsewhere to what was found. The rewards that reached a rollout."""
    return [
        (giver.span.key, reward.response_id)
        for giver in [_Giver(span=span, scene=scene) for span in judges]
        for reward in rewards_of(giver.span)
        if not isinstance(reward, BadReward) and _lead(reward, giver, found)
    ]


def _lead(given: GivenReward, giver: _Giver, found: FoundRewards) -> bool:
    """Lead a reward to the rollouts of the spans it judges. Whether it reached one, or was found to be bad."""
    span, scene = giver.span, giver.scene
    targets = _bounded(given, giver, found)
    if targets is None:
        return True
    rollouts = [(target, scene.assignment.of.get(target.key)) for target in targets]
    without_room = _without_room(given, rollouts, scene)
    for times in without_room.values():
        found.bad.append(_damage(too_long(given, times), span))
    for target, rollout in rollouts:
        if rollout is None or rollout in without_room:
            continue
        reward = _reward(given, span, target, rollout, scene)
        fitted = fit_part(reward, scene.calls.get((rollout, reward.target))) if is_of_part(reward) else reward
        if isinstance(fitted, BadReward):
            found.bad.append(_damage(fitted, span))
        else:
            found.heard.add(span.key)
            found.of.setdefault(rollout, []).append(fitted)
    return any(rollout is not None for _, rollout in rollouts)


def _bounded(given: GivenReward, giver: _Giver, found: FoundRewards) -> Sequence[Span] | None:
    """The spans a reward judges; None where it is bad, or would become too many or too much, as is said in `found`."""
    span = giver.span
    targets = _targets(given, giver)
    if targets is giver.linked and not has_room(given, len(giver.links), giver.budget):
        targets = too_long(given, len(giver.links))
    elif not isinstance(targets, BadReward) and len(targets) > 1:
        if giver.is_full:
            return None  # as was said of the one before
        if giver.shared and giver.shared + len(targets) > MAX_REWARDS:
            giver.is_full = True
            targets = _too_many(given, giver)
        else:
            giver.shared += len(targets)
    if not isinstance(targets, BadReward):
        return targets
    found.bad.append(_damage(targets, span))
    return None


def _without_room(
    given: GivenReward, targets: Sequence[tuple[Span, RolloutSpans | None]], scene: AttributionContext
) -> Mapping[RolloutSpans, int]:
    """The rollouts of which a reward judges so many spans that there is no budget for its texts once for each."""
    if len(targets) < 2:  # as most do
        return {}
    judged = Counter(rollout for _, rollout in targets if rollout is not None)
    return {
        rollout: times
        for rollout, times in judged.items()
        if times > 1 and not has_room(given, times, scene.budgets.setdefault(rollout, Budget(MAX_REPEATED)))
    }


def _damage(bad: BadReward, span: Span) -> Quarantined:
    return Quarantined(
        reason="bad reward",
        path=f"trace {span.trace_id} / span {span.span_id} / reward {bad.name!r}",
        detail=bad.detail,
        trace_id=span.trace_id,
        span_id=span.span_id,
        partial=True,
    )


def _targets(given: GivenReward, giver: _Giver) -> Sequence[Span] | BadReward:
    """The spans a reward judges: what its span links to, else the response it names, else where it stands.

    None at all where that is in another trace and not in the sources. A reward that stands in a rollout and judges what
    its own trace lacks, or a response that is not one call's, is bad: it would pass for that of the whole rollout. So
    is one of a rollout id that several runs have: it would pass for that of one of them.
    """
    span, scene, own = giver.span, giver.scene, giver.own
    if scene.roles.get(span.key) == "inference":
        return [span]
    named = given.response_id
    if named is not None and scene.roles.get(span.key) in _ANSWERING and span.attributes.get(RESPONSE_ID) == named:
        return [span]
    if giver.linked or (span.key, named) in scene.heard:
        return giver.linked
    if named is not None:
        answering = _answering(named, own, scene)
        if len(answering) == 1:
            return answering
        if own is not None:
            return BadReward(name=given.name, detail=f"names response {named!r}, which {len(answering)} calls have")
    if own is None:
        return _of_no_run(given, span)
    if not giver.links or not is_reward_span(span):
        return [span]
    if giver.missing is not None:
        return BadReward(name=given.name, detail=f"judges span {giver.missing}, which is in no rollout of the sources")
    return []


def _too_many(given: GivenReward, giver: _Giver) -> BadReward:
    detail = f"is one of many that judge {len(giver.linked)} spans each: it and those behind it are left out, as they"
    return BadReward(name=given.name, detail=f"{detail} would be more than {MAX_REWARDS}; give them on several spans")


def _of_no_run(given: GivenReward, span: Span) -> Sequence[Span] | BadReward:
    """What a reward judges that is in no rollout and leads to none."""
    rollout_id = declared_id(span)
    if rollout_id is None or span.links or named_trace(span) is not None:
        return [span]
    detail = f"names rollout {rollout_id!r}, of which there are several runs, and not which: give target=trajectory, or"
    return BadReward(name=given.name, detail=f"{detail} {attributes.ROLLOUT_TRACE_ID} or {attributes.ROLLOUT_ATTEMPT}")


def _answering(response_id: str, rollout: RolloutSpans | None, scene: AttributionContext) -> Sequence[Span]:
    """The calls that have a response, of the rollout where it has one."""
    everywhere = scene.responses.get((response_id, None), ())
    return scene.responses.get((response_id, rollout), everywhere)


def _reward(given: GivenReward, span: Span, target: Span, rollout: RolloutSpans, scene: AttributionContext) -> Reward:
    judged, step = _judged(target, rollout, scene)
    if judged is None and (given.choice is not None or given.token_end is not None):
        judged = scene.call_of.get(target.key)  # a call that is a whole rollout by itself
    return Reward(
        name=given.name,
        value=given.value,
        step=step,
        target=judged,
        target_kind=None if target is rollout.root else _bystander(target, scene),
        source="reward_span" if is_reward_span(span) else given.source,
        time_ns=given.time_ns,
        label=given.label,
        explanation=given.explanation,
        choice=given.choice,
        token_start=given.token_start,
        token_end=given.token_end,
        comparison=given.comparison,
    )


def _judged(target: Span, rollout: RolloutSpans, scene: AttributionContext) -> tuple[str | None, int | None]:
    """The call, step, agent or tool the target is or lies in, with its step; (None, None) is the whole rollout.

    A step that is known by its index only, because a reward from elsewhere names it, is (None, its index).
    """
    if target is rollout.root:
        return None, None
    call, step = _part_of(target.key, scene)
    judged = target.span_id if _bystander(target, scene) else call
    if step is None:
        return judged, None
    return judged or (None if is_reward_span(step) else step.span_id), step_index(step)


def _bystander(target: Span, scene: AttributionContext) -> Literal["agent", "tool"] | None:
    """What the target is, when it is an agent or tool."""
    role = scene.roles[target.key]
    return role if role in ("agent", "tool") and target.key not in scene.call_of else None


def _part_of(key: SpanKey, scene: AttributionContext) -> _Part:
    """The nearest call and step at or above a span, within its rollout. No call above the step counts."""
    path: list[SpanKey] = []
    at: SpanKey | None = key
    while at is not None and at not in scene.parts:
        path.append(at)
        at = scene.tree.parents.get(at)
    for step in reversed(path):
        scene.parts[step] = _part(step, scene)
    return scene.parts[key]


def _part(key: SpanKey, scene: AttributionContext) -> _Part:
    span, rollout, parent = scene.tree.spans[key], scene.assignment.of[key], scene.tree.parents.get(key)
    if rollout is not None and span is rollout.root:
        return _Part()
    call = scene.call_of.get(key)
    if attributes.STEP_INDEX in span.attributes:
        return _Part(call, span)
    if parent is None or scene.assignment.of[parent] is not rollout:
        return _Part(call)
    above = scene.parts[parent]
    return _Part(call or above.call, above.step)


def with_rewards(trajectory: Trajectory, *given: Reward) -> Trajectory:
    """The trajectory with further rewards, as it is read again once they are recorded."""
    rewards = _in_order((*trajectory.rewards, *given))
    return replace(trajectory, rewards=rewards, reward=final_reward(rewards))
