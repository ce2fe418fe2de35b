"""Pairing: which members of a group are compared with each other.

Invariant: the chosen one of a pair has the higher reward, both had the same prompt and tools, and each member is in a
pair or there is one reason why not. Only numbers, rewards and prompts are looked at, so a plan is small.
"""

from collections import Counter
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal, NamedTuple, TypeAlias

from art_otel.store import GroupKey

Pairs: TypeAlias = Literal["best_worst", "best_each", "all"]
"""The best against the worst of a group; the best against each worse one; each against each worse one."""


class Member(NamedTuple):
    """A trajectory of a group: its number in the dataset, its reward, and a digest of its prompt and tools."""

    number: int
    group: GroupKey
    reward: float
    prompt: bytes


class Pair(NamedTuple):
    """The members to compare, the better one first."""

    chosen: Member
    rejected: Member


@dataclass(frozen=True, slots=True)
class Pairing:
    """The pairs of a group, and how many members are in none, by reason."""

    pairs: tuple[Pair, ...]
    skipped: Counter[str]


def pair_up(members: Sequence[Member], pairs: Pairs) -> Pairing:
    """Pair the members of one group. Of equally good ones the first counts, of equally bad ones too."""
    by_prompt: dict[bytes, list[Member]] = {}
    for member in members:
        by_prompt.setdefault(member.prompt, []).append(member)
    matches = [pair for same_prompt in by_prompt.values() for pair in _pairs(same_prompt, pairs)]
    paired = {member.number for pair in matches for member in pair}
    compared = {member.prompt for member in members if member.number in paired}
    equal = len({member.reward for member in members}) == 1
    skipped = Counter(
        _skip_reason(member, compared, alone=len(members) == 1, equal=equal)
        for member in members
        if member.number not in paired
    )
    return Pairing(tuple(matches), skipped)


def _pairs(members: Sequence[Member], pairs: Pairs) -> Iterator[Pair]:
    ranked = sorted(members, key=lambda member: -member.reward)
    if pairs == "all":
        yield from (Pair(*two) for two in combinations(ranked, 2) if two[0].reward > two[1].reward)
        return
    worse = [member for member in ranked if member.reward < ranked[0].reward]
    if pairs == "best_worst":
        worse = [member for member in worse if member.reward == worse[-1].reward][:1]
    yield from (Pair(ranked[0], member) for member in worse)


def _skip_reason(member: Member, compared: Container[bytes], *, alone: bool, equal: bool) -> str:
    """Why a member is in no pair. `compared` are the prompts of those that are in one."""
    if alone:
        return "alone in its group"
    if equal:
        return "equal rewards in its group"
    return "neither best nor worst" if member.prompt in compared else "no equal prompt with another reward"
