"""Credit: the reward that each turn of a trajectory is trained with.

    rewards: final 1.0, step 0: 0.2          turn 0 (step 0)   turn 1 (step 1)
    outcome_reward()                         1.0               1.0
    step_reward()                            0.2               None

Invariant: a turn's reward is a recorded number, or a weighted or discounted sum of recorded numbers, or None; None is
never 0. If one target has several rewards of one name, the last counts. A reward with a label only, or of a span of
tokens, is no turn's reward. Credits can be pickled (spawned workers need that), if the user's function in them can.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Annotated, Final, Literal, NamedTuple, TypeAlias

import msgspec
import numpy as np

from art_otel.attributes import REWARD_NAME
from art_otel.data.columns import CREDITING, UNKNOWN, Columns, Flags, Floats, Ints, columns_of
from art_otel.data.options import validate
from art_otel.data.rewards import RewardedPart, Weights, check_weights, sum_parts
from art_otel.errors import UsageError
from art_otel.trajectories import Trajectory

TurnRewards: TypeAlias = tuple[float | None, ...]
"""The reward of each turn, None for a turn without one. Shape: (turns,)."""

Per: TypeAlias = Literal["rollout", "step", "call"]
"""The unit that has one reward."""

CreditName: TypeAlias = Literal["outcome_reward", "step_reward", "call_reward"]
"""The credits that need no argument."""


class KnownRewards(NamedTuple):
    """Numbers, and whether each was given. Shape: (turns,) or (rollouts,)."""

    values: Floats
    known: Flags


OfColumns: TypeAlias = Callable[[Columns], KnownRewards]
"""The reward of every turn. Shape: (turns,)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Credit:
    """A rule for the reward that each turn of a trajectory is trained with.

    `rewards` returns the rewards of a trajectory's turns; trajectories from files have no messages and tokens there.
    `per` is the unit that has one reward, and that is compared within a group: rollouts with rollouts, steps with the
    same step, calls with the call at the same position. `name` identifies the rule: a saved state of batches cannot be
    continued with another name. `weights` are the weights of summed rewards by name, None if nothing is summed.
    """

    per: Per
    rewards: Callable[[Trajectory], TurnRewards]
    name: str = ""
    weights: Mapping[str, float] | None = None

    @property
    def of_columns(self) -> "OfColumns | None":
        """The rule over the columns of all trajectories at once; None for a user's function, which takes objects."""
        rule = self.rewards  # not a field of its own: a changed copy would keep the old one
        return rule.args[0] if isinstance(rule, partial) and rule.func is _of_one else None

    @property
    def reads_final_reward(self) -> bool:
        """Whether the credit is that of `outcome_reward()`, whatever its name is."""
        return self.of_columns is _final


class _Discount(msgspec.Struct, frozen=True):
    gamma: Annotated[float, msgspec.Meta(ge=0, le=1)]


def reward_function(function: Callable[[Trajectory], float | None], *, name: str = "") -> Credit:
    """Give every turn the reward that the function returns for the whole trajectory. `name` is as in Credit.

    Raises UsageError if `function` is not callable.
    """
    if not callable(function):
        raise UsageError(f"reward_function({function!r:.200}): give a function of a trajectory")
    return Credit(per="rollout", rewards=partial(_of_whole, function), name=name)


def outcome_reward(name: str | None = None) -> Credit:
    """Give every turn the final reward: r_t = R, as Trinity-RFT's RewardPropagationWorkflow does.

    With a name, R is the last reward of the whole rollout with this name, such as `outcome_reward("correct")`.
    """
    if name is None:
        return _credit("rollout", _final, "outcome_reward")
    return _credit("rollout", partial(_named_outcome, name), f"outcome_reward {name!r}")


