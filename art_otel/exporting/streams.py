"""Streams: what an encoder is given, from the batches package.

Invariant: the same choice of trajectories stands behind every stream, and what it leaves out is counted.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Final, NamedTuple, TypeVar

from art_otel.batches import Credit
from art_otel.batches.chunks import Sources
from art_otel.batches.messages import MessageBatches, message_batches
from art_otel.batches.options import AdvantageName, batches
from art_otel.batches.plan import OUTLINE, Advantage
from art_otel.batches.preferences import PreferenceBatches, preference_batches
from art_otel.batches.reading import Batches
from art_otel.calls import InferenceCall
from art_otel.errors import UsageError
from art_otel.exporting.exporter import Credited, Kind
from art_otel.exporting.final_reward import NULL_REWARD
from art_otel.exporting.report import NotCarried
from art_otel.trajectories import Status, Trajectory

_NameT = TypeVar("_NameT", bound=str | None)

DEFAULT: Final = "default"
_NO_ADVANTAGES: Final = {
    "advantages": NotCarried(trajectories=None, why="asked for, but the format has no place for them")
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Choice:
    """Which trajectories, and what they are worth: options of `art_otel.batches` by the same names.

    `advantage` "default" is the trainer's own (`Kind.advantage`).
    """

    advantage: AdvantageName | Advantage | str | None = DEFAULT
    credit: Credit | None = None
    complete_only: bool = True
    splits: str | Iterable[str | None] | None = None
    statuses: Status | Iterable[Status] | None = ("ok",)
    max_tokens: int | None = None


class LeftOut(NamedTuple):
    """Counts by reason."""

    trajectories: Counter[str]
    parts: Counter[str]


class Stream:
    """Items for an encoder; counts are whole when the items are."""

    def __init__(
        self, kind: Kind, choice: Choice, outlines: Batches, source: Batches | MessageBatches | PreferenceBatches
    ) -> None:
        self._kind = kind
        self._choice = choice
        self._outlines = outlines
        self._source = source

    def items(self) -> Iterator[Any]:
        """The items, as `Kind.takes` says."""
        source = self._source
        if isinstance(source, MessageBatches):
            return source.examples()
        if isinstance(source, PreferenceBatches):
            return source.pairs()
        if self._kind.takes == "sequences":
            return source.sequences()
        return (Credited(trajectory=trajectory, worth=worth) for trajectory, worth in source.trajectories())

    def trajectories(self) -> int:
        """How many were read."""
        return self._source.report.trajectories

    def used(self) -> int:
        """How many are in the export."""
        return self._source.report.trajectories_used

    def left_out(self) -> LeftOut:
        """What is not in the export, by reason."""
        source = self._source
        if isinstance(source, MessageBatches):
            parts = _named("histories", source.report.histories_left_out)
        elif isinstance(source, PreferenceBatches):
            parts = _named("pairs", source.report.pairs_left_out)
            parts["histories: not the main one of their trajectory"] = source.report.other_histories
        else:
            parts = _named("sequences", source.report.sequences_left_out)
            parts += _named("completions", source.report.completions_left_out)
        return LeftOut(source.report.trajectories_left_out, parts)

    def changed(self) -> Counter[str]:
        """What became of rewards on the way: a sequence, unlike a trajectory, does not tell which it had."""
        if not isinstance(self._source, Batches) or self._kind.takes != "sequences" or self._kind.advantage is not None:
            return Counter()
        return Counter({NULL_REWARD: self._source.plan().unusable_rewards})

    def not_carried(self) -> dict[str, NotCarried]:
        """The fields that the format has no place for, with the number of selected trajectories that have them."""
        declared = self._kind.not_carried
        counts = {name: 0 for name in declared if name in _KNOWN}
        if counts:
            for trajectory, _ in self._outlines.trajectories(OUTLINE):
                for name in counts:
                    counts[name] += _has(trajectory, name)
        found = {name: NotCarried(trajectories=counts.get(name), why=why) for name, why in declared.items()}
        return found | ({} if self._kind.advantage or self._choice.advantage in (DEFAULT, None) else _NO_ADVANTAGES)


def open_stream(sources: Sources, kind: Kind, choice: Choice) -> Stream:
    """The stream of the kind from sources that can be iterated over again. Raises StoreError, UsageError."""
    _check(kind, choice)
    choice = replace(choice, splits=_kept(choice.splits), statuses=_kept(choice.statuses))  # each is asked twice
    outlines = _batches(sources, choice, advantage=None)
    if kind.takes in ("trajectories", "sequences"):
        wanted = kind.advantage if kind.advantage is None or choice.advantage == DEFAULT else choice.advantage
        return Stream(kind, choice, outlines, _batches(sources, choice, advantage=wanted))
    opened: Callable[..., MessageBatches | PreferenceBatches]
    opened = message_batches if kind.takes == "conversations" else preference_batches
    source = opened(sources, complete_only=choice.complete_only, splits=choice.splits, statuses=choice.statuses)
    return Stream(kind, choice, outlines, source)


def _kept(names: Iterable[_NameT] | str | None) -> Iterable[_NameT] | str | None:
    return tuple(names) if isinstance(names, Iterator) else names


def _check(kind: Kind, choice: Choice) -> None:
    """Raise UsageError for what the choice asks of a kind that has nothing of it."""
    if choice.max_tokens is not None and kind.takes != "sequences":
        raise UsageError(f"max_tokens={choice.max_tokens}: {kind.name} holds {kind.takes}, which are not cut by tokens")
    if choice.credit is not None and kind.takes not in ("trajectories", "sequences"):
        raise UsageError(f"credit: {kind.name} holds {kind.takes}, which are trained with no reward")


def _batches(sources: Sources, choice: Choice, *, advantage: Any) -> Batches:  # noqa: ANN401 # checked by batches()
    return batches(
        sources,
        advantage=advantage,
        credit=choice.credit,
        complete_only=choice.complete_only,
        splits=choice.splits,
        statuses=choice.statuses,
        max_tokens=choice.max_tokens,
    )


def _named(what: str, counts: Mapping[str, int]) -> Counter[str]:
    return Counter({f"{what}: {reason}": count for reason, count in counts.items()})


_UNREAD: Final = frozenset({"choices", "input_messages", "prompt_token_ids", "turns"})
"""What an outline is read without."""
_KNOWN: Final = (
    frozenset(field.name for field in fields(Trajectory)) | frozenset(InferenceCall.__struct_fields__)
) - _UNREAD
_EMPTY: Final[tuple[object, ...]] = (None, (), {})


def _has(trajectory: Trajectory, name: str) -> bool:
    """Whether the trajectory, or one of its calls, has a value of this name."""
    return any(getattr(owner, name, None) not in _EMPTY for owner in (trajectory, *trajectory.calls))
