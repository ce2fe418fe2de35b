"""Credit: which reward each turn of a trajectory is trained with.

Invariant: a credit gives every turn a number that somebody gave (or a sum or mean of such), or None; None is never 0.
Of several rewards of one name for one thing the last counts. A reward of a label only, and one of a span of tokens, is
no turn's. Every credit here can be pickled, as spawned workers need it, if the user's function in it can.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Annotated, Final, Literal, TypeAlias, TypeVar

import msgspec

from art_otel.attributes import REWARD_NAME
from art_otel.data.options import validate
from art_otel.data.rewards import check_weights, reward_of
from art_otel.errors import UsageError
from art_otel.trajectories import Reward, Trajectory, aggregate

TurnRewards: TypeAlias = tuple[float | None, ...]
"""Shape: (turns,), None where nobody gave a reward."""

CreditName: TypeAlias = Literal["outcome_reward", "step_reward", "call_reward"]
"""The credits that need no argument."""

_Reads: TypeAlias = Literal["anything", "rewards", "final reward"]
"""What a credit reads of a trajectory: rewards, with the places of calls; or the final one, which every turn gets."""

_Key = TypeVar("_Key")


@dataclass(frozen=True, kw_only=True, slots=True)
class Credit:
    """Which reward each turn of a trajectory is trained with.

    `rewards` returns the rewards of a trajectory's turns. `per` says which turns have one reward and are compared with
    each other in a group: those of whole rollouts, of the same step, or of the call at the same place. Trajectories
    from files come to `rewards` without messages and tokens. `name` identifies the rule: batches cannot be continued
    with a rule of another name. `weights` has the names of the rewards that are summed, None where none are. Only the
    functions of this module set `_reads`.
    """

    per: Literal["rollout", "step", "call"]
    rewards: Callable[[Trajectory], TurnRewards]
    name: str = ""
    weights: Mapping[str, float] | None = None
    _reads: _Reads = field(default="anything", repr=False)

    @property
    def reads_final_reward(self) -> bool:
        """Whether it is the credit of `outcome_reward()`, whatever its name is."""
        return self._reads == "final reward"

    @property
    def reads_rewards_alone(self) -> bool:
        """Whether it reads rewards and places of calls alone: a function of the user may read anything."""
        return self._reads != "anything"


class _Discount(msgspec.Struct, frozen=True):
    gamma: Annotated[float, msgspec.Meta(ge=0, le=1)]


def reward_function(function: Callable[[Trajectory], float | None], *, name: str = "") -> Credit:
    """Give every turn the reward that the function returns for the whole trajectory. `name` is as in Credit.

    Raises UsageError if `function` is not callable.
    """
    if not callable(function):
        raise UsageError(f"reward_function({function!r:.200}): give a function of a trajectory")
    return _of_rollouts(function, name, "anything")


def outcome_reward(name: str | None = None) -> Credit:
    """Give every turn the final reward: r_t = R, as Trinity-RFT's RewardPropagationWorkflow does.

    With a name, R is the last reward of the whole rollout with this name, such as `outcome_reward("correct")`.
    """
    if name is None:
        return _of_rollouts(_final, "outcome_reward", "final reward")
    return _of_rollouts(partial(reward_of, reward=name), f"outcome_reward {name!r}", "rewards")


def weighted(weights: Mapping[str, float]) -> Credit:
    """Give every turn the weighted sum of the named rewards of the whole rollout: r_t = sum_n w_n R_n.

    None if one of the names has no reward. Raises UsageError for no weights, and for a weight that is not finite.
    """
    checked = check_weights(weights)
    credit = _of_rollouts(partial(_weighted, checked), f"weighted {sorted(checked.items())}", "rewards")
    return replace(credit, weights=checked)


def step_reward(name: str = REWARD_NAME) -> Credit:
    """Give every turn its step's reward: r_t = r_k for a call in step k, as Trinity-RFT's StepWiseRewardWorkflow does.

    Unknown if two steps with one index have rewards: see `shared_steps`.
    """
    return Credit(per="step", rewards=partial(_step_wise, name), name=f"step_reward {name!r}", _reads="rewards")


def call_reward(name: str = REWARD_NAME) -> Credit:
    """Give every turn the reward of its own call. A reward of its choice counts more than one of the call."""
    return Credit(per="call", rewards=partial(_per_call, name), name=f"call_reward {name!r}", _reads="rewards")


def discounted(gamma: float, name: str = REWARD_NAME) -> Credit:
    """Give every turn the discounted return of its step: G_k = r_k + gamma G_(k+1), G of the last step K = r_K + R.

    R is the rollout's final reward; if there is none, nothing is added. If no step has a reward, R alone is discounted:
    G_k = gamma^(K-k) R. If only some steps have a reward, the return of a step without one is unknown, and so are those
    of the steps before it. K is the last step that has a call or a reward. Every index below K is a step, even if
    nothing was recorded there: it counts in the discount, and has no reward. Two steps with one index have no reward
    either: see `shared_steps`. Source: Sutton and Barto 2018, Reinforcement Learning, eq. 3.9. Raises UsageError for a
    gamma that is not from 0 to 1.
    """
    share = validate(_Discount, {"gamma": gamma}).gamma
    rewards = partial(_discounted, share, name)
    return Credit(per="step", rewards=rewards, name=f"discounted {share} {name!r}", _reads="rewards")


_BY_NAME: Final[Mapping[CreditName, Callable[[], Credit]]] = {
    "outcome_reward": outcome_reward,
    "step_reward": step_reward,
    "call_reward": call_reward,
}
CREDITS: Final = tuple(_BY_NAME)


def find_credit(credit: CreditName | Credit) -> Credit:
    """The credit of this name, or the credit itself. Raises UsageError."""
    if isinstance(credit, Credit):
        return credit
    make = _BY_NAME.get(credit) if isinstance(credit, str) else None  # pyright: ignore[reportUnnecessaryIsInstance] # not every caller is typed
    if make is None:
        raise UsageError(
            f"credit={credit!r:.200}: use one of {', '.join(CREDITS)}, or what a function of art_otel.data gives, such"
            " as weighted(…) or discounted(0.99)"
        )
    return make()


def shared_steps(trajectory: Trajectory) -> set[int]:
    """The indexes at which two steps were rewarded, as of agents that each number their own.

    Nobody knows in which of the two a call was, so neither reward is used.
    """
    targets: dict[int, set[str]] = {}
    for step, reward in _of_steps(trajectory):
        if reward.target is not None:
            targets.setdefault(step, set()).add(reward.target)
    return {step for step, spans in targets.items() if len(spans) > 1}


def _of_rollouts(function: Callable[[Trajectory], float | None], name: str, reads: _Reads) -> Credit:
    return Credit(per="rollout", rewards=partial(_of_whole, function), name=name, _reads=reads)


def _of_whole(reward: Callable[[Trajectory], float | None], trajectory: Trajectory) -> TurnRewards:
    return (reward(trajectory),) * len(trajectory.turns)


def _final(trajectory: Trajectory) -> float | None:
    return trajectory.reward


def _weighted(weights: Mapping[str, float], trajectory: Trajectory) -> float | None:
    rewards = named_rewards(trajectory)
    if not rewards.keys() >= weights.keys():
        return None
    return sum(weight * rewards[name] for name, weight in weights.items())


def named_rewards(trajectory: Trajectory) -> dict[str, float]:
    """The rewards of the whole rollout by their names."""
    whole = (one for one in trajectory.rewards if one.target is None and one.step is None and one.token_start is None)
    return _aggregated((one.name, one) for one in whole)


def _step_wise(name: str, trajectory: Trajectory) -> TurnRewards:
    return _by_step(_step_rewards(trajectory, name), trajectory)


def _per_call(name: str, trajectory: Trajectory) -> TurnRewards:
    candidates = (one for one in trajectory.rewards if one.name == name and one.token_start is None)
    rewards = _aggregated(((one.target, one.choice), one) for one in candidates)
    calls = trajectory.calls
    return tuple(
        rewards.get((calls[turn.call].span_id, turn.choice), rewards.get((calls[turn.call].span_id, None)))
        for turn in trajectory.turns
    )


def _discounted(gamma: float, name: str, trajectory: Trajectory) -> TurnRewards:
    rewarded = {step for step, reward in _of_steps(trajectory) if reward.name == name}
    steps = {call.step for call in trajectory.calls if call.step is not None} | rewarded
    if not rewarded:
        return _by_step(_discounts(trajectory.reward, gamma, steps), trajectory)
    rewards = _step_rewards(trajectory, name)
    last = step = max(steps)
    total, returns = trajectory.reward or 0.0, dict[int, float]()
    while step in rewards:
        total = rewards[step] + (total if step == last else gamma * total)
        returns[step] = total
        step -= 1
    return _by_step(returns, trajectory)


def _discounts(reward: float | None, gamma: float, steps: Iterable[int]) -> dict[int, float]:
    """Discount a reward of the last step to each step."""
    if reward is None:
        return {}
    last = max(steps, default=0)
    return {step: gamma ** (last - step) * reward for step in steps}


def _step_rewards(trajectory: Trajectory, name: str) -> dict[int, float]:
    shared = shared_steps(trajectory)
    return _aggregated((step, one) for step, one in _of_steps(trajectory) if one.name == name and step not in shared)


def _of_steps(trajectory: Trajectory) -> list[tuple[int, Reward]]:
    """The rewards of steps that have a value; what judges a call, an agent or a tool in a step is theirs."""
    in_steps = [(one.step, one) for one in trajectory.rewards if one.step is not None]
    calls = {call.span_id for call in trajectory.calls} if in_steps else set[str]()
    return [
        (step, one)
        for step, one in in_steps
        if one.value is not None and one.token_start is None and one.target not in calls and one.target_kind is None
    ]


def _aggregated(rewards_by_key: Iterable[tuple[_Key, Reward]]) -> dict[_Key, float]:
    """Aggregate the rewards of each key; a key whose rewards have no value is left out."""
    of: dict[_Key, list[Reward]] = {}
    for key, reward in rewards_by_key:
        of.setdefault(key, []).append(reward)
    values = ((key, aggregate(rewards)) for key, rewards in of.items())
    return {key: value for key, value in values if value is not None}


def _by_step(rewards: Mapping[int, float], trajectory: Trajectory) -> TurnRewards:
    """Give each turn the reward of its step; None where the step has none."""
    steps = (trajectory.calls[turn.call].step for turn in trajectory.turns)
    return tuple(None if step is None else rewards.get(step) for step in steps)