def weighted(weights: Mapping[str, float]) -> Credit:
    """Give every turn the weighted sum of the named rewards of the whole rollout: r_t = sum_n w_n R_n.

    None if one of the names has no reward. Raises UsageError for no weights, and for a weight that is not finite.
    """
    checked = check_weights(weights)
    credit = _credit("rollout", partial(_weighted, checked), f"weighted {sorted(checked.items())}")
    return replace(credit, weights=checked)


def step_reward(name: str = REWARD_NAME) -> Credit:
    """Give every turn its step's reward: r_t = r_k for a call in step k, as Trinity-RFT's StepWiseRewardWorkflow does.

    Unknown if two steps with one index have rewards: see `shared_steps`.
    """
    return _credit("step", partial(_step_wise, name), f"step_reward {name!r}")


def call_reward(name: str = REWARD_NAME) -> Credit:
    """Give every turn the reward of its own call. A reward of its choice counts more than one of the call."""
    return _credit("call", partial(_per_call, name), f"call_reward {name!r}")


def discounted(gamma: float, name: str = REWARD_NAME) -> Credit:
    """Give every turn the discounted return of its step: G_k = r_k + gamma G_(k+1), G of the last step K = r_K + R.

        r_0 = 1, r_1 = 2, R = 4, gamma = 0.5      G_1 = 2 + 4 = 6      G_0 = 1 + 0.5 * 6 = 4

    R is the rollout's final reward, 0 if there is none. K is the last step with a call or a reward; every index below K
    is a step, even if nothing was recorded there. If no step has a reward, G_k = gamma^(K-k) R. If only some steps have
    one, the return of a step without a reward is unknown, and so are the returns of the steps before it. Two steps with
    one index have no reward (`shared_steps`). Source: Sutton and Barto 2018, Reinforcement Learning, eq. 3.9. Raises
    UsageError for a gamma that is not from 0 to 1.
    """
    share = validate(_Discount, {"gamma": gamma}).gamma
    return _credit("step", partial(_discounted, share, name), f"discounted {share} {name!r}")


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
            f"credit={credit!r:.200}: use one of {', '.join(CREDITS)}, or the result of a function of art_otel.data, "
            "such as weighted(…) or discounted(0.99)"
        )
    return make()


def _credit(per: Per, of_columns: OfColumns, name: str) -> Credit:
    return Credit(per=per, rewards=partial(_of_one, of_columns), name=name)


def _of_one(of_columns: OfColumns, trajectory: Trajectory) -> TurnRewards:
    """The rewards of one trajectory's turns, by the rule over columns."""
    values, known = of_columns(columns_of([trajectory], CREDITING))
    return tuple(value if is_known else None for value, is_known in zip(values.tolist(), known.tolist(), strict=True))


def _of_whole(reward: Callable[[Trajectory], float | None], trajectory: Trajectory) -> TurnRewards:
    return (reward(trajectory),) * len(trajectory.turns)


def named_rewards(columns: Columns, name: str) -> KnownRewards:
    """The last reward of this name for each whole rollout. Shape: (rollouts,)."""
    whole = columns.reward_name.equals(name) & columns.has_value & ~columns.target.known
    whole &= ~columns.reward_step.known & (columns.token_start == UNKNOWN)
    values, known = np.full(len(columns), np.nan), np.zeros(len(columns), np.bool_)
    # numpy keeps the last of several values that are assigned to one row, and rewards are in time order.
    values[columns.reward_rows[whole]] = columns.reward_value[whole]
    known[columns.reward_rows[whole]] = True
    return KnownRewards(values, known)


def _to_turns(columns: Columns, values: Floats, known: Flags) -> KnownRewards:
    """Give all turns of a rollout the rollout's value."""
    return KnownRewards(values[columns.turn_rows], known[columns.turn_rows])


def _final(columns: Columns) -> KnownRewards:
    return _to_turns(columns, columns.reward, columns.is_rewarded)


def _named_outcome(name: str, columns: Columns) -> KnownRewards:
    values, known = named_rewards(columns, name)
    return _to_turns(columns, values, known)


