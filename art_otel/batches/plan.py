"""Plan: what each trajectory is worth, found before any token is read.

Invariant: an advantage compares a trajectory with the others of its group that are selected, wherever in the files
they stand. A trajectory without a group is a group of its own. Who has no reward, or one that is no usable number, is
not trained and counts in no baseline.

Planning reads no messages and no tokens. It keeps about 50 bytes for each reward and 100 for each group.
"""

import math
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple, TypeAlias, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from art_otel.batches import checks
from art_otel.batches.advantages import Rewards
from art_otel.batches.chunks import DUPLICATE, Chunk
from art_otel.batches.credit import Credit, TurnRewards
from art_otel.batches.fingerprint import Fingerprint
from art_otel.batches.selection import GroupKey, group_of
from art_otel.errors import UsageError
from art_otel.store import Wanted
from art_otel.trajectories import Trajectory, Turn

Advantage: TypeAlias = Callable[[Rewards], ArrayLike]
"""The advantages of one group: shape (members,) -> (members,)."""

Refusal: TypeAlias = Callable[[Trajectory], str | None]
"""Why a trajectory is left out, None when it is not."""

OUTLINE: Final = Wanted(prompts=False, messages=False, tokens=False)
LARGEST: Final = 1e37
"""Usable rewards are smaller than this, so that advantages, which may be twice as large, are float32."""

UNUSABLE: Final = "unusable reward"

_WHOLE: Final = 0  # the unit that is a whole rollout


class Worth(NamedTuple):
    """What a turn is trained with, or why it is not.

    `reward` is None where it is unknown or not usable: NaN, infinite or not below 1e37. `advantage` is None where
    nobody asked for advantages or the turn is left out.
    """

    reward: float | None = None
    advantage: float | None = None
    left_out: Literal["no reward", "unusable reward", "zero variance"] | None = None


@dataclass(slots=True)
class _Units:
    """Everything that is rewarded, in the order it was met: a rollout, a step or a turn.

    `ends[i]` is the number of units up to and with trajectory i. `keys` tell units of a trajectory apart; `groups` and
    `moments` which are compared with each other. A reward is NaN where nobody gave one, infinite where it is unusable.
    """

    ends: "array[int]" = field(default_factory=lambda: array("q"))
    keys: "array[int]" = field(default_factory=lambda: array("q"))
    groups: "array[int]" = field(default_factory=lambda: array("q"))
    moments: "array[int]" = field(default_factory=lambda: array("q"))
    rewards: "array[float]" = field(default_factory=lambda: array("d"))


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """`refusals` are the reasons why trajectories are left out, by their number. Advantages have shape (units,).

    `fingerprint` tells the dataset that was read from others.
    """

    credit: Credit
    refusals: dict[int, str]
    units: _Units
    advantages: NDArray[np.float64] | None
    zero_variance: NDArray[np.bool_]
    fingerprint: str

    @property
    def unusable_rewards(self) -> int:
        """How many rewards are NaN, infinite or not below 1e37."""
        return sum(map(math.isinf, self.units.rewards))

    def worth(self, number: int, trajectory: Trajectory) -> tuple[Worth, ...]:
        """What the turns of trajectory `number` are trained with. Shape: (turns,)."""
        start = self.units.ends[number - 1] if number else 0
        of_unit: dict[int | None, Worth] = {
            self.units.keys[unit]: self._unit(unit) for unit in range(start, self.units.ends[number])
        }
        unknown = Worth(left_out=None if self.advantages is None else "no reward")
        if self.credit.per == "rollout":
            return (of_unit.get(_WHOLE, unknown),) * len(trajectory.turns)
        return tuple(
            of_unit.get(_key(self.credit, place, turn, trajectory), unknown)
            for place, turn in enumerate(trajectory.turns)
        )

    def _unit(self, unit: int) -> Worth:
        reward = self.units.rewards[unit]
        known = reward if math.isfinite(reward) else None
        if known is not None and self.zero_variance[unit]:
            return Worth(known, left_out="zero variance")
        if self.advantages is None:
            return Worth(known)
        if known is None:
            return Worth(left_out="no reward" if math.isnan(reward) else UNUSABLE)
        return Worth(known, float(self.advantages[unit]))


