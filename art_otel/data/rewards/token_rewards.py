"""Token rewards: what was given to spans of tokens.

Invariant: a token has the weighted sum of the rewards of the spans that it lies in; of several rewards of one name for
one span the last counts. They are in no turn's reward and in no advantage.
Their places are those of the server's ids, so tokens that were made here have none.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from art_otel.data.rewards.usable import LARGEST, check_weights
from art_otel.trajectories import Reward, Trajectory

Weights: TypeAlias = Mapping[str, float]
"""By the name of a reward."""

TokenRewards: TypeAlias = Mapping[int, NDArray[np.float32] | None]
"""By the position of a turn, shape (tokens sampled,); None where they are no usable numbers. Others were given none.

Where the server gave no ids there is no token to give them to, and the shape is (0,).
"""

_Completion: TypeAlias = tuple[str | None, int]  # the span id of its call, and its place among the choices
_Part: TypeAlias = tuple[int, int, str]  # first token, last token + 1, name


def weights_of(rewards: str | Weights | None) -> Weights | None:
    """The weights that a user means. Raises UsageError for none and for one that is not finite."""
    if rewards is None:
        return None
    return check_weights({rewards: 1.0} if isinstance(rewards, str) else rewards)


def count_by_name(trajectory: Trajectory, weights: Weights) -> Counter[str]:
    """How many rewards of spans of tokens the trajectory has, by each name that has a weight; 0 for none."""
    counts = Counter(dict.fromkeys(weights, 0))
    counts.update(name for _, (_, _, name), _ in _weighted_parts(trajectory, weights))
    return counts


def token_rewards(trajectory: Trajectory, weights: Weights) -> TokenRewards:
    """The token rewards of a trajectory."""
    parts: dict[_Completion, dict[_Part, float]] = {}
    for completion, part, value in _weighted_parts(trajectory, weights):
        parts.setdefault(completion, {})[part] = value
    by_turn: dict[int, NDArray[np.float32] | None] = {}
    for position, turn in enumerate(trajectory.turns) if parts else ():
        of_completion = parts.get((trajectory.calls[turn.call].span_id, turn.choice))
        if of_completion is not None:
            by_turn[position] = _sum(of_completion, 0 if turn.token_ids is None else len(turn.token_ids))
    return by_turn


def _weighted_parts(trajectory: Trajectory, weights: Weights) -> Iterator[tuple[_Completion, _Part, float]]:
    """What was given to spans of tokens, weighted."""
    for reward in trajectory.rewards:
        part = _part(reward)
        if part is not None and reward.value is not None and reward.name in weights:
            yield (reward.target, reward.choice or 0), part, reward.value * weights[reward.name]


def _part(reward: Reward) -> _Part | None:
    start, end = reward.token_start, reward.token_end
    return None if start is None or end is None or not 0 <= start < end else (start, end, reward.name)


def _sum(values: Mapping[_Part, float], size: int) -> NDArray[np.float32] | None:
    total = np.zeros(size)
    with np.errstate(invalid="ignore", over="ignore"):  # what comes of infinities is found below
        for (start, end, _), value in values.items():
            total[start:end] += value
    return total.astype(np.float32) if (np.abs(total) < LARGEST).all() else None