def _weighted(weights: Mapping[str, float], columns: Columns) -> KnownRewards:
    total, all_known = np.zeros(len(columns)), np.ones(len(columns), np.bool_)
    with np.errstate(invalid="ignore", over="ignore"):  # infinite and NaN sums are unusable rewards, sorted out later
        for name, weight in weights.items():
            values, known = named_rewards(columns, name)
            total, all_known = total + weight * values, all_known & known
    return _to_turns(columns, total, all_known)


def _step_wise(name: str, columns: Columns) -> KnownRewards:
    rewarded, steps = _step_rewards(columns, name)
    keys = columns.reward_rows * len(columns.step.values) + steps
    of_turns = columns.step[columns.turn_calls]
    turn_keys = np.where(of_turns.known, columns.turn_rows * len(columns.step.values) + of_turns.codes, -1)
    return _last_of_keys(keys[rewarded & (steps >= 0)], columns.reward_value[rewarded & (steps >= 0)], turn_keys)


def _per_call(name: str, columns: Columns) -> KnownRewards:
    """The reward of the turn's choice, or else of its call."""
    rewarded = columns.reward_name.equals(name) & columns.has_value & (columns.token_start == UNKNOWN)
    targets = columns.target.codes_in(columns.span_id)
    rewarded &= targets >= 0
    choices, spans = int(columns.choice.max(initial=0)) + 2, len(columns.span_id.values)
    is_whole = columns.reward_choice == UNKNOWN
    rewarded &= is_whole | ((columns.reward_choice >= 0) & (columns.reward_choice < choices - 1))
    keys = (columns.reward_rows * spans + targets) * choices + np.where(is_whole, 0, columns.reward_choice + 1)
    turn_spans = columns.turn_rows * spans + columns.span_id.codes[columns.turn_calls]
    values = columns.reward_value[rewarded]
    of_choice = _last_of_keys(keys[rewarded], values, turn_spans * choices + columns.choice + 1)
    of_call = _last_of_keys(keys[rewarded], values, turn_spans * choices)
    return KnownRewards(
        np.where(of_choice.known, *(one.values for one in (of_choice, of_call))), of_choice.known | of_call.known
    )


def _last_of_keys(keys: Ints, values: Floats, wanted: Ints) -> KnownRewards:
    """The last value of each wanted key."""
    # np.unique gives the first of equal keys: from the end, that is the last one.
    distinct, last = np.unique(keys[::-1], return_index=True)
    if not len(distinct):
        return KnownRewards(np.full(len(wanted), np.nan), np.zeros(len(wanted), np.bool_))
    places = np.minimum(np.searchsorted(distinct, wanted), len(distinct) - 1)
    known = distinct[places] == wanted
    return KnownRewards(np.where(known, values[::-1][last][places], np.nan), known)


def _discounted(gamma: float, name: str, columns: Columns) -> KnownRewards:
    """The discounted returns, in a plain loop over rollouts and steps: few datasets are trained so."""
    values, known = np.full(len(columns.call), np.nan), np.zeros(len(columns.call), np.bool_)
    named = _of_steps(columns) & columns.reward_name.equals(name)
    usable, _ = _step_rewards(columns, name)
    rewarded_steps: dict[int, set[int]] = {}
    step_rewards: dict[int, dict[int, float]] = {}
    for reward in np.flatnonzero(named).tolist():
        row, step = int(columns.reward_rows[reward]), columns.reward_step.values[columns.reward_step.codes[reward]]
        rewarded_steps.setdefault(row, set()).add(step)
        if usable[reward]:
            step_rewards.setdefault(row, {})[step] = float(columns.reward_value[reward])
    call_steps, turn_calls = list(columns.step), columns.turn_calls.tolist()
    for row, (first, end) in enumerate(pairwise(columns.turn_offsets.tolist())):
        final = float(columns.reward[row]) if columns.is_rewarded[row] else None
        steps = {
            step for step in call_steps[columns.call_offsets[row] : columns.call_offsets[row + 1]] if step is not None
        }
        if row in rewarded_steps:
            returns = _returns(step_rewards.get(row, {}), max(steps | rewarded_steps[row]), final, gamma)
        else:
            last = max(steps, default=0)
            returns = {} if final is None else {step: gamma ** (last - step) * final for step in steps}
        for turn in range(first, end):
            if (step := call_steps[turn_calls[turn]]) in returns:
                values[turn], known[turn] = returns[step], True
    return KnownRewards(values, known)


