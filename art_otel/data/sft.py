"""MessageBatches: conversations to fine-tune on, with a flag for each trained message.

Invariant: every completion to train is trained exactly once over the examples of its trajectory. Every trajectory is
used or skipped for one reason; every history of a used one is an example or skipped for one reason; every completion
of a used trajectory that an option leaves out is counted.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import islice
from typing import Annotated, Final, Literal, Unpack

import msgspec

from art_otel.data.choosing import ChosenRollouts, choose_rollouts
from art_otel.data.conversation import MESSAGES, Conversation, conversation
from art_otel.data.filters import narrowed
from art_otel.data.options import validate
from art_otel.data.report import warn_of_nothing
from art_otel.data.rewards import RewardOf, check_reward, reward_of
from art_otel.data.selection import Selection, SelectionKeywords
from art_otel.data.sources import ListedChunks, Sources, list_chunks, read_numbered
from art_otel.spans import Value
from art_otel.trajectories import ChatMessage, GroupKey, Trajectory, histories

REPEATED_TALK: Final = "repeated conversation"


@dataclass(frozen=True, kw_only=True, slots=True)
class MessageExample:
    """One history of a trajectory.

    `messages` are OpenAI chat messages (`role`, `content`, `tool_calls` with arguments as text, `tool_call_id`, `name`,
    `reasoning_content`); `train`, of the same length, says which are trained here. `tools` are OpenAI tool definitions,
    None if unknown. `weight` is 1 / the number of examples of the trajectory, so that trajectories count alike, however
    many branches they have. `reward` is None if there is none. `turns` are positions in `trajectory.turns`.
    """

    messages: tuple[ChatMessage, ...]
    train: tuple[bool, ...]
    tools: tuple[Value, ...] | None
    rollout_id: str
    group_id: str | None
    reward: float | None
    weight: float
    turns: tuple[int, ...]


@dataclass(kw_only=True, slots=True)
class MessageReport:
    """Counts of one iteration, growing while it goes on.

    `trajectories` = `trajectories_used` + the sum of `trajectories_skipped` (by reason; if all histories are skipped,
    by the reason of the first). `unsuccessful` are used trajectories with a reward of 0 or less. In used trajectories
    `histories` = `examples` + the sum of `histories_skipped`. `messages` counts the examples' messages,
    `trained_messages` the trained ones among these. `completions_skipped` counts by reason the completions of used
    trajectories that an option leaves out, e.g. answers that were cut. `repeated` and
    `shared_group_ids` are as in `BatchReport`.
    """

    trajectories: int = 0
    trajectories_used: int = 0
    trajectories_skipped: Counter[str] = field(default_factory=Counter[str])
    unsuccessful: int = 0
    histories: int = 0
    histories_skipped: Counter[str] = field(default_factory=Counter[str])
    examples: int = 0
    messages: int = 0
    trained_messages: int = 0
    completions_skipped: Counter[str] = field(default_factory=Counter[str])
    repeated: int = 0
    shared_group_ids: int = 0


class MessageBatches:
    """Iterates batches of examples in the order of the trajectories; each iteration reads anew.

    `report` counts what the latest iteration gave and skipped.
    """

    def __init__(
        self, listed: ListedChunks, selection: Selection, options: "_ConversationOptions", reward: RewardOf
    ) -> None:
        self.report = MessageReport()
        self._listed = listed
        self._selection = selection
        self._options = options
        self._reward = reward

    def __iter__(self) -> Iterator[tuple[MessageExample, ...]]:
        """Batches of `batch_size` examples; the last may be smaller."""
        examples = self.examples()
        while batch := tuple(islice(examples, self._options.batch_size)):
            yield batch
        warn_of_nothing(self.report, self._selection, self._listed.chunks)

    def examples(self) -> Iterator[MessageExample]:
        """Give the examples one by one."""
        for examples in self.examples_by_trajectory():
            yield from examples

    def examples_by_trajectory(self) -> Iterator[Iterator[MessageExample]]:
        """Give the examples of each trajectory together. Read all of one trajectory before the next one."""
        report = self.report = MessageReport(
            repeated=self._listed.repeated, shared_group_ids=self._listed.shared_group_ids
        )
        chosen = choose_rollouts(self._listed.chunks, self._selection)
        report.trajectories = chosen.trajectories
        report.trajectories_skipped.update(chosen.skipped)
        best = self._best_of_groups(chosen)
        seen = set[bytes]()
        for number, trajectory in read_numbered(self._listed.chunks, MESSAGES, chosen.reasons):
            reasons = chosen.reasons[number]
            conversations = _conversations(trajectory, reasons)
            reason = (
                self._too_low(trajectory)
                or _reason_to_learn_nothing(conversations)
                or _reason_in_group(number, trajectory, best)
            )
            if reason is None and self._options.dedupe:
                conversations = [_unless_seen(talk, seen) for talk in conversations]
                reason = REPEATED_TALK if REPEATED_TALK in conversations and _learns_nothing(conversations) else None
            if reason is None:
                yield self._examples_of(trajectory, reasons, conversations, report)
            else:
                report.trajectories_skipped[reason] += 1

    def _too_low(self, trajectory: Trajectory) -> str | None:
        """Why the trajectory is skipped for its reward; None if it is not."""
        least = self._options.min_reward
        if least is None and not self._options.best_of_group:
            return None
        reward = reward_of(trajectory, self._reward)
        return "no reward" if reward is None else too_low(reward, least)

    def _best_of_groups(self, chosen: ChosenRollouts) -> dict[GroupKey, int] | None:
        """The number of each group's best member with anything to train; the first of equally good ones.

        Memory: one entry per group.
        """
        if not self._options.best_of_group:
            return None
        best: dict[GroupKey, tuple[float, int]] = {}
        for number, trajectory in read_numbered(self._listed.chunks, MESSAGES, chosen.reasons):
            group, reward = trajectory.group_key, reward_of(trajectory, self._reward)
            if group is None or reward is None or self._too_low(trajectory) is not None:
                continue
            if group in best and reward <= best[group][0]:
                continue
            if _reason_to_learn_nothing(_conversations(trajectory, chosen.reasons[number])) is None:
                best[group] = (reward, number)
        return {group: number for group, (_, number) in best.items()}

    def _examples_of(
        self,
        trajectory: Trajectory,
        left_out: Sequence[str | None],
        conversations: Sequence[Conversation | str],
        report: MessageReport,
    ) -> Iterator[MessageExample]:
        talks = [talk for talk in conversations if isinstance(talk, Conversation)]
        reasons = [reason for reason in conversations if isinstance(reason, str)]
        reward = reward_of(trajectory, self._reward)
        report.trajectories_used += 1
        report.unsuccessful += reward is not None and reward <= 0
        report.histories += len(conversations)
        report.histories_skipped.update(reasons)
        report.completions_skipped.update(
            reason
            for turn, reason in zip(trajectory.turns, left_out, strict=True)
            if reason is not None and turn.text_untrained is None
        )
        for talk in talks:
            report.examples += 1
            report.messages += len(talk.messages)
            report.trained_messages += sum(talk.train)
            yield MessageExample(
                messages=talk.chat,
                train=talk.train,
                tools=talk.tools,
                rollout_id=trajectory.rollout_id,
                group_id=trajectory.group_id,
                reward=reward,
                weight=1 / len(talks),
                turns=talk.turns,
            )


def _conversations(trajectory: Trajectory, left_out: Sequence[str | None]) -> list[Conversation | str]:
    """The conversation of each history, or the reason why it has none."""
    return [conversation(trajectory, history, left_out) for history in histories(trajectory)]


def _learns_nothing(conversations: Sequence[Conversation | str]) -> bool:
    return all(isinstance(talk, str) for talk in conversations)


def _unless_seen(talk: Conversation | str, seen: set[bytes]) -> Conversation | str:
    """The conversation, or `REPEATED_TALK` if an equal one came before. `seen` has the digests of all so far."""
    if isinstance(talk, str):
        return talk
    whole = repr((talk.chat, talk.train, talk.tools or None)).encode(errors="surrogatepass")
    digest = blake2b(whole, digest_size=16).digest()
    if digest in seen:
        return REPEATED_TALK
    seen.add(digest)
    return talk


def too_low(reward: float | None, least: float | None) -> Literal["no reward", "reward too low"] | None:
    """Why a trajectory with this reward is skipped if its reward must be at least `least`; None if it is not."""
    if least is None:
        return None
    if reward is None:
        return "no reward"
    return "reward too low" if reward < least else None


class _ConversationOptions(msgspec.Struct, frozen=True, kw_only=True):
    batch_size: Annotated[int, msgspec.Meta(ge=1)]
    min_reward: float | None
    best_of_group: bool
    dedupe: bool

    def __post_init__(self) -> None:
        """Raise ValueError for a NaN or infinite bound, which no reward could be compared with."""
        if self.min_reward is not None and not math.isfinite(self.min_reward):
            raise ValueError(f"min_reward={self.min_reward!r}: give a finite number, or None for any reward")


def message_batches(
    sources: Sources,
    *,
    reward: RewardOf = None,
    min_reward: float | None = None,
    best_of_group: bool = False,
    dedupe: bool = False,
    batch_size: int = 8,
    seed: int = 0,
    **selection: Unpack[SelectionKeywords],
) -> MessageBatches:
    """Iterate over conversations to fine-tune on (SFT), from Parquet or from memory.

        for batch in art_otel.data.message_batches("out", min_reward=1.0, best_of_group=True):
            rows = [{"messages": example.messages, "train": example.train} for example in batch]

    `sources` and the options that select rollouts and completions are as for `art_otel.batches`, with one exception: by
    default an answer that was cut is not trained (`length="mask"`), because a chat template would write
    its end as if the policy had ended it. `reward` says which reward counts: None is the final one; otherwise the name
    of a reward of the whole rollout, or a function of the trajectory without messages. `min_reward` skips trajectories
    with a lower reward. `dedupe` keeps the first of equal conversations (the same messages, tools and flags). `seed`
    orders the tasks if `split` has shares. `best_of_group` keeps only the best trajectory of each group
    (`Trajectory.group_key`) that has something to train, the first of equally good ones, and skips trajectories without
    a group.

    Memory holds one row group, and while it chooses about 600 bytes for each completion. With `best_of_group`, messages
    are read twice, and memory has an entry for each group. Raises StoreError for sources that cannot be read,
    UsageError for invalid options.
    """
    check_reward(reward)
    options = validate(
        _ConversationOptions,
        {"batch_size": batch_size, "min_reward": min_reward, "best_of_group": best_of_group, "dedupe": dedupe},
    )
    sources = list(sources) if isinstance(sources, Iterator) else sources
    selection = narrowed(sources, selection, reward=reward, min_reward=min_reward, seed=seed)
    chosen = Selection(view="text", **selection)
    return MessageBatches(list_chunks(sources), chosen, options, reward)


def _reason_to_learn_nothing(conversations: Sequence[Conversation | str]) -> str | None:
    """The reason of the first history, if no history is a conversation; None if any is."""
    reasons = [reason for reason in conversations if isinstance(reason, str)]
    if len(reasons) < len(conversations):
        return None
    return reasons[0] if reasons else "nothing sampled"


def _reason_in_group(number: int, trajectory: Trajectory, best: Mapping[GroupKey, int] | None) -> str | None:
    if best is None:
        return None
    group = trajectory.group_key
    if group is None:
        return "no group"
    return None if best.get(group) == number else "not the best of its group"
