"""Preferences: pairs of a better and a worse conversation of one group, for DPO and reward models.

    prompt      user: Two and two?
    chosen      assistant: 4             reward 1.0
    rejected    assistant: 5             reward 0.0

Invariant: `prompt + chosen` are the messages of the trajectory `chosen_rollout_id`, whose reward is `chosen_reward`;
likewise for `rejected`, and the chosen reward is higher. Both had the same prompt and tools, and begin with a message
that the policy sampled. Each trajectory is in a pair, or has one reason why it is not.

To bound the memory, pairs are planned with rewards and digests of prompts only. Then the trajectories that are in a
pair are read; the first one of a pair waits on disk for the second.
"""

import json
import pickle
from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import combinations, islice
from tempfile import SpooledTemporaryFile
from types import TracebackType
from typing import Annotated, Final, Generic, Literal, NamedTuple, Self, TypeAlias, TypeVar, Unpack

import msgspec

from art_otel.data.choosing import ChosenRollouts, choose_rollouts
from art_otel.data.conversation import MESSAGES, Conversation, main_conversation
from art_otel.data.filters import narrowed
from art_otel.data.options import validate
from art_otel.data.report import warn_of_nothing
from art_otel.data.rewards import RewardOf, check_reward, reward_of
from art_otel.data.selection import Selection, SelectionKeywords
from art_otel.data.sources import ListedChunks, Sources, list_chunks, read_numbered
from art_otel.spans import Value
from art_otel.trajectories import ChatMessage, GroupKey, HistoryMessage, Trajectory, histories

Pairs: TypeAlias = Literal["best_worst", "best_each", "all"]
"""The best with the worst of a group; the best with each worse one; each with each worse one."""

_IN_MEMORY: Final = 16 * 2**20
_T = TypeVar("_T")


@dataclass(frozen=True, kw_only=True, slots=True)
class PreferencePair:
    """Two conversations of one group that begin alike.

    `prompt`, `chosen` and `rejected` are OpenAI chat messages; the prompt ends before the first sampled message that
    differs. `chosen_train` and `rejected_train` say which messages of these the policy sampled and may be trained.
    `tools` are OpenAI tool definitions, the same for both, None when unknown.
    """

    prompt: tuple[ChatMessage, ...]
    chosen: tuple[ChatMessage, ...]
    rejected: tuple[ChatMessage, ...]
    chosen_train: tuple[bool, ...]
    rejected_train: tuple[bool, ...]
    tools: tuple[Value, ...] | None
    group_id: str
    chosen_rollout_id: str
    rejected_rollout_id: str
    chosen_reward: float
    rejected_reward: float


@dataclass(kw_only=True, slots=True)
class PreferenceReport:
    """Counts of one iteration; trajectories are counted before the first pair, pairs while it goes on.

    `trajectories` = `trajectories_used` (in one pair or more) + the sum of `trajectories_skipped` (by reason). `pairs`
    were given; `pairs_skipped` were not, e.g. because both conversations are equal. `other_histories` counts histories
    of used trajectories that are not their main conversation, so in no pair. `repeated` and `shared_group_ids` are as
    in `BatchReport`.
    """

    trajectories: int = 0
    trajectories_used: int = 0
    trajectories_skipped: Counter[str] = field(default_factory=Counter[str])
    groups: int = 0
    pairs: int = 0
    pairs_skipped: Counter[str] = field(default_factory=Counter[str])
    other_histories: int = 0
    repeated: int = 0
    shared_group_ids: int = 0


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
    """The pairs of a group, and the number of members that are in no pair, by reason."""

    pairs: tuple[Pair, ...]
    skipped: Counter[str]


@dataclass(frozen=True, slots=True)
class _Side:
    """The parts of a trajectory that a pair needs, besides the reward."""

    rollout_id: str
    talk: Conversation


