"""Credit: which reward each turn of a trajectory is trained with.

Invariant: a credit gives every turn a number that somebody gave (or a sum of such), or None; None is never 0. Of
several rewards of one name for one thing the last counts. A reward of a label only, and one of a span of tokens, is
no turn's.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from art_otel.batches import checks
from art_otel.errors import UsageError
from art_otel.trajectories.trajectory import Reward, Trajectory, Turn

TurnRewards: TypeAlias = tuple[float | None, ...]
"""Shape: (turns,), None where nobody gave a reward."""

REWARD: Final = "reward"


@dataclass(frozen=True, kw_only=True, slots=True)
class Credit:
    """A rule for credit.

    `rewards` gives the rewards of a trajectory's turns. `per` says which turns have one reward and are compared with
    each other in a group: those of whole rollouts, of the same step, or of the call at the same place. Trajectories
    come to `rewards` without messages and tokens where they are read from files. `name` tells rules apart: batches
    cannot be gone on with under a rule of another name.
    """

    per: Literal["rollout", "step", "call"]
    rewards: Callable[[Trajectory], TurnRewards]
    name: str = ""


def whole(reward: Callable[[Trajectory], float | None], *, name: str = "") -> Credit:
    """Every turn has the reward that the function gives to the whole trajectory. `name` is as in Credit.

    Raises UsageError for what is no function.
    """
    if not callable(reward):
        raise UsageError(f"reward={reward!r:.200}: give a function of a trajectory")

    def rewards(trajectory: Trajectory) -> TurnRewards:
        return (reward(trajectory),) * len(trajectory.turns)

    return Credit(per="rollout", rewards=rewards, name=name)


def final() -> Credit:
    """Every turn has the final reward: r_t = R, propagated as Trinity-RFT's RewardPropagationWorkflow does it."""
    return whole(lambda trajectory: trajectory.reward, name="final")


def weighted(weights: Mapping[str, float]) -> Credit:
    """Every turn has the weighted sum of the named rewards of the whole rollout: r_t = sum_n w_n R_n.

    None where one of the names has no reward. Raises UsageError for no weights and for one that is not finite.
    """
    chosen = checks.weights("weights", weights)

    def reward(trajectory: Trajectory) -> float | None:
        numbers = _numbers(trajectory.rewards)
        given = {one.name: value for one, value in numbers if one.target is None and one.step is None}
        if not given.keys() >= chosen.keys():
            return None
        return sum(weight * given[name] for name, weight in chosen.items())

    return whole(reward, name=f"weighted {sorted(chosen.items())}")


def step_wise(name: str = REWARD) -> Credit:
    """Every turn has its step's reward: r_t = r_k for a call in step k, as Trinity-RFT's StepWiseRewardWorkflow."""

    def rewards(trajectory: Trajectory) -> TurnRewards:
        given = _by_step(trajectory, name)
        return _of_turns(trajectory, lambda turn: _looked_up(given, trajectory.calls[turn.call].step))

    return Credit(per="step", rewards=rewards, name=f"step_wise {name!r}")


def per_call(name: str = REWARD) -> Credit:
    """Every turn has the reward of its own call; one that was given to a choice goes before the call's."""

    def rewards(trajectory: Trajectory) -> TurnRewards:
        given = {(one.target, one.choice): value for one, value in _numbers(trajectory.rewards) if one.name == name}

        def of(turn: Turn) -> float | None:
            span_id = trajectory.calls[turn.call].span_id
            return given.get((span_id, turn.choice), given.get((span_id, None)))

        return _of_turns(trajectory, of)

    return Credit(per="call", rewards=rewards, name=f"per_call {name!r}")


def discounted(gamma: float, name: str = REWARD) -> Credit:
    """Every turn has the discounted return of its step: G_k = r_k + gamma G_(k+1), G of the last step K = r_K + R.

    R is the rollout's final reward; where nobody gave one it is not added. It stands alone where no step has a reward:
    G_k = gamma^(K-k) R. Where some steps have one, a step without makes its own return and those before it unknown.
    Source: Sutton and Barto 2018, Reinforcement Learning, eq. 3.9. Raises UsageError for a gamma outside of 0 to 1.
    """
    if not (checks.is_finite(gamma) and 0 <= gamma <= 1):
        raise UsageError(f"gamma={gamma!r}: a discount is a number from 0 to 1")

    def rewards(trajectory: Trajectory) -> TurnRewards:
        returns = _returns(trajectory, gamma, name)
        return _of_turns(trajectory, lambda turn: _looked_up(returns, trajectory.calls[turn.call].step))

    return Credit(per="step", rewards=rewards, name=f"discounted {float(gamma)} {name!r}")


def _returns(trajectory: Trajectory, gamma: float, name: str) -> dict[int, float]:
    given = _by_step(trajectory, name)
    steps = sorted({call.step for call in trajectory.calls if call.step is not None} | given.keys())
    if not given and trajectory.reward is None:
        return {}
    returns: dict[int, float] = {}
    total = trajectory.reward or 0.0
    for step in reversed(steps):
        if given and step not in given:
            break
        total = given.get(step, 0.0) + (total if step == steps[-1] else gamma * total)
        returns[step] = total
    return returns


def _by_step(trajectory: Trajectory, name: str) -> dict[int, float]:
    """The rewards of steps; what judges a call, an agent or a tool in a step is theirs."""
    calls = {call.span_id for call in trajectory.calls}
    return {
        one.step: value
        for one, value in _numbers(trajectory.rewards)
        if one.name == name and one.step is not None and one.target not in calls and one.target_kind is None
    }


def _numbers(rewards: Sequence[Reward]) -> Iterator[tuple[Reward, float]]:
    """The rewards of more than a few tokens that have a value, with it."""
    return ((one, one.value) for one in rewards if one.value is not None and one.token_start is None)


def _looked_up(given: Mapping[int, float], step: int | None) -> float | None:
    return None if step is None else given.get(step)


def _of_turns(trajectory: Trajectory, reward: Callable[[Turn], float | None]) -> TurnRewards:
    return tuple(reward(turn) for turn in trajectory.turns)
