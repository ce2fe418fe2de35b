"""MessageBatches: conversations to fine-tune on, with a flag for each message that says whether it is trained.

Invariant: over the examples of a trajectory every completion to train is trained exactly once. Every trajectory read is
used or left out for one reason, every history is an example or left out for one.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

from art_otel.batches import checks
from art_otel.batches.chat_message import ChatMessage
from art_otel.batches.chunks import Chunk, Sources, list_chunks
from art_otel.batches.conversation import Conversation, conversation
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
from art_otel.errors import UsageError
from art_otel.spans import Value
from art_otel.trajectories import Trajectory, histories


@dataclass(frozen=True, kw_only=True, slots=True)
class MessageExample:
    """One history of a trajectory.

    `messages` are OpenAI chat messages (`role`, `content`, `tool_calls` with arguments as text, `tool_call_id`, `name`,
    `reasoning_content`); `train`, of the same length, says which are learnt here. `tools` are OpenAI tool definitions,
    None when unknown. `weight` is 1 / the number of examples of the trajectory, so that one of many branches counts as
    much as any other; `reward` is None when nobody gave one. `turns` are positions in the trajectory.
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
    """Counts of one iteration, growing while it goes on; duplicates are counted before the first example.

    `trajectories` = `trajectories_used` + the sum of `trajectories_left_out` (by reason; of one whose histories are all
    left out that of the first). Of those used, `histories` = `examples` + the sum of `histories_left_out`. `messages`
    are those of the examples, `trained_messages` the ones with a flag.
    """

    trajectories: int = 0
    trajectories_used: int = 0
    trajectories_left_out: Counter[str] = field(default_factory=Counter[str])
    histories: int = 0
    histories_left_out: Counter[str] = field(default_factory=Counter[str])
    examples: int = 0
    messages: int = 0
    trained_messages: int = 0


class MessageBatches:
    """Iterates batches of examples in the order of the trajectories; each iteration reads anew.

    `report` counts what the latest iteration gave and left out.
    """

    def __init__(self, chunks: Sequence[Chunk], choice: "_Choice", batch_size: int) -> None:
        self.report = MessageReport()
        self._chunks = chunks
        self._choice = choice
        self._batch_size = batch_size

    def __iter__(self) -> Iterator[tuple[MessageExample, ...]]:
        """Batches of `batch_size` examples; the last may be smaller."""
        examples = self.examples()
        while batch := tuple(islice(examples, self._batch_size)):
            yield batch

    def examples(self) -> Iterator[MessageExample]:
        """The same examples one by one."""
        left_out = count_duplicates(self._chunks)
        report = self.report = MessageReport(trajectories=left_out.total(), trajectories_left_out=left_out)
        best = self._best_of_groups()
        for number, trajectory in read_numbered(self._chunks, MESSAGES):
            report.trajectories += 1
            found = _conversations(trajectory)
            reason = (
                self._choice.reason_against(trajectory)
                or _reason_to_learn_nothing(found)
                or _reason_in_group(number, trajectory, best)
            )
            if reason is None:
                yield from self._examples_of(trajectory, found, report)
            else:
                report.trajectories_left_out[reason] += 1

    def _best_of_groups(self) -> dict[GroupKey, int] | None:
        """The number of each group's best member from which something is learnt, the first of equally good ones.

        Memory: an entry a group.
        """
        if not self._choice.best_of_group:
            return None
        best: dict[GroupKey, tuple[float, int]] = {}
        for number, trajectory in read_numbered(self._chunks, MESSAGES):
            group, reward = group_of(trajectory), reward_of(trajectory, self._choice.reward)
            if group is None or reward is None or self._choice.reason_against(trajectory) is not None:
                continue
            if group in best and reward <= best[group][0]:
                continue
            if _reason_to_learn_nothing(_conversations(trajectory)) is None:
                best[group] = (reward, number)
        return {group: number for group, (_, number) in best.items()}

    def _examples_of(
        self, trajectory: Trajectory, found: Sequence[Conversation | str], report: MessageReport
    ) -> Iterator[MessageExample]:
        talks = [talk for talk in found if isinstance(talk, Conversation)]
        reasons = [reason for reason in found if isinstance(reason, str)]
        report.trajectories_used += 1
        report.histories += len(found)
        report.histories_left_out.update(reasons)
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
                reward=reward_of(trajectory, self._choice.reward),
                weight=1 / len(talks),
                turns=talk.turns,
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Choice:
    """What the caller wants."""

    wanted: Selection
    reward: RewardOf
    min_reward: float | None
    best_of_group: bool

    def reason_against(self, trajectory: Trajectory) -> str | None:
        """Why the trajectory is left out whatever its group; None when it is not."""
        reason = self.wanted.reason_against(trajectory)
        if reason is not None or (self.min_reward is None and not self.best_of_group):
            return reason
        reward = reward_of(trajectory, self.reward)
        if reward is None:
            return "no reward"
        return "reward too low" if self.min_reward is not None and reward < self.min_reward else None


def message_batches(
    sources: Sources,
    *,
    complete_only: bool = True,
    splits: Splits = None,
    statuses: Statuses = ("ok",),
    reward: RewardOf = None,
    min_reward: float | None = None,
    best_of_group: bool = False,
    batch_size: int = 8,
) -> MessageBatches:
    """Conversations to fine-tune on (SFT), from Parquet or from memory.

    `sources` are paths (file, folder, glob), trajectories or groups of them. `reward` says which reward counts: None
    is the final one, else the name of one of the whole rollout, or a function of the trajectory without messages.
    `min_reward` leaves out what has less; `best_of_group` all but the best of each group (of those from which something
    is learnt, and the first of equally good ones; a trajectory without a group is left out). A group is one `group_id`
    in one training step, where they have one.

    Memory is that of one row group, and with `best_of_group`, which reads everything twice, of one number a group.
    Raises StoreError for what cannot be read, UsageError for impossible options.
    """
    batch_size = checks.whole("batch_size", batch_size, 1)
    check_reward(reward)
    if min_reward is not None and not checks.is_finite(min_reward):
        raise UsageError(f"min_reward={min_reward!r:.200}: needs to be a finite number, or None for any reward")
    checks.one_of("best_of_group", best_of_group, (True, False))
    choice = _Choice(
        wanted=selection(complete_only=complete_only, splits=splits, statuses=statuses),
        reward=reward,
        min_reward=min_reward,
        best_of_group=best_of_group,
    )
    return MessageBatches(list_chunks(sources), choice, batch_size)


def _conversations(trajectory: Trajectory) -> list[Conversation | str]:
    """That of each history, or why it is none."""
    return [conversation(trajectory, history) for history in histories(trajectory)]


def _reason_to_learn_nothing(found: Sequence[Conversation | str]) -> str | None:
    """Why no history is a conversation, that of the first; None where one is."""
    reasons = [one for one in found if isinstance(one, str)]
    if len(reasons) < len(found):
        return None
    return reasons[0] if reasons else "nothing sampled"


def _reason_in_group(number: int, trajectory: Trajectory, best: Mapping[GroupKey, int] | None) -> str | None:
    if best is None:
        return None
    group = group_of(trajectory)
    if group is None:
        return "no group"
    return None if best.get(group) == number else "not the best of its group"
