"""Pairing: which members of a group are compared with each other.

Invariant: the chosen one of a pair has the higher reward, both had the same prompt and tools, and each member is in a
pair or there is one reason why not. Members that were judged beside others are paired as they were judged, and with
nobody else; of several judgements on the same two the last counts. Only numbers, rewards and prompts are looked at, so
a plan is small.
"""

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final, Literal, NamedTuple, TypeAlias, get_args

Pairs: TypeAlias = Literal["best_worst", "best_each", "all"]
"""The best against the worst of a group; the best against each worse one; each against each worse one."""

PAIRS: Final[tuple[str, ...]] = get_args(Pairs)


class Judgement(NamedTuple):
    """What a trajectory was given in one comparison with another, and when in nanoseconds."""

    comparison: str
    reward: float
    time_ns: int


class Member(NamedTuple):
    """A trajectory of a group: its number in the dataset, its reward, and a digest of its prompt and tools.

    Where `judgements` made its reward it is compared by each of these; in a pair its reward is that of one of them.
    """

    number: int
    reward: float
    prompt: bytes
    judgements: tuple[Judgement, ...] = ()

    @property
    def known(self) -> tuple[object, ...]:
        """What is the same whatever pair it is in."""
        return (self.number, self.judgements or self.reward, self.prompt)


class Pair(NamedTuple):
    """The members to compare, the better one first."""

    chosen: Member
    rejected: Member


@dataclass(frozen=True, slots=True)
class Pairing:
    """The pairs of a group, and how many members are in none, by reason."""

    pairs: tuple[Pair, ...]
    left_out: Counter[str]


def pair_up(members: Sequence[Member], pairs: Pairs) -> Pairing:
    """Pair the members of one group. Of equally good ones the first counts, of equally bad ones too."""
    found: list[Pair] = []
    alike: dict[bytes, list[Member]] = {}
    for member in members:
        alike.setdefault(member.prompt, []).append(member)
    for same_prompt in alike.values():
        found.extend(_judged(same_prompt))
        found.extend(_pairs([member for member in same_prompt if not member.judgements], pairs))
    paired = {member.number for pair in found for member in pair}
    rivals = [member for member in members if not member.judgements]
    compared = {member.prompt for member in rivals if member.number in paired}
    are_equal = len(rivals) > 1 and len({member.reward for member in rivals}) == 1
    left_out = Counter(
        _reason(member, compared, is_alone=len(members) == 1, are_equal=are_equal)
        for member in members
        if member.number not in paired
    )
    return Pairing(tuple(found), left_out)


def _judged(members: Iterable[Member]) -> Iterator[Pair]:
    """The pairs of which somebody said who is better, in the order of their last judgements."""
    sides: dict[str, list[tuple[int, Member]]] = {}
    for member in members:
        for comparison, reward, time_ns in member.judgements:
            sides.setdefault(comparison, []).append((time_ns, member._replace(reward=reward)))
    found = [
        (max(first, second), comparison, one, other)
        for comparison, judged in sides.items()
        for (first, one), (second, other) in combinations(judged, 2)
    ]
    last = {(one.number, other.number): (one, other) for _, _, one, other in sorted(found)}
    yield from _pairs_of(last.values())


def _pairs(members: Sequence[Member], pairs: Pairs) -> Iterator[Pair]:
    ranked = sorted(members, key=lambda member: -member.reward)
    worse = [member for member in ranked if member.reward < ranked[0].reward]
    if pairs == "all":
        return _pairs_of(combinations(ranked, 2))
    if pairs == "best_worst":
        worse = [member for member in worse if member.reward == worse[-1].reward][:1]
    return _pairs_of((ranked[0], member) for member in worse)


def _pairs_of(compared: Iterable[tuple[Member, Member]]) -> Iterator[Pair]:
    """Each two with the better one first; none of equally good ones."""
    for one, other in compared:
        if one.reward != other.reward:
            yield Pair(one, other) if one.reward > other.reward else Pair(other, one)


def _reason(member: Member, compared: Container[bytes], *, is_alone: bool, are_equal: bool) -> str:
    """Why a member is in no pair. `compared` are the prompts of those that are in one by their rewards."""
    if is_alone:
        return "alone in its group"
    if member.judgements:
        return "judged beside none of its group"
    if are_equal:
        return "equal rewards in its group"
    return "neither best nor worst" if member.prompt in compared else "no equal prompt with another reward"
