"""Judging: what `art_otel.batches` would train of every trajectory under chosen options, and why not the rest.

Invariant: an option that the address does not hold is the default of `art_otel.batches`. Every number comes from
`Batches.decision_columns()` and its report; nothing is decided here.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from art_otel.data import Batches, BatchReport
from art_otel.data.advantages import ADVANTAGES_OVER_GROUPS, ADVANTAGES_OVER_REWARDS
from art_otel.data.batches import batches
from art_otel.data.credit import read_credit
from art_otel.data.decisions import REASONS, TOO_LONG
from art_otel.data.option_texts import NONE, OPTION_TEXTS, read_options
from art_otel.data.sources import Sources
from art_otel.errors import ArtOtelError
from art_otel.store import Combined
from art_otel.viewer.addresses import ReplacedError
from art_otel.viewer.outlines import ListColumn, Outlines


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanOptions:
    """Options of `art_otel.batches` as texts by their names: those that are not the default."""

    texts: tuple[tuple[str, str], ...] = ()

    @classmethod
    def read(cls, query: Mapping[str, str]) -> "PlanOptions":
        """Read the options of a query. Raises UsageError for a value that an option cannot have."""
        asked = {name: (query[name], option.default_text) for name, option in OPTION_TEXTS.items() if query.get(name)}
        options = cls(texts=tuple((name, text) for name, (text, default) in asked.items() if text != default))
        options.batches([])
        return options

    def text(self, name: str) -> str | None:
        """The text of an option; None where it is the default and that has none."""
        return dict(self.texts).get(name, OPTION_TEXTS[name].default_text)

    @property
    def credit(self) -> str:
        """The credit as it was named."""
        return self.text("credit") or ""

    @property
    def advantage(self) -> str:
        """The name of the advantage, or `none`."""
        return self.text("advantage") or ""

    @property
    def compares_groups(self) -> bool:
        """Whether a group alone does not tell its advantages."""
        return self.advantage in {**ADVANTAGES_OVER_GROUPS, **ADVANTAGES_OVER_REWARDS}

    @property
    def unit(self) -> str:
        """What has a reward of its own: a rollout, a step or a call."""
        return read_credit(self.credit).per

    def batches(self, sources: Sources) -> Batches:
        """What `art_otel.batches` makes of the sources with these options. Raises UsageError."""
        return batches(sources, **read_options(dict(self.texts)))


DEFAULTS: Final = PlanOptions()
FLAT: Final = {
    "none solved it": "all rewards of the group are the lowest of the data",
    "all solved it": "all rewards of the group are the highest of the data",
    "equal rewards": "all rewards of the group are equal, but not the lowest or highest of the data",
    "alone in its group": "no other rollout of its group has a reward that counts",
    "as good as its group": "its reward is the mean that it is compared with; others of the group teach",
}
"""Why trained tokens have advantage 0, in a few words and in more."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Judgement:
    """`verdicts[i]` is why nothing of row i is trained (None: something is), `completions` why completions are not.

    `trained` and `sampled` count tokens: those that are trained, and those of all completions; `flat` counts trained
    ones whose advantage is 0, so that they teach nothing. `counted` marks rows of which all tokens of completions are
    known; `truncated` those of which tokens were cut off. `advantage` is the mean over the trained tokens, NaN where
    there is none. Shape: (rows,).
    `advantages` has one for each completion, in the order of `completions`; None where none were asked for.
    `turn_trained` and `turn_sampled` count the tokens of each completion.
    `problem` says what has to be chosen before anything can be trained; None where that is nothing.
    """

    verdicts: NDArray[np.object_]
    completions: ListColumn
    advantages: NDArray[np.float64] | None
    advantage: NDArray[np.float64]
    turn_trained: NDArray[np.int32]
    turn_sampled: NDArray[np.int32]
    trained: NDArray[np.int64]
    flat: NDArray[np.int64]
    sampled: NDArray[np.int64]
    counted: NDArray[np.bool_]
    refused: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    report: BatchReport
    problem: str | None

    def of_rows(self, wanted: NDArray[np.bool_]) -> "Judgement":
        """The same of the wanted rows alone. The report stays that of all."""
        sizes = np.diff(self.completions.offsets)
        turns = np.repeat(wanted, sizes)
        of_rows = {name: getattr(self, name)[wanted] for name in _OF_ROWS}
        return replace(
            self,
            **of_rows,
            completions=replace(
                self.completions,
                codes=self.completions.codes[turns],
                offsets=np.concatenate([[0], np.cumsum(sizes[wanted])]),
            ),
            advantages=None if self.advantages is None else self.advantages[turns],
            turn_trained=self.turn_trained[turns],
            turn_sampled=self.turn_sampled[turns],
        )

    @property
    def has_gradient(self) -> NDArray[np.bool_]:
        """Mark the rows with a token that teaches something. Shape: (rows,)."""
        return self.trained > self.flat

    def flat_kinds(self, outlines: Outlines) -> NDArray[np.int64]:
        """Why trained tokens of each row have advantage 0, as a position in FLAT; -1 for none. Shape: (rows,)."""
        groups, rewards = outlines.groups_of_rows[0], outlines.rewards
        known = np.flatnonzero(np.isfinite(rewards) & (groups >= 0) & ~self.refused)
        count = int(groups.max(initial=-1)) + 2  # the last is of rows without a group
        low, high, sizes = np.full(count, np.inf), np.full(count, -np.inf), np.bincount(groups[known], minlength=count)
        np.minimum.at(low, groups[known], rewards[known])
        np.maximum.at(high, groups[known], rewards[known])
        lowest, highest = rewards[known].min(initial=0), rewards[known].max(initial=-np.inf)
        kinds = np.select([sizes < 2, low < high, low == lowest, high == highest], [3, 4, 0, 1], 2)
        return np.where(self.flat > 0, kinds[groups], -1)

    def untrained(self, reason: str) -> NDArray[np.bool_]:
        """Mark the rows that are skipped, or have completions that are, for this reason. Shape: (rows,)."""
        matches = (self.verdicts == reason) | self.completions.having(reason)
        return matches | self.truncated if reason == TOO_LONG else matches