def make_plan(
    chunks: Iterable[Chunk], refusal: Refusal, credit: Credit, advantage: Advantage | None, *, keep_flat: bool
) -> Plan:
    """Read what trajectories are worth, and compare those of each group.

    Groups in which all known rewards are equal are marked to be left out unless `keep_flat`. Raises UsageError for a
    credit or an advantage that gives something of another shape, or advantages that are not finite.
    """
    refusals: dict[int, str] = {}
    units, numbers = _Units(), dict[GroupKey, int]()
    fingerprint = Fingerprint()
    for number, (chunk, trajectory) in enumerate(_outlines(chunks, fingerprint)):
        reason = DUPLICATE if chunk.is_duplicate(number) else refusal(trajectory)
        if reason is None:
            # Without a group it is alone; such groups have negative numbers.
            known = group_of(trajectory)
            group = -1 - number if known is None else numbers.setdefault(known, len(numbers))
            _add(units, trajectory, group, credit)
        else:
            refusals[number] = reason
        units.ends.append(len(units.keys))
    advantages = None if advantage is None else _compare(units, advantage, [group_id for _, group_id in numbers])
    flat = np.zeros(len(units.keys), np.bool_) if keep_flat else _flat(units)
    return Plan(
        credit=credit,
        refusals=refusals,
        units=units,
        advantages=advantages,
        zero_variance=flat,
        fingerprint=fingerprint.text(),
    )


def _outlines(chunks: Iterable[Chunk], fingerprint: Fingerprint) -> Iterator[tuple[Chunk, Trajectory]]:
    """Every trajectory with its chunk, both shown to the fingerprint."""
    for chunk in chunks:
        fingerprint.chunk(chunk)
        for outline in chunk.read(OUTLINE):
            fingerprint.trajectory(outline)
            yield chunk, outline


def _add(units: _Units, trajectory: Trajectory, group: int, credit: Credit) -> None:
    rewards = _rewards(trajectory, credit)
    if credit.per == "rollout":
        found = {_WHOLE: (0, rewards[0])} if rewards else dict[int, tuple[int, float | None]]()
    else:
        found = {
            key: (turn.call if credit.per == "call" else key, reward)
            for place, (turn, reward) in enumerate(zip(trajectory.turns, rewards, strict=True))
            if (key := _key(credit, place, turn, trajectory)) is not None
        }
    for key, (moment, reward) in found.items():
        units.keys.append(key)
        units.groups.append(group)
        units.moments.append(moment)
        units.rewards.append(math.nan if reward is None else reward if abs(reward) < LARGEST else math.inf)


def _rewards(trajectory: Trajectory, credit: Credit) -> TurnRewards:
    """What the credit says, which may be a user's function."""
    found = cast(object, credit.rewards(trajectory))
    turns, whose = len(trajectory.turns), f"credit: of rollout {trajectory.rollout_id!r} it"
    rewards = tuple(cast(Iterable[object], found)) if isinstance(found, Iterable) else None
    if rewards is None or len(rewards) != turns:
        raise UsageError(f"{whose} gave {found!r:.200}; it has to give {turns} rewards, one for each turn")
    return tuple([checks.reward(whose, reward) for reward in rewards])


def _key(credit: Credit, place: int, turn: Turn, trajectory: Trajectory) -> int | None:
    """Which unit of the trajectory the turn belongs to; None for a turn outside of every step."""
    return place if credit.per == "call" else trajectory.calls[turn.call].step


def _compare(units: _Units, advantage: Advantage, names: Sequence[str | None]) -> NDArray[np.float64]:
    rewards = np.array(units.rewards, np.float64)
    advantages = np.full(len(rewards), np.nan)
    for members in _groups(units):
        usable = np.isfinite(rewards[members])
        given = [reward if known else None for reward, known in zip(rewards[members].tolist(), usable, strict=True)]
        made = advantage(given)
        found = _as_numbers(made)
        if found.shape != usable.shape or not (np.abs(found[usable]) <= np.finfo(np.float32).max).all():
            group = units.groups[int(members[0])]
            raise UsageError(
                f"advantage: of the rewards {given!r:.200} of group {names[group] if group >= 0 else None!r} it made "
                f"{made!r:.200}; it has to give each that is not None a finite number, of float32"
            )
        advantages[members] = found
    return advantages


def _as_numbers(made: ArrayLike) -> NDArray[np.float64]:
    """As an array; one without a shape where it cannot be one."""
    try:
        return np.asarray(made, np.float64)
    except (TypeError, ValueError):
        return np.array(np.nan)


def _flat(units: _Units) -> NDArray[np.bool_]:
    """Which units are as good as all others that they are compared with. Shape: (units,)."""
    rewards, flat = np.array(units.rewards, np.float64), np.zeros(len(units.keys), np.bool_)
    for members in _groups(units):
        known = rewards[members][np.isfinite(rewards[members])]
        flat[members] = not len(known) or known.min() == known.max()
    return flat


def _groups(units: _Units) -> Iterator[NDArray[np.intp]]:
    """The units of each group and moment."""
    if not units.keys:
        return
    groups, moments = np.array(units.groups, np.int64), np.array(units.moments, np.int64)
    order = np.lexsort((moments, groups))
    changes = (np.diff(groups[order]) != 0) | (np.diff(moments[order]) != 0)
    yield from np.split(order, np.flatnonzero(changes) + 1)
