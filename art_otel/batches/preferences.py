"""PreferenceBatches: pairs of a better and a worse conversation of one group, for DPO and reward models.

Invariant: `prompt + chosen` are the messages of the trajectory `chosen_rollout_id`, whose reward is `chosen_reward`
(of a judged pair that of the judgement), likewise for `rejected`, and the reward of the chosen one is higher. Both
begin with a message the policy sampled.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import islice

from art_otel.batches import checks
from art_otel.batches.chat_message import ChatMessage
from art_otel.batches.chunks import Chunk, Sources, list_chunks
from art_otel.batches.conversation import Conversation, main_conversation
from art_otel.batches.judgements import is_judged, judgements
from art_otel.batches.pairing import PAIRS, Member, Pair, Pairs, pair_up
from art_otel.batches.selection import (
    MESSAGES,
    GroupKey,
    RewardOf,
    Selection,
    Splits,
    Statuses,
    check_reward,
    count_duplicates,
    group_of,
    read_numbered,
    reward_of,
    selection,
)
from art_otel.batches.shelf import Shelf
from art_otel.errors import UsageError
from art_otel.spans import Value
from art_otel.trajectories import HistoryMessage, Trajectory, histories


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

    `trajectories` = `trajectories_used` (in one pair or more) + the sum of `trajectories_left_out` (by reason). `pairs`
    were given; `pairs_left_out` are those whose two conversations say the same. `other_histories` are those of used
    trajectories beside their main conversation, which are in no pair.
    """

    trajectories: int = 0
    trajectories_used: int = 0
    trajectories_left_out: Counter[str] = field(default_factory=Counter[str])
    groups: int = 0
    pairs: int = 0
    pairs_left_out: Counter[str] = field(default_factory=Counter[str])
    other_histories: int = 0


@dataclass(frozen=True, slots=True)
class _Side:
    """What a pair needs of a trajectory."""

    rollout_id: str
    group: GroupKey
    member: Member
    talk: Conversation
    other_histories: int


class PreferenceBatches:
    """Iterates batches of pairs; each iteration reads anew. A pair comes when the second of its two was read.

    `report` counts what the latest iteration gave and left out.
    """

    def __init__(
        self, chunks: Sequence[Chunk], wanted: Selection, *, reward: RewardOf, pairs: Pairs, batch_size: int
    ) -> None:
        self.report = PreferenceReport()
        self._chunks = chunks
        self._wanted = wanted
        self._reward = reward
        self._pairs: Pairs = pairs
        self._batch_size = batch_size

    def __iter__(self) -> Iterator[tuple[PreferencePair, ...]]:
        """Batches of `batch_size` pairs; the last may be smaller."""
        pairs = self.pairs()
        while batch := tuple(islice(pairs, self._batch_size)):
            yield batch

    def pairs(self) -> Iterator[PreferencePair]:
        """The same pairs one by one."""
        left_out = count_duplicates(self._chunks)
        report = self.report = PreferenceReport(trajectories=left_out.total(), trajectories_left_out=left_out)
        plan = self._plan(report)
        with Shelf[_Side]() as shelf:
            for number, trajectory in read_numbered(self._chunks, MESSAGES, plan):
                shelf[number] = side = self._planned(number, trajectory, plan)
                report.other_histories += side.other_histories
                for two in plan[number]:
                    if all(member.number in shelf for member in two):
                        chosen, rejected = (side if one.number == number else shelf[one.number] for one in two)
                        yield from _counted(_compare(chosen, rejected, two), report)

    def _plan(self, report: PreferenceReport) -> Mapping[int, list[Pair]]:
        """The pairs that each trajectory is in, by its number."""
        groups: dict[GroupKey, list[Member]] = {}
        for number, trajectory in read_numbered(self._chunks, MESSAGES):
            report.trajectories += 1
            side = self._side(number, trajectory)
            if isinstance(side, str):
                report.trajectories_left_out[side] += 1
            else:
                groups.setdefault(side.group, []).append(side.member)
        plan: dict[int, list[Pair]] = {}
        for members in groups.values():
            pairing = pair_up(members, self._pairs)
            report.trajectories_left_out.update(pairing.left_out)
            for pair in pairing.pairs:
                for member in pair:
                    plan.setdefault(member.number, []).append(pair)
        report.groups, report.trajectories_used = len(groups), len(plan)
        return plan

    def _side(self, number: int, trajectory: Trajectory) -> _Side | str:
        """What a pair needs of the trajectory, or why it is in none."""
        reason = self._wanted.reason_against(trajectory)
        if reason is not None:
            return reason
        group = group_of(trajectory)
        if group is None:
            return "no group"
        reward = reward_of(trajectory, self._reward)
        if reward is None and not is_judged(trajectory):
            return "no reward"
        talk = main_conversation(trajectory)
        if isinstance(talk, str):
            return talk
        judged = judgements(trajectory, talk, self._reward)
        if judged:
            reward = judged[-1].reward
        if reward is None:
            return "no reward"
        member = Member(number, reward, _digest(talk), judged)
        return _Side(trajectory.rollout_id, group, member, talk, len(histories(trajectory)) - 1)

    def _planned(self, number: int, trajectory: Trajectory, plan: Mapping[int, list[Pair]]) -> _Side:
        side = self._side(number, trajectory)
        if isinstance(side, str) or side.member.known not in {member.known for member in plan[number][0]}:
            raise UsageError(f"reward: of rollout {trajectory.rollout_id!r} it is another one at the second reading")
        return side


