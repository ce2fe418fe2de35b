"""Rewards: what was given for what.

Invariant: every reward found on any span or log record of a tree goes to exactly the rollouts it judges, with its raw
number; one that is no number is a Damage and never a value. Missing stays None. Corrections are kept, the last wins.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from art_otel import attributes
from art_otel.conventions import BadReward, GivenReward, Role, rewards_of, rewards_of_log
from art_otel.spans import Damage, LogRecord, Span, SpanKey, SpanTree
from art_otel.trajectories.recorded_calls import step_index
from art_otel.trajectories.rollouts import Division, RolloutSpans, is_reward_span
from art_otel.trajectories.trajectory import Reward

REWARD_NAME: Final = "reward"
"""The name of a reward that was given without one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FoundRewards:
    """Rewards by rollout, what was no reward, and the spans whose rewards reached a rollout or none."""

    of: dict[RolloutSpans, list[Reward]] = field(default_factory=dict[RolloutSpans, list[Reward]])
    bad: list[Damage] = field(default_factory=list[Damage])
    heard: set[SpanKey] = field(default_factory=set[SpanKey])
    unheard: set[SpanKey] = field(default_factory=set[SpanKey])

    def given_to(self, rollout: RolloutSpans) -> tuple[Reward, ...]:
        """The rollout's rewards in the order they were given, each once."""
        unique = dict.fromkeys(self.of.get(rollout, ()))
        return tuple(sorted(unique, key=_moment))


def _moment(reward: Reward) -> tuple[object, ...]:
    value = "" if reward.value is None else repr(reward.value)
    return (reward.time_ns, reward.name, reward.target or "", value, reward.source, reward.label or "")


@dataclass(frozen=True, kw_only=True, slots=True)
class RewardScene:
    """Where rewards are looked for and resolved: a tree, its rollouts, roles, logs, and the calls of its spans."""

    tree: SpanTree
    division: Division
    roles: Mapping[SpanKey, Role]
    logs: Mapping[SpanKey, Sequence[LogRecord]]
    call_of: Mapping[SpanKey, str]
    responses: Mapping[str, Sequence[Span]]


def find_rewards(scene: RewardScene) -> FoundRewards:
    """Collect every reward of a tree and lead it to the rollouts it judges."""
    found = FoundRewards()
    for span in scene.tree.spans.values():
        for given in _given_on(span, scene.logs.get(span.key, ())):
            if isinstance(given, BadReward):
                found.bad.append(_damage(given, span))
                continue
            for target in _targets(given, span, scene):
                rollout = scene.division.of[target.key]
                if rollout is None:
                    found.unheard.add(span.key)
                else:
                    found.heard.add(span.key)
                    found.of.setdefault(rollout, []).append(_reward(given, span, target, rollout, scene))
    return found


def _given_on(span: Span, logs: Iterable[LogRecord]) -> Iterator[GivenReward | BadReward]:
    yield from rewards_of(span)
    for log in logs:
        yield from rewards_of_log(log)


def _damage(bad: BadReward, span: Span) -> Damage:
    return Damage(
        reason="bad reward",
        path=f"trace {span.trace_id} / span {span.span_id} / reward {bad.name!r}",
        detail=bad.detail,
        trace_id=span.trace_id,
        span_id=span.span_id,
        partial=True,
    )


def _targets(given: GivenReward, span: Span, scene: RewardScene) -> list[Span]:
    """The spans a reward judges: what its span links to, else the response it names, else where it stands."""
    if scene.roles[span.key] != "inference" and span is not _root_of(span, scene):
        linked = (scene.tree.spans.get((link.trace_id, link.span_id)) for link in span.links)
        targets = [target for target in linked if target is not None and scene.division.of[target.key] is not None]
        if targets:
            return targets
    if given.response_id is not None and scene.roles[span.key] != "inference":
        everywhere = scene.responses.get(given.response_id, ())
        own = scene.division.of[span.key]
        named = [call for call in everywhere if scene.division.of[call.key] is own] or list(everywhere)
        if len(named) == 1:
            return named
    return [span]


def _root_of(span: Span, scene: RewardScene) -> Span | None:
    rollout = scene.division.of[span.key]
    return None if rollout is None else rollout.root


def _reward(given: GivenReward, span: Span, target: Span, rollout: RolloutSpans, scene: RewardScene) -> Reward:
    judged, step = _judged(target, rollout, scene)
    name = given.name
    if is_reward_span(span) and given.source == "attribute":
        name = span.name.removeprefix(attributes.REWARD_SPAN_PREFIX)
    return Reward(
        name=name,
        value=given.value,
        step=step,
        target=judged,
        source="reward_span" if is_reward_span(span) else given.source,
        time_ns=given.time_ns,
        label=given.label,
        explanation=given.explanation,
    )


def _judged(target: Span, rollout: RolloutSpans, scene: RewardScene) -> tuple[str | None, int | None]:
    """The call, step, agent or tool the target is or lies in, with its step; (None, None) is the whole rollout."""
    judged: str | None = None
    for at in (target, *scene.tree.ancestors(target)):
        if at is rollout.root or scene.division.of[at.key] is not rollout:
            break
        if judged is None and at.key in scene.call_of:
            judged = scene.call_of[at.key]
        if judged is None and at is target and scene.roles[at.key] in {"agent", "tool"}:
            judged = at.span_id
        if attributes.STEP_INDEX in at.attributes:
            return judged or at.span_id, step_index(at)
    return judged, None


def final_reward(rewards: Sequence[Reward]) -> float | None:
    """The last reward given to the whole rollout under the name `reward`.

    Where that name was never used but one other name was, that one counts. Several names without `reward` say nothing
    about which is the final one: None.
    """
    whole = [reward for reward in rewards if reward.target is None and reward.step is None and reward.value is not None]
    named = [reward for reward in whole if reward.name == REWARD_NAME]
    if not named and len({reward.name for reward in whole}) == 1:
        named = whole
    return named[-1].value if named else None