class PreferenceBatches:
    """Iterates over batches of pairs. Each iteration reads anew; a pair comes when its second trajectory is read.

    `report` counts what the latest iteration gave and skipped.
    """

    def __init__(self, listed: ListedChunks, selection: Selection, options: "_PairOptions", reward: RewardOf) -> None:
        self.report = PreferenceReport()
        self._listed = listed
        self._selection = selection
        self._options = options
        self._reward = reward

    def __iter__(self) -> Iterator[tuple[PreferencePair, ...]]:
        """Batches of `batch_size` pairs; the last may be smaller."""
        pairs = self.pairs()
        while batch := tuple(islice(pairs, self._options.batch_size)):
            yield batch
        warn_of_nothing(self.report, self._selection, self._listed.chunks)

    def pairs(self) -> Iterator[PreferencePair]:
        """Give the pairs one by one."""
        report = self.report = PreferenceReport(
            repeated=self._listed.repeated, shared_group_ids=self._listed.shared_group_ids
        )
        chosen = choose_rollouts(self._listed.chunks, self._selection)
        plan = self._plan(report, chosen)
        seen = set[bytes]() if self._options.dedupe else None
        with SpillFile[_Side]() as spilled:
            for number, trajectory in read_numbered(self._listed.chunks, MESSAGES, plan):
                talk = main_conversation(trajectory, chosen.reasons[number])
                if isinstance(talk, str):  # already counted when the pairs were planned
                    continue
                spilled[number] = side = _Side(trajectory.rollout_id, talk)
                report.other_histories += len(histories(trajectory)) - 1
                for two in plan[number]:
                    if all(member.number in spilled for member in two):
                        better, worse = (side if one.number == number else spilled[one.number] for one in two)
                        yield from _counted(_compare(better, worse, two), report, seen)

    def _plan(self, report: PreferenceReport, chosen: ChosenRollouts) -> Mapping[int, list[Pair]]:
        """The pairs that each trajectory is in, by its number."""
        report.trajectories = chosen.trajectories
        report.trajectories_skipped.update(chosen.skipped)
        groups: dict[GroupKey, list[Member]] = {}
        for number, trajectory in read_numbered(self._listed.chunks, MESSAGES, chosen.reasons):
            member = self._member(number, trajectory, chosen.reasons[number])
            if isinstance(member, str):
                report.trajectories_skipped[member] += 1
            else:
                groups.setdefault(member.group, []).append(member)
        plan: dict[int, list[Pair]] = {}
        for members in groups.values():
            pairing = pair_up(members, self._options.pairs)
            report.trajectories_skipped.update(pairing.skipped)
            for pair in pairing.pairs:
                for member in pair:
                    plan.setdefault(member.number, []).append(pair)
        report.groups, report.trajectories_used = len(groups), len(plan)
        return plan

    def _member(self, number: int, trajectory: Trajectory, left_out: Sequence[str | None]) -> Member | str:
        """The trajectory as a member of its group, or the reason why it is in no pair."""
        group = trajectory.group_key
        if group is None:
            return "no group"
        reward = reward_of(trajectory, self._reward)
        if reward is None:
            return "no reward"
        talk = main_conversation(trajectory, left_out)
        return talk if isinstance(talk, str) else Member(number, group, reward, _digest(talk))


class _PairOptions(msgspec.Struct, frozen=True, kw_only=True):
    batch_size: Annotated[int, msgspec.Meta(ge=1)]
    pairs: Pairs
    dedupe: bool


def preference_batches(
    sources: Sources,
    *,
    reward: RewardOf = None,
    pairs: Pairs = "best_worst",
    dedupe: bool = False,
    batch_size: int = 8,
    seed: int = 0,
    **selection: Unpack[SelectionKeywords],
) -> PreferenceBatches:
    """Iterate over preference pairs within groups, from Parquet or from memory.

    `sources` and the options that select rollouts and completions are as for `art_otel.data.message_batches`.
    `reward` says which reward counts: None is the final one; otherwise the name of a reward of the whole rollout, or a
    function of the trajectory without its tokens. `dedupe` keeps the first of equal pairs. `seed` orders the tasks that
    shares as `split` divide.

    Trajectories are compared by their main conversation, the one with the most turns. Two are compared if they are
    members of one `Trajectory.group_key` and have the same prompt (all before the first sampled message), the same
    tools, and different rewards. `pairs` chooses the pairs: the best with the worst (`best_worst`), the best with each
    worse one (`best_each`), or each with each worse one (`all`). Equal rewards and missing rewards are in no pair.

    A dataset is in the order of rollout ids, so a group may be anywhere in it. It is read twice: once for the rewards
    and a digest of each prompt, and then only what is in a pair. Memory holds one row group, about 300 bytes for each
    trajectory with a group and a reward, and 100 for each pair. A conversation that waits for its partner is on disk.
    Raises StoreError for sources that cannot be read, UsageError for invalid options.
    """
    check_reward(reward)
    options = validate(_PairOptions, {"batch_size": batch_size, "pairs": pairs, "dedupe": dedupe})
    sources = list(sources) if isinstance(sources, Iterator) else sources
    selection = narrowed(sources, selection, seed=seed)
    chosen = Selection(view="text", **selection)
    return PreferenceBatches(list_chunks(sources), chosen, options, reward)


