"""Streams: the items that an encoder gets from the data package, and counts of trajectories without a record.

Invariant: every stream uses the same selection of trajectories, and counts what it skips. A trajectory is used if it
has an item with a record; if the encoder left out all of its items, it is left out for their most common reason.
"""

import logging
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields
from typing import Any, Final, NamedTuple, Protocol, Unpack

from art_otel.calls import CallRecord
from art_otel.data.batches import batches
from art_otel.data.credit import Credit, find_credit, outcome_reward, reward_function
from art_otel.data.loader import Batches
from art_otel.data.preferences import PreferenceBatches, preference_batches
from art_otel.data.rewards import RewardOf, check_reward, reward_of
from art_otel.data.selection import OUTLINE, SelectionKeywords
from art_otel.data.sequences import TokenSequence
from art_otel.data.sft import REPEATED_TALK, MessageBatches, message_batches, too_low
from art_otel.data.sources import Sources
from art_otel.errors import UsageError
from art_otel.exporting.exporter import ExportStats, Format, NotCarried, ScoredTrajectory
from art_otel.trajectories import Trajectory

logger = logging.getLogger(__name__)

DEFAULT: Final = "default"
REPEATED: Final = "recordings: an earlier source has them too"
SHARED_GROUP_IDS: Final = "group ids of several runs, told apart by the number of their source"

_NO_ADVANTAGES: Final = {
    "advantages": NotCarried(trajectories=None, why="asked for, but the format has no place for them")
}


class _RewardedItem(Protocol):
    """An item of a trajectory: a token sequence, or a conversation."""

    @property
    def reward(self) -> float | None:
        """The reward that the item is trained with; None if it is unknown."""
        ...


class SkipCounts(NamedTuple):
    """Counts by reason."""

    trajectories: Counter[str]
    parts: Counter[str]


