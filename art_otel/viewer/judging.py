"""Judging: what `art_otel.batches` would train of every trajectory under chosen options, and why not the rest.

Invariant: an option that the address does not hold is the default of `art_otel.batches`. Every number comes from
`Batches.verdicts()` and its report; nothing is decided here.
"""

# pyarrow ships no types.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportAttributeAccessIssue=false, reportUnknownArgumentType=false, reportUnknownParameterType=false

import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from multiprocessing.pool import Pool, ThreadPool
from typing import Any, Final, Literal, cast, get_args

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from art_otel.data import ADVANTAGES, CREDITS, Batches, BatchReport
from art_otel.data.batches import batches
from art_otel.data.options import validate
from art_otel.data.sources import Sources
from art_otel.errors import ArtOtelError
from art_otel.store import Combined
from art_otel.store.read import groups_in, open_parquet
from art_otel.trajectories import Status, explain
from art_otel.viewer.addresses import ReplacedError
from art_otel.viewer.outlines import ListColumn

ANY: Final = "any"
NONE: Final = "none"
_CreditName = Literal["outcome_reward", "step_reward", "call_reward"]

_FEW: Final = 2_000
"""So many trajectories are judged in this process; more would slow the page down."""

_SAMPLED: Final = "turns.list.element.token_ids"


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanOptions:
    """`status` is a status or `any`, `split` a split or None for any, `advantage` a name or `none`."""

    credit: _CreditName = "outcome_reward"
    advantage: Literal["grpo", "grpo_sample", "dr_grpo", "rloo", "centered", "none"] = "grpo"
    status: Literal["ok", "error", "cancelled", "unfinished", "any"] = "ok"
    split: str | None = None
    allow_incomplete: bool = False
    zero_variance: Literal["keep", "drop"] = "keep"
    max_tokens: int | None = None
    overflow: Literal["drop", "truncate"] = "drop"

    @classmethod
    def read(cls, query: Mapping[str, str]) -> "PlanOptions":
        """Read the options of a query. Raises UsageError for a value that an option cannot have."""
        values = {name: query[name] for name in cls.__slots__ if query.get(name)}
        return validate(cls, values, owner="the plan", texts=True)

    def batches(self, sources: Sources) -> Batches:
        """What `art_otel.batches` makes of the sources with these options. Raises UsageError."""
        return batches(
            sources,
            credit=self.credit,
            advantage=None if self.advantage == NONE else self.advantage,
            status=None if self.status == ANY else self.status,
            split=self.split,
            allow_incomplete=self.allow_incomplete,
            zero_variance=self.zero_variance,
            max_tokens=self.max_tokens,
            overflow=self.overflow,
        )


DEFAULTS: Final = PlanOptions()


@dataclass(frozen=True, kw_only=True, slots=True)
class Judgement:
    """`verdicts[i]` is why nothing of row i is trained (None: something is), `completions` why completions are not.

    `trained` and `sampled` count tokens: those that are trained, and those of all completions. Shape: (rows,).
    """

    verdicts: list[str | None]
    completions: ListColumn
    trained: NDArray[np.int64]
    sampled: NDArray[np.int64]
    refused: NDArray[np.bool_]
    report: BatchReport

    def skipped(self, reason: str) -> NDArray[np.bool_]:
        """Mark the rows that are skipped for this reason. Shape: (rows,)."""
        return np.array([verdict == reason for verdict in self.verdicts], np.bool_)


class Judging:
    """The judgements of one snapshot, each made once; that of the default options begins at once."""

    def __init__(self, combined: Combined, rows: int) -> None:
        self._combined = combined
        self._lock = threading.Lock()
        self._futures: dict[PlanOptions, Future[Judgement]] = {}
        self._pool: Pool = ThreadPool(1) if rows <= _FEW else get_context("spawn").Pool(1)
        self._future(DEFAULTS)

    def wait(self, options: PlanOptions = DEFAULTS) -> Judgement:
        """The judgement, once it is made. Raises UsageError and StoreError."""
        return self._future(options).result()

    def done(self, options: PlanOptions = DEFAULTS) -> Judgement | None:
        """The judgement if it is made; None while it is not, and where it cannot be."""
        future = self._future(options)
        return future.result() if future.done() and not future.cancelled() and future.exception() is None else None

    def problem(self) -> str | None:
        """Why the trajectories cannot be judged; None where they can, or nobody knows yet."""
        future = self._future(DEFAULTS)
        error = future.exception() if future.done() and not future.cancelled() else None
        return str(error) if isinstance(error, ArtOtelError) else None

    def close(self) -> None:
        """Stop the judging that still runs; who waits for it gets a ReplacedError."""
        self._pool.terminate()
        with self._lock:
            for future in self._futures.values():
                _settle(future.set_exception, ReplacedError("the dataset was replaced"))

    def _future(self, options: PlanOptions) -> Future[Judgement]:
        with self._lock:
            if options not in self._futures:
                future = self._futures[options] = Future[Judgement]()
                self._pool.apply_async(
                    judge,
                    (self._combined, options),
                    callback=partial(_settle, future.set_result),
                    error_callback=partial(_settle, future.set_exception),
                )
            return self._futures[options]