def _returns(rewards: Mapping[int, float], last: int, final: float | None, gamma: float) -> dict[int, float]:
    """G_k = r_k + gamma G_(k+1) from the last step down to the first that has no reward."""
    step, total, returns = last, final or 0.0, dict[int, float]()
    while step in rewards:
        total = rewards[step] + (total if step == last else gamma * total)
        returns[step] = total
        step -= 1
    return returns


def shared_steps(columns: Columns) -> tuple[Ints, Ints]:
    """The rollouts and step indexes at which two different steps were rewarded: each agent may number its own steps.

    It is unknown in which of the two steps a call was, so neither reward is used. Steps are codes of `reward_step`.
    """
    rewards = np.flatnonzero(_of_steps(columns) & columns.target.known)
    steps = len(columns.reward_step.values)
    keys = columns.reward_rows[rewards] * steps + columns.reward_step.codes[rewards]
    distinct = np.unique(np.stack([keys, columns.target.codes[rewards]]), axis=1)[0]
    shared, counts = np.unique(distinct, return_counts=True)
    return shared[counts > 1] // steps, shared[counts > 1] % steps


def _step_rewards(columns: Columns, name: str) -> tuple[Flags, Ints]:
    """Which rewards of this name judge a step whose index no other step has; and each reward's step as code of `step`.

    Shape: (rewards,).
    """
    shared_rows, shared = shared_steps(columns)
    steps = len(columns.reward_step.values)
    is_shared = np.isin(columns.reward_rows * steps + columns.reward_step.codes, shared_rows * steps + shared)
    rewarded = _of_steps(columns) & columns.reward_name.equals(name) & ~is_shared
    return rewarded, columns.reward_step.codes_in(columns.step)


def _of_steps(columns: Columns) -> Flags:
    """Which rewards have a value and judge a step, and not a call, an agent or a tool in it. Shape: (rewards,)."""
    is_whole = (columns.token_start == UNKNOWN) & ~columns.target_kind.known & ~judges_call(columns)
    return columns.reward_step.known & columns.has_value & is_whole


def judges_call(columns: Columns) -> Flags:
    """Which rewards have a call of their rollout as their target. Shape: (rewards,)."""
    spans, targets = len(columns.span_id.values), columns.target.codes_in(columns.span_id)
    calls = columns.call_rows * spans + columns.span_id.codes
    return (targets >= 0) & np.isin(columns.reward_rows * spans + targets, calls)