_OF_ROWS: Final = ("verdicts", "advantage", "trained", "flat", "sampled", "counted", "refused", "truncated")


class Judging:
    """The judgements of one snapshot, each made once; that of the default options `at_once`, or when it is waited for.

    Of a part of a snapshot they are those of the whole, as far as they are of the part's rows. They are made one after
    the other in a thread. No interpreter waits for one that is not done when it ends.
    """

    def __init__(
        self, combined: Combined, *, at_once: bool, part: "tuple[Judging, NDArray[np.bool_]] | None" = None
    ) -> None:
        self._combined = combined
        self._part = part
        self._lock = threading.Lock()
        self._futures: dict[PlanOptions, Future[Judgement]] = {}
        self._turn = threading.Lock()
        self._closed = False
        if at_once:
            self._future(DEFAULTS)

    def wait(self, options: PlanOptions = DEFAULTS) -> Judgement:
        """The judgement, once it is made. Raises UsageError and StoreError."""
        return self._future(options).result()

    def done(self) -> Judgement | None:
        """The judgement by the default options if it is made; None while it is not, and where it cannot be."""
        future = self._futures.get(DEFAULTS)
        return future.result() if future is not None and future.done() and future.exception() is None else None

    def problem(self) -> str | None:
        """Why the trajectories cannot be judged or trained; None where they can, or nobody knows yet."""
        future = self._futures.get(DEFAULTS)
        error = future.exception() if future is not None and future.done() else None
        if isinstance(error, ArtOtelError):
            return str(error)
        judgement = self.done()
        return None if judgement is None else judgement.problem

    def close(self) -> None:
        """Begin no further judgement; who waits for one gets a ReplacedError."""
        with self._lock:
            self._closed = True
            for future in self._futures.values():
                _settle(future.set_exception, ReplacedError("the dataset was replaced"))

    def _future(self, options: PlanOptions) -> Future[Judgement]:
        with self._lock:
            if options not in self._futures:
                future = self._futures[options] = Future[Judgement]()
                threading.Thread(target=self._judge, args=(options, future), name="judging", daemon=True).start()
            return self._futures[options]

    def _judge(self, options: PlanOptions, future: Future[Judgement]) -> None:
        with self._turn:
            if self._closed:
                _settle(future.set_exception, ReplacedError("the dataset was replaced"))
                return
            try:
                if self._part is None:
                    judgement = judge(self._combined, options)
                else:
                    whole, wanted = self._part
                    judgement = whole.wait(options).of_rows(wanted)
            except BaseException as error:  # noqa: BLE001 # goes to who waits
                _settle(future.set_exception, error)
            else:
                _settle(future.set_result, judgement)


def judge(combined: Combined, options: PlanOptions) -> Judgement:
    """Judge the trajectories of the files. Raises UsageError and StoreError."""
    batches = options.batches(combined)
    decisions = batches.decision_columns()
    trained, offsets = decisions.turn_trained, decisions.turn_offsets
    advantages = decisions.advantages
    is_flat = advantages.astype(np.float32) == 0  # as sequences hold them
    per_row, refused = decisions.trained, decisions.refused.known

    def summed(values: NDArray[Any]) -> NDArray[Any]:
        return np.diff(np.concatenate([[0], np.cumsum(values)])[offsets])

    with np.errstate(invalid="ignore"):  # 0 / 0 where nothing is trained
        advantage = summed(np.where(trained > 0, advantages * trained, 0)) / per_row
    return Judgement(
        verdicts=np.array(decisions.skipped, np.object_),
        completions=ListColumn(names=list(REASONS), codes=decisions.reasons.astype(np.int32), offsets=offsets),
        advantages=None if options.advantage == NONE else np.nan_to_num(advantages, nan=0.0),
        advantage=advantage,
        turn_trained=trained,
        turn_sampled=decisions.turn_sampled,
        trained=per_row,
        flat=summed(np.where(is_flat, trained, 0)),
        sampled=decisions.sampled,
        counted=decisions.counted,
        refused=refused,
        truncated=~refused & (summed((decisions.reasons < 0) & (trained < decisions.turn_sampled)) > 0),
        report=batches.report,
        problem=batches.problem,
    )


def _settle(setter: Callable[[Any], None], outcome: object) -> None:
    """Give a future its outcome, unless it has one."""
    with suppress(InvalidStateError):
        setter(outcome)


def described_options(options: PlanOptions, found: Mapping[str, Sequence[str]]) -> list[dict[str, Any]]:
    """Describe the options as a form needs them. `found` has choices of the data, by the names of their options."""
    return [
        {
            "name": name,
            "label": option.label,
            "kind": option.kind,
            "choices": list(found.get(name) or option.choices),
            "default": option.default_text,
            "value": options.text(name),
            "help": option.help,
        }
        for name, option in OPTION_TEXTS.items()
    ]