def preference_batches(
    sources: Sources,
    *,
    complete_only: bool = True,
    splits: Splits = None,
    statuses: Statuses = ("ok",),
    reward: RewardOf = None,
    pairs: Pairs = "best_worst",
    batch_size: int = 8,
) -> PreferenceBatches:
    """Preference pairs within groups, from Parquet or from memory.

    `sources` are paths (file, folder, glob), trajectories or groups of them. `reward` says which reward counts: None
    is the final one, else the name of one of the whole rollout, or a function of the trajectory without its tokens.
    Compared are the main conversations (those of most turns) of trajectories of one `group_id` (in one training step,
    where they have one) that had the same prompt (what stands before the first sampled message) and the same tools but
    other rewards: by `pairs` the best with the worst (`best_worst`), the best with each worse one (`best_each`), or
    each with each worse one (`all`). Ties and missing rewards are in no pair. Where `prefer` gave the reward, the pairs
    are those that were judged, whatever `pairs` says; a judgement of two calls is one of their rollouts if the
    conversations that are compared end with them.

    A dataset is in the order of rollout ids, so a group lies anywhere in it. It is read twice: once for the rewards and
    a digest of each prompt, then only what is in a pair. Memory is that of one row group, some 300 bytes for each
    trajectory with a group and a reward, 200 for each judgement and 100 for each pair; a conversation that waits for
    its partner waits on disk. Raises StoreError for what cannot be read, UsageError for impossible options.
    """
    batch_size = checks.whole("batch_size", batch_size, 1)
    check_reward(reward)
    checks.one_of("pairs", pairs, PAIRS)
    wanted = selection(complete_only=complete_only, splits=splits, statuses=statuses)
    return PreferenceBatches(list_chunks(sources), wanted, reward=reward, pairs=pairs, batch_size=batch_size)


def _counted(pair: PreferencePair | None, report: PreferenceReport) -> Iterator[PreferencePair]:
    if pair is None:
        report.pairs_left_out["same messages"] += 1
    else:
        report.pairs += 1
        yield pair


def _compare(chosen: _Side, rejected: _Side, pair: Pair) -> PreferencePair | None:
    """The pair; None when both say the same."""
    start = _where_they_part(chosen.talk, rejected.talk)
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
        group_id=chosen.group[1],
        chosen_rollout_id=chosen.rollout_id,
        rejected_rollout_id=rejected.rollout_id,
        chosen_reward=pair.chosen.reward,
        rejected_reward=pair.rejected.reward,
    )


def _where_they_part(one: Conversation, other: Conversation) -> int | None:
    """The position of the last message up to which they are alike that both sampled; None when they are alike.

    Where they part at a message that was given (a tool answered otherwise), what was sampled before it is compared too,
    because a pair's prompt is one and the same.
    """
    start: int | None = None
    for position, (mine, theirs) in enumerate(zip(one.messages, other.messages, strict=False)):
        if mine.turn is not None and theirs.turn is not None:
            start = position
        if _key(mine) != _key(theirs):
            return start
    return start if len(one.messages) != len(other.messages) else None


def _key(entry: HistoryMessage) -> tuple[object, ...]:
    """What is equal for equal messages; what was sampled differs by its reasoning too."""
    sampled = entry.turn is not None
    return (sampled, *entry.message.identity, entry.message.reasoning if sampled else None)


def _digest(talk: Conversation) -> bytes:
    """Equal for equal prompts and tools."""
    prompt = [_key(entry) for entry in talk.messages[: talk.first_sampled]]
    tools = json.dumps(talk.tools, sort_keys=True, default=repr)
    return blake2b(repr((prompt, tools)).encode(), digest_size=16).digest()