def pair_up(members: Sequence[Member], pairs: Pairs) -> Pairing:
    """Pair the members of one group. Among equal rewards the first member counts."""
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
        # `ranked` is a stable sort, so of equally bad members the first one of the dataset is taken.
        worse = [member for member in worse if member.reward == worse[-1].reward][:1]
    yield from (Pair(ranked[0], member) for member in worse)


def _skip_reason(member: Member, compared: Container[bytes], *, alone: bool, equal: bool) -> str:
    """Why a member is in no pair. `compared` are the prompts of the members that are in one."""
    if alone:
        return "alone in its group"
    if equal:
        return "equal rewards in its group"
    return "neither best nor worst" if member.prompt in compared else "no equal prompt with another reward"


def _counted(
    pair: PreferencePair | None, report: PreferenceReport, seen: set[bytes] | None
) -> Iterator[PreferencePair]:
    """Give the pair, or count why not. With `dedupe`, `seen` has the digests of the pairs that were given before."""
    digest = b""
    if pair is not None and seen is not None:
        whole = repr((pair.prompt, pair.chosen, pair.rejected, pair.tools or None))
        digest = blake2b(whole.encode(errors="surrogatepass"), digest_size=16).digest()
    if pair is None:
        report.pairs_skipped["same messages"] += 1
    elif seen is not None and digest in seen:
        report.pairs_skipped["repeated pair"] += 1
    else:
        if seen is not None:
            seen.add(digest)
        report.pairs += 1
        yield pair


def _compare(chosen: _Side, rejected: _Side, pair: Pair) -> PreferencePair | None:
    """Make the pair of two conversations; None if they are equal."""
    start = _parting(chosen.talk, rejected.talk)
    if start is None:
        return None
    chosen_chat, rejected_chat = chosen.talk.chat, rejected.talk.chat
    return PreferencePair(
        prompt=chosen_chat[:start],
        chosen=chosen_chat[start:],
        rejected=rejected_chat[start:],
        chosen_train=chosen.talk.train[start:],
        rejected_train=rejected.talk.train[start:],
        tools=chosen.talk.tools,
        group_id=pair.chosen.group.group_id,
        chosen_rollout_id=chosen.rollout_id,
        rejected_rollout_id=rejected.rollout_id,
        chosen_reward=pair.chosen.reward,
        rejected_reward=pair.rejected.reward,
    )


def _parting(one: Conversation, other: Conversation) -> int | None:
    """The position where the compared parts of two conversations begin; None if the conversations are equal.

        prompt   assistant: calls look   tool: 3   assistant: "3"
        prompt   assistant: calls look   tool: 4   assistant: "4"
                 ^ begins here, at the last message before the difference that both sampled

    A pair has one prompt for both, so a given message (the tool's) that differs cannot be in the prompt.
    """
    start: int | None = None
    for position, (mine, theirs) in enumerate(zip(one.messages, other.messages, strict=False)):
        if mine.turn is not None and theirs.turn is not None:
            start = position
        if _key(mine) != _key(theirs):
            return start
    return start if len(one.messages) != len(other.messages) else None


def _key(entry: HistoryMessage) -> tuple[object, ...]:
    """A key that equal messages share. In sampled messages the reasoning counts, too."""
    sampled = entry.turn is not None
    return (sampled, *entry.message.identity, entry.message.reasoning if sampled else None)


def _digest(talk: Conversation) -> bytes:
    """A digest of the prompt and the tools."""
    prompt = [_key(entry) for entry in talk.messages[: talk.first_sampled]]
    tools = json.dumps(talk.tools, sort_keys=True, default=repr)
    return blake2b(repr((prompt, tools)).encode(), digest_size=16).digest()


class SpillFile(Generic[_T]):
    """Values by number in a temporary file without a name; memory has their positions and at most `_IN_MEMORY` bytes.

        with SpillFile[list[int]]() as spilled:
            spilled[7] = [1, 2]
            spilled[7]      # [1, 2]

    Raises OSError if the file cannot be written.
    """

    def __init__(self) -> None:
        self._file = SpooledTemporaryFile(_IN_MEMORY)  # noqa: SIM115 # __exit__ closes it
        self._starts: dict[int, int] = {}

    def __enter__(self) -> Self:
        """The file itself."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Remove the file."""
        self._file.close()

    def __contains__(self, number: int) -> bool:
        return number in self._starts

    def __setitem__(self, number: int, value: _T) -> None:
        self._starts[number] = self._file.seek(0, 2)
        pickle.dump(value, self._file, pickle.HIGHEST_PROTOCOL)

    def __getitem__(self, number: int) -> _T:
        self._file.seek(self._starts[number])
        return pickle.load(self._file)  # noqa: S301 # what this object wrote to a file without a name
