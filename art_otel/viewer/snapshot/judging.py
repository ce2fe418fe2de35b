"""Judging: what `art_otel.batches` would train of every trajectory, and why not the rest.

Invariant: every number comes from `Batches.verdicts()` and its report; nothing is decided here.
"""

# pyarrow ships no types.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportAttributeAccessIssue=false, reportUnknownArgumentType=false, reportUnknownParameterType=false

import threading
import warnings
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from multiprocessing.pool import Pool, ThreadPool
from typing import Any, Final

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from art_otel.data import BatchReport
from art_otel.errors import ArtOtelError
from art_otel.store import Combined
from art_otel.store.read import groups_in, open_parquet
from art_otel.viewer.options import DEFAULTS, PlanOptions
from art_otel.viewer.problems import ReplacedError
from art_otel.viewer.snapshot.list_column import ListColumn

_FEW: Final = 2_000
"""So many trajectories are judged in this process; more would slow the page down."""

_SAMPLED: Final = "turns.list.element.token_ids"


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