class Stream:
    """Items for an encoder. The counts are final when all items were read."""

    def __init__(
        self,
        file_format: Format,
        advantage: object,
        outlines: Batches,
        source: Batches | MessageBatches | PreferenceBatches,
        min_reward: float | None = None,
        *,
        reward: RewardOf = None,
        dedupe: bool = False,
    ) -> None:
        self._reward = reward
        self._dedupe = dedupe
        self._repeated = Counter[str]()
        self._format = file_format
        self._advantage = advantage
        self._outlines = outlines
        self._source = source
        self._min_reward = min_reward
        self._unsuccessful = 0
        self._too_low = Counter[str]()

    def records(self, settings: object, stats: ExportStats) -> Iterator[Any]:
        """Encode the items with the format's encoder and these settings."""
        source, encode = self._source, self._format.encode
        if isinstance(source, MessageBatches):
            return self._watched(source.examples_by_trajectory(), settings, stats)
        if isinstance(source, PreferenceBatches):
            return encode(source.pairs(), settings, stats)
        if self._format.input == "sequences":
            return self._watched(self._rewarded_enough(source), settings, stats)
        scored = (ScoredTrajectory(trajectory=one, turn_rewards=rewards) for one, rewards in source.trajectories())
        return encode(scored, settings, stats)

    def trajectories(self) -> int:
        """How many trajectories were read."""
        return self._source.report.trajectories

    def used(self) -> int:
        """How many trajectories are in the export."""
        return self._source.report.trajectories_used - self._too_low.total()

    def unsuccessful(self) -> int:
        """How many imitated trajectories have a reward of 0 or less."""
        return self._unsuccessful if self._format.is_imitated else 0

    def skipped(self) -> SkipCounts:
        """Counts of what is not in the export, by reason."""
        source = self._source
        if isinstance(source, MessageBatches):
            parts = named("histories", source.report.histories_skipped)
            parts += named("completions", source.report.completions_skipped)
        elif isinstance(source, PreferenceBatches):
            parts = named("pairs", source.report.pairs_skipped)
            parts["histories: not the main one of their trajectory"] = source.report.other_histories
        else:
            parts = named("sequences", source.report.sequences_skipped)
            parts += named("completions", source.report.completions_skipped) + self._repeated
        parts[REPEATED] = source.report.repeated
        return SkipCounts(source.report.trajectories_skipped + self._too_low, parts)

    def changed(self) -> Counter[str]:
        """Counts of what became of group ids."""
        return Counter({SHARED_GROUP_IDS: self._source.report.shared_group_ids})

    def not_carried(self) -> dict[str, NotCarried]:
        """Fields that the format cannot contain, with the number of selected trajectories that have them."""
        declared = self._format.not_carried
        counts = {name: 0 for name in declared if name in _KNOWN}
        if counts:
            for trajectory, _ in self._outlines.trajectories(OUTLINE):
                if too_low(reward_of(trajectory, self._reward), self._min_reward) is not None:
                    continue
                for name in counts:
                    counts[name] += _has(trajectory, name)
        fields_of = {name: NotCarried(trajectories=counts.get(name), why=why) for name, why in declared.items()}
        return fields_of | ({} if self._format.advantage or self._advantage in (DEFAULT, None) else _NO_ADVANTAGES)

    def other_rewards(self) -> tuple[str, ...]:
        """The names of the existing rewards, if no selected trajectory has the reward that counts."""
        source = self._source
        if isinstance(source, Batches):
            is_missing = not source.plan().is_rewarded
        else:
            is_missing = not self.used() and "no reward" in source.report.trajectories_skipped
        return tuple(self._outlines.names_given()) if is_missing else ()

    def _rewarded_enough(self, source: Batches) -> Iterator[list[TokenSequence]]:
        """The sequences of each trajectory, without those whose reward is below `min_reward`."""
        self._too_low, self._repeated, seen = Counter[str](), Counter[str](), set[tuple[bytes, bytes]]()
        for sequences in source.sequences_by_trajectory():
            # `min_reward` is only allowed with credits that give all sequences of a trajectory one reward.
            reason = too_low(sequences[0].reward, self._min_reward) if sequences else None
            if reason is None and self._dedupe and sequences:
                keys = {(one.input_ids.tobytes(), one.loss_mask.tobytes()): one for one in reversed(sequences)}
                kept = [one for key, one in reversed(keys.items()) if key not in seen]
                seen.update(keys)
                if kept:
                    self._repeated["sequences: repeated"] += len(sequences) - len(kept)
                reason, sequences = (None, kept) if kept else (REPEATED_TALK, [])  # noqa: PLW2901 # without copies
            if reason is None:
                yield sequences
            else:
                self._too_low[reason] += 1

    def _watched(
        self, of_trajectories: Iterator[Iterable[_RewardedItem]], settings: object, stats: ExportStats
    ) -> Iterator[Any]:
        """Pass the records on, and count each trajectory: as left out, or as unsuccessful if its rewards are low.

        An encoder gives the records of an item, or counts the reason for none, before it takes the next item. So when
        it takes the next item, it is known whether the previous one was left out.
        """
        self._unsuccessful = records = 0

        def items() -> Iterator[_RewardedItem]:
            for of_one in of_trajectories:
                before, is_used, rewards = stats.skipped.copy(), False, list[float]()
                for item in of_one:
                    progress = records, stats.skipped.total()
                    yield item
                    is_used |= records > progress[0] or stats.skipped.total() == progress[1]
                    rewards += [] if item.reward is None else [item.reward]
                if not is_used and (reasons := stats.skipped - before):
                    stats.trajectories_skipped[min(reasons, key=lambda reason: (-reasons[reason], reason))] += 1
                else:
                    self._unsuccessful += bool(rewards) and max(rewards) <= 0

        for record in self._format.encode(items(), settings, stats):
            records += 1
            yield record


