"""GroupRewards: rewards for the trajectories of one task, found by judging or comparing them together.

Invariant: each reward is recorded for its own trajectory (rollout id, attempt, trace), in whatever order judges answer.
All rewards of a group are known before the first one is recorded, so a judge that raises gives none. None is no reward.
"""

import asyncio
import inspect
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from itertools import combinations, permutations
from typing import Final, TypeAlias, cast, overload

from art_otel.attributes import REWARD_NAME
from art_otel.conventions import evaluation_attributes
from art_otel.errors import UsageError
from art_otel.tracing.api import scalars
from art_otel.tracing.api.rewards import give, resolve_target
from art_otel.tracing.api.untrained import untrained
from art_otel.tracing.internal_errors import handle_internal_errors
from art_otel.trajectories import Reward, Trajectory, TrajectoryGroup, note_later_reward
from art_otel.trajectories.model import with_rewards

Group: TypeAlias = TrajectoryGroup | Iterable[Trajectory]
Values: TypeAlias = Sequence[float | None]
"""One reward for each trajectory, in their order; None for no reward. Shape: (trajectories,)."""

Judge: TypeAlias = Callable[[list[Trajectory]], Values]
AsyncJudge: TypeAlias = Callable[[list[Trajectory]], Awaitable[Values]]
Compare: TypeAlias = Callable[[Trajectory, Trajectory], float | None]
AsyncCompare: TypeAlias = Callable[[Trajectory, Trajectory], Awaitable[float | None]]

_LABEL: Final = "judge"
"""The label of the untrained LLM calls of judges."""


@overload
def score_group(group: Group, judge: AsyncJudge, name: str = REWARD_NAME) -> Awaitable[list[Trajectory]]: ...
@overload
def score_group(group: Group, judge: Judge, name: str = REWARD_NAME) -> list[Trajectory]: ...
def score_group(
    group: Group, judge: Judge | AsyncJudge, name: str = REWARD_NAME
) -> list[Trajectory] | Awaitable[list[Trajectory]]:
    """Let a judge score all trajectories of a group together, also long after they ended.

    `judge(trajectories)` returns one reward for each trajectory, in their order. If the judge is async, await the
    result of `score_group`. Each reward is recorded as by `reward(value, name, target=trajectory)`. LLM calls of the
    judge are marked as by `untrained("judge")`. Returns the trajectories with their rewards, in the same order.
    Raises UsageError if the number of rewards is different, and for two trajectories that one reward could not tell
    apart.
    """
    trajectories = list(group.trajectories if isinstance(group, TrajectoryGroup) else group)
    _check_distinct(trajectories)
    with untrained(_LABEL):
        judged = judge(trajectories.copy())
    if inspect.isawaitable(judged):
        return _given_later(trajectories, judged, name)
    return _give_each(trajectories, judged, name)


@overload
def rank_group(
    group: Group, compare: AsyncCompare, name: str = REWARD_NAME, *, both_ways: bool = True
) -> Awaitable[list[Trajectory]]: ...
@overload
def rank_group(
    group: Group, compare: Compare, name: str = REWARD_NAME, *, both_ways: bool = True
) -> list[Trajectory]: ...
def rank_group(
    group: Group, compare: Compare | AsyncCompare, name: str = REWARD_NAME, *, both_ways: bool = True
) -> list[Trajectory] | Awaitable[list[Trajectory]]:
    """Compare all pairs of a group. A trajectory's score is its wins minus its losses, divided by its comparisons.

    `compare(a, b)` returns 1 if a is better, -1 if b is better, a number between them, or None if it cannot decide;
    such a comparison is left out. If `compare` is async, all comparisons run at once; await the result of `rank_group`.
    With `both_ways`, (b, a) is compared too, because a judge may prefer the first of two. A trajectory without a
    comparison gets no reward. The reward is that of tinker-cookbook's preference environments (rl/preference_envs.py
    0.6.1).
    """

    def judge(trajectories: list[Trajectory]) -> Values | Awaitable[Values]:
        positions = range(len(trajectories))
        pairs = list(permutations(positions, 2) if both_ways else combinations(positions, 2))
        outcomes = [compare(trajectories[first], trajectories[second]) for first, second in pairs]
        if any(map(inspect.isawaitable, outcomes)) or inspect.iscoroutinefunction(compare):
            return _compared_later(pairs, cast(list[Awaitable[float | None]], outcomes), len(trajectories))
        return _win_rates(pairs, cast(list[float | None], outcomes), len(trajectories))

    return score_group(group, cast(Judge, judge), name)


async def _given_later(trajectories: list[Trajectory], judged: Awaitable[Values], name: str) -> list[Trajectory]:
    with untrained(_LABEL):
        values = await judged
    return _give_each(trajectories, values, name)


def _give_each(trajectories: list[Trajectory], judged: Values, name: str) -> list[Trajectory]:
    values = list(judged)
    if len(values) != len(trajectories):
        raise UsageError(
            f"the judge returned {len(values)} rewards for {len(trajectories)} trajectories: return one for each, or "
            "None for no reward"
        )
    return [_give(trajectory, value, name) for trajectory, value in zip(trajectories, values, strict=True)]


def _give(trajectory: Trajectory, value: float | None, name: str) -> Trajectory:
    number = None if value is None else scalars.reward(value, name)
    if number is not None:
        with handle_internal_errors:
            now = time.time_ns()
            give(name, number, resolve_target(trajectory), evaluation_attributes(name, number), now)
            given = Reward(name=name, value=number, source="reward_span", time_ns=now)
            note_later_reward(trajectory, given)
            return with_rewards(trajectory, given)
    return trajectory


def _check_distinct(trajectories: Iterable[Trajectory]) -> None:
    counts = Counter((trajectory.rollout_id, trajectory.attempt, trajectory.trace_id) for trajectory in trajectories)
    for (rollout_id, attempt, _), count in counts.items():
        if count > 1:
            which = "" if attempt is None else f", attempt {attempt}"
            raise UsageError(
                f"rollout {rollout_id!r}{which} is in the group {count} times: give each trajectory once, and attempts"
                " of one rollout a number of their own (art.rollout.attempt)"
            )


async def _compared_later(
    pairs: Sequence[tuple[int, int]], outcomes: Iterable[Awaitable[float | None]], count: int
) -> Values:
    # If one comparison raises, the others are cancelled: they may be LLM calls that cost money.
    tasks = [asyncio.ensure_future(outcome) for outcome in outcomes]
    try:
        return _win_rates(pairs, await asyncio.gather(*tasks), count)
    finally:
        for task in tasks:
            task.cancel()


def _win_rates(pairs: Iterable[tuple[int, int]], outcomes: Iterable[float | None], count: int) -> Values:
    """Wins minus losses, divided by comparisons, for each trajectory; None for one that was compared with none.

    Shape: (count,).
    """
    totals, compared = [0.0] * count, [0] * count
    for (first, second), outcome in zip(pairs, outcomes, strict=True):
        number = None if outcome is None else scalars.reward(outcome, "comparison")
        if number is not None:
            totals[first] += number
            totals[second] -= number
            compared[first] += 1
            compared[second] += 1
    return [total / played if played else None for total, played in zip(totals, compared, strict=True)]