def token_rewards_by_turn(columns: Columns, selected: Flags, weights: Weights) -> tuple[dict[str, Ints], Flags]:
    """Count each rollout's rewards of spans of tokens by name; flag turns whose sums are no usable numbers.

    Shapes: (rollouts,) and (turns,).
    """
    is_part = columns.reward_name.where(weights.__contains__) & columns.has_value & selected[columns.reward_rows]
    is_part &= (columns.token_start >= 0) & (columns.token_start < columns.token_end)
    counts = {
        name: np.bincount(columns.reward_rows[is_part & columns.reward_name.equals(name)], minlength=len(columns))
        for name in weights
    }
    rewards = np.flatnonzero(is_part)
    names = list(columns.reward_name[rewards])
    rows, targets = columns.reward_rows[rewards], columns.target.codes_in(columns.span_id)[rewards]
    turns = np.flatnonzero(np.isin(columns.turn_rows, rows))
    of_turns = (columns.turn_rows, columns.span_id.codes[columns.turn_calls], columns.choice)
    places = dict(zip(zip(*(column[turns].tolist() for column in of_turns), strict=True), turns.tolist(), strict=True))
    parts: dict[int, dict[RewardedPart, float]] = {}
    choices = np.where(columns.reward_choice == UNKNOWN, 0, columns.reward_choice)[rewards]
    for reward, name, *key in zip(
        rewards.tolist(), names, rows.tolist(), targets.tolist(), choices.tolist(), strict=True
    ):
        if (turn := places.get(tuple(key))) is not None:
            part = int(columns.token_start[reward]), int(columns.token_end[reward]), name
            parts.setdefault(turn, {})[part] = float(columns.reward_value[reward]) * weights[name]
    unusable = np.zeros(len(columns.call), np.bool_)
    for turn, of_turn in parts.items():
        unusable[turn] = sum_parts(of_turn, int(max(columns.sampled_tokens[turn], 0))) is None
    return counts, unusable


def read_credit(text: str) -> Credit:
    """The credit of a text: a name, or a function of `art_otel.data` with its arguments in parentheses.

    `outcome_reward(correct)`, `step_reward(style)`, `weighted(correct=1, style=0.2)`, `discounted(0.99)`. Raises
    UsageError, which names the wrong part and shows a correct text.
    """
    name, opening, rest = text.strip().partition("(")
    name = name.rstrip()
    if name in CREDITS and not opening:
        return find_credit(name)
    if name not in _CREDIT_EXAMPLES:
        raise UsageError(f"credit={text!r:.100}: use one of {', '.join((*CREDITS, *CREDIT_EXAMPLES))}")
    try:
        return _make_credit(name, opening + rest)
    except ValueError as error:
        raise UsageError(f"credit={text!r:.100}: {error}; write {_CREDIT_EXAMPLES[name]}") from error


def _make_credit(name: str, arguments: str) -> Credit:
    """The credit of this name and its arguments in parentheses. Raises ValueError, which names the bad part."""
    if not arguments.endswith(")"):
        raise ValueError("the ) at the end is missing" if arguments else "its arguments are missing")
    argument = arguments[1:-1].strip()
    match name:
        case "weighted":
            return weighted(read_weights(argument))
        case "discounted":
            if (gamma := _number(argument)) is None or not 0 <= gamma <= 1:
                raise ValueError(f"{argument!r:.100} must be a number from 0 to 1")
            return discounted(gamma)
        case "step_reward":
            return step_reward(argument or REWARD_NAME)
        case "call_reward":
            return call_reward(argument or REWARD_NAME)
        case _:
            return outcome_reward(argument or None)


CREDIT_EXAMPLES: Final = ("outcome_reward(correct)", "weighted(correct=1, style=0.2)", "discounted(0.99)")
_CREDIT_EXAMPLES: Final = {example.partition("(")[0]: example for example in CREDIT_EXAMPLES} | {
    "step_reward": "step_reward(style)",
    "call_reward": "call_reward(style)",
}


def read_weights(text: str) -> dict[str, float]:
    """The names of rewards with their weights: 1.0 for a name alone. Raises ValueError, which names the bad part."""
    weights: dict[str, float] = {}
    for part in text.split(","):
        name, equals, weight = map(str.strip, part.partition("="))
        number = _number(weight) if equals else 1.0
        if not name:
            raise ValueError(f"{part.strip()!r:.100} lacks the name of a reward")
        if number is None:
            raise ValueError(f"the weight of {name!r:.100} is {weight!r:.100}, which is no finite number")
        if name in weights:
            raise ValueError(f"{name!r:.100} has two weights")
        weights[name] = number
    return weights


def _number(text: str) -> float | None:
    """The finite number that a text is, None if it is none."""
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None