def judge(combined: Combined, options: PlanOptions) -> Judgement:
    """Judge the trajectories of the files. Raises UsageError and StoreError."""
    batches = options.batches(combined)
    verdicts: list[str | None] = []
    completions: list[tuple[str, ...]] = []
    trained: list[int] = []
    refused: list[bool] = []
    before = 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the report says it too
        for verdict in batches.verdicts():
            verdicts.append(verdict.skipped)
            completions.append(tuple(reason for reason in verdict.completions if reason is not None))
            refused.append(verdict.skipped is not None and not verdict.completions)
            trained.append(batches.report.trained_tokens - before)
            before = batches.report.trained_tokens
    return Judgement(
        verdicts=verdicts,
        completions=ListColumn.of(completions),
        trained=np.array(trained, np.int64),
        sampled=_sampled_tokens(combined),
        refused=np.array(refused, np.bool_),
        report=batches.report,
    )


def _settle(setter: Callable[[Any], None], outcome: object) -> None:
    """Give a future its outcome, unless it has one."""
    with suppress(InvalidStateError):
        setter(outcome)


def _sampled_tokens(combined: Combined) -> NDArray[np.int64]:
    """The tokens of all completions of each row. Shape: (rows,)."""
    counts = [np.zeros(0, np.int64)]
    for file in combined.files:
        with open_parquet(file.location) as parquet:
            for group in groups_in(file, parquet):
                turns = group.read(parquet, [_SAMPLED]).column("turns")
                ids = pc.struct_field(pc.list_flatten(turns), "token_ids")
                lengths = pc.fill_null(pc.list_value_length(ids), 0).to_numpy()
                ends = np.cumsum(pc.fill_null(pc.list_value_length(turns), 0).to_numpy())
                total = np.concatenate([[0], np.cumsum(lengths)])
                counts.append(np.diff(total[np.concatenate([[0], ends])]).astype(np.int64))
    return np.concatenate(counts)


def described_options(options: PlanOptions, splits: Sequence[str]) -> list[dict[str, Any]]:
    """Describe the options as a form needs them."""
    choices: dict[str, Sequence[str]] = {
        "credit": CREDITS,
        "advantage": (*ADVANTAGES, NONE),
        "status": (*get_args(Status), ANY),
        "split": splits,
        "zero_variance": ("keep", "drop"),
        "overflow": ("drop", "truncate"),
    }
    return [
        {
            "name": name,
            "label": label,
            "kind": kind,
            "choices": list(choices.get(name, ())),
            "default": cast(object, getattr(DEFAULTS, name)),
            "value": cast(object, getattr(options, name)),
            "help": text,
        }
        for name, label, kind, text in _FORM
    ]


def cure_of(reason: str) -> str:
    """What a skip reason means, and what to do about it."""
    incomplete = reason.removeprefix("incomplete: ")
    return explain(incomplete) if incomplete != reason else _CURES.get(reason, "a reason of your own options")


_FORM: Final = (
    ("credit", "Credit", "choice", "Which reward a turn is trained with: the rollout's, its step's or its call's."),
    ("advantage", "Advantage", "choice", "How a reward is compared with those of its group; none trains all alike."),
    ("status", "Status", "choice", "Rollouts that ended so; any takes all."),
    ("split", "Split", "choice", "Rollouts of this split; empty takes all."),
    ("allow_incomplete", "Allow incomplete", "flag", "Train also rollouts of which something is missing."),
    ("zero_variance", "Groups of equal rewards", "choice", "drop skips groups in which all known rewards are equal."),
    ("max_tokens", "Longest sequence", "number", "In tokens; empty allows any length."),
    ("overflow", "Longer sequences", "choice", "drop leaves them out, truncate cuts their ends."),
)

_CURES: Final = {
    "ended on a failed call": "no call completed after the last failure, as in an outage; name the reason in"
    " allow_incomplete to train such rollouts",
    "status": "the rollout ended otherwise than the status option asks for",
    "split": "the rollout is of another split, or of none",
    "no policy version": "a call has no policy version; set policy_version in art_otel.configure() or on the rollout",
    "another policy version": "the rollout was sampled by another version than the option names",
    "policy version without a number": "staleness compares numbers; give versions one",
    "stale": "the rollout is older than max_staleness allows",
    "no reward": "nobody gave the reward that the credit option asks for; give one, choose another credit, or train"
    " without advantages",
    "unusable reward": "the reward is NaN, infinite or not below 1e37; look where it is given",
    "zero variance": "all known rewards of the group are equal, so nothing is learned from it; sample more rollouts",
    "no token ids": "the server gave no token ids; see docs/spec/tokens.md, or give batches a tokenizer",
    "nothing sampled": "no call of the rollout has a completion",
    "no tokens sampled": "the completion is empty",
    "longer than max_tokens": "the sequence does not fit; allow more tokens, or truncate",
    "failed": "its call ended in an error, and what it said is kept as context alone",
    "stream broke": "its stream ended without a finish reason, so the completion may be cut; read streams to their end",
    "scrubbed": "a secret was found in its call; see docs/how-to/scrub.md",
    "content doubtful": "what was recorded of its prompt or of itself may not be what was sent and sampled; the call's"
    " gaps say what",
    "contradicting recordings": "two recordings of its call say different things; keep one instrumentor a client",
}