def open_stream(  # every one is an option that users know by its name
    sources: Sources,
    file_format: Format,
    *,
    advantage: Any,  # noqa: ANN401 # checked by batches()
    credit: Any = "outcome_reward",  # noqa: ANN401 # as above
    reward: RewardOf = None,
    max_tokens: int | None = None,
    min_reward: float | None = None,
    dedupe: bool = False,
    **selection: Unpack[SelectionKeywords],
) -> Stream:
    """Open the stream of the format. Sources and options are read more than once, so they must not be iterators.

    Raises StoreError if a source cannot be read, UsageError for options that the format does not support.
    """
    check_reward(reward)
    if reward is not None and find_credit(credit).name != "outcome_reward":
        raise UsageError(f"reward={reward!r:.100} with a credit: both say which reward is trained; leave one out")
    _check(file_format, find_credit(credit), max_tokens, min_reward)
    if dedupe and not file_format.is_imitated and file_format.input != "preferences":
        raise UsageError(
            f"dedupe=True: {file_format.name} is trained with rewards, so equal answers count; leave it out, or "
            "choose a format whose trainer imitates answers, such as sft"
        )
    if file_format.input == "preferences":
        pairs = preference_batches(sources, reward=reward, dedupe=dedupe, **selection)
        return Stream(file_format, advantage, batches(sources, advantage=None, **selection).of_view("text"), pairs)
    if file_format.input == "conversations":
        talks = message_batches(sources, reward=reward, min_reward=min_reward, dedupe=dedupe, **selection)
        return Stream(
            file_format,
            advantage,
            batches(sources, advantage=None, **selection).of_view("text"),
            talks,
            min_reward,
            reward=reward,
        )
    if reward is not None:
        if not file_format.takes_credit:
            raise UsageError(
                f"reward={reward!r:.100}: {file_format.name} writes all rewards as they were given, so the option has "
                "no effect; leave it out"
            )
        credit = outcome_reward(reward) if isinstance(reward, str) else reward_function(reward)
    if file_format.carries_images:
        selection["images"] = "placeholders"
    of_tokens: dict[str, Any] = {"credit": credit, "max_tokens": max_tokens}
    outlines = batches(sources, advantage=None, **of_tokens, **selection).of_view(file_format.view)
    formula = file_format.advantage if file_format.advantage is None or advantage == DEFAULT else advantage
    scored = batches(sources, advantage=formula, **of_tokens, **selection).of_view(file_format.view)
    return Stream(file_format, advantage, outlines, scored, min_reward, reward=reward, dedupe=dedupe)


def _check(file_format: Format, credit: Credit, max_tokens: int | None, min_reward: float | None) -> None:
    """Raise UsageError for an option that the format does not support."""
    if max_tokens is not None and file_format.input != "sequences":
        raise UsageError(
            f"max_tokens={max_tokens}: {file_format.name} holds {file_format.input}, which are not cut by tokens"
        )
    if min_reward is not None and not file_format.is_imitated:
        raise UsageError(
            f"min_reward={min_reward}: {file_format.name} is trained with rewards, including low ones; leave it out, "
            "or choose a format whose trainer imitates answers, such as sft"
        )
    if min_reward is not None and not math.isfinite(min_reward):
        raise UsageError(f"min_reward={min_reward}: give a finite number, or none for any reward")
    if min_reward is not None and credit.per != "rollout":
        raise UsageError(
            f"min_reward={min_reward}: compares rewards of whole rollouts, but this credit gives one to each "
            f"{credit.per}; use one such as outcome_reward"
        )
    if credit.name != "outcome_reward" and file_format.input not in ("trajectories", "sequences"):
        raise UsageError(
            f"credit: {file_format.name} holds {file_format.input}, which are trained without rewards; to choose by a"
            " reward, use reward=NAME and min_reward (--reward, --min-reward)"
        )
    if credit.name != "outcome_reward" and not file_format.takes_credit:
        raise UsageError(
            f"credit: {file_format.name} writes all rewards as they were given, so the option has no "
            "effect; leave it out"
        )


def named(what: str, counts: Mapping[str, int]) -> Counter[str]:
    """The counts by reason, with the kind of item before each reason: `completions: another model`."""
    return Counter({f"{what}: {reason}": count for reason, count in counts.items()})


def count_skipped(skipped: Counter[str], counts: Mapping[str, int], warning: str) -> None:
    """Add counts by reason. A new reason is logged once, in place of `%s` in the warning."""
    for reason, count in counts.items():
        if count and reason not in skipped:
            logger.warning(warning, reason)
        if count:
            skipped[reason] += count


_UNREAD: Final = frozenset({"choices", "input_messages", "prompt_token_ids", "turns"})
"""The fields that an outline does not have."""
_KNOWN: Final = (
    frozenset(field.name for field in fields(Trajectory)) | frozenset(CallRecord.__struct_fields__)
) - _UNREAD
_EMPTY: Final[tuple[object, ...]] = (None, (), {})


def _has(trajectory: Trajectory, name: str) -> bool:
    """Whether the trajectory, or one of its calls, has a value in the field with this name."""
    return any(getattr(owner, name, None) not in _EMPTY for owner in (trajectory, *trajectory.calls))
