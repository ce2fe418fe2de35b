"""A worker: AsyncGRPOTrainer takes its training rows from it, and every history of every rollout is a row.

Invariant: each completion that `art_otel.batches` trains is under the mask of exactly one row, and every row of a
rollout has its advantage, which compares rollouts, however many rows each of them has. What is not trained is counted
in `skipped`.

    worker = RolloutWorker(play, prompts)
    AsyncGRPOTrainer(model, args=…, train_dataset=prompts, rollout_worker=worker)

Source: `RolloutWorkerProtocol`, `RolloutQueueDataset` and `RolloutSample` of trl.experimental.async_grpo (TRL 1.16).
"""

import asyncio
import queue
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

import art_otel
from art_otel import Trajectory, TrajectoryGroup
from art_otel.errors import UsageError
from art_otel.exporting import Advantage, AdvantageName, ExportStats, count_skipped, named, scored

PlayGroup: TypeAlias = Callable[[Any], Awaitable[Sequence[Trajectory]]]
"""A prompt -> the rollouts that are compared, as `art_otel.gather_trajectories` gives them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TrlSample:
    """A row of AsyncGRPOTrainer, with the fields of its `RolloutSample`. Arrays have the shape (tokens,).

    `completion_mask` is 1 for the tokens that are trained with the `advantage`. `old_log_probs` are 0.0 elsewhere.
    `enqueued_at` is in seconds since the epoch. Messages are not given: trackio alone would show them.
    """

    input_ids: NDArray[np.int64]
    completion_mask: NDArray[np.int64]
    old_log_probs: NDArray[np.float32]
    advantage: float
    model_version: int
    group_id: int
    metrics: dict[str, float]
    enqueued_at: float
    prompt: Sequence[Mapping[str, Any]] = ()
    completion: Sequence[Mapping[str, Any]] = ()


class RolloutWorker:
    """Plays groups of rollouts in a thread of its own, while AsyncGRPOTrainer trains: its `rollout_worker`.

    `play(prompt)` is a coroutine that gives the rollouts of one group, for each of `prompts` in turn, without end.
    `concurrent_groups` are played at a time; while `max_waiting` rows wait for the trainer, no new one begins.
    `advantage` and `allow_incomplete` are as for `art_otel.batches`. `skipped` counts by reason the trajectories and
    completions that TRL did not get. A reason is logged when it is first met. An exception of `play` ends the training.
    """

    def __init__(
        self,
        play: PlayGroup,
        prompts: Iterable[Any],
        *,
        concurrent_groups: int = 1,
        max_waiting: int = 64,
        advantage: AdvantageName | Advantage = "grpo",
        allow_incomplete: bool | Iterable[str] = False,
    ) -> None:
        self.rollout_buffer: queue.Queue[TrlSample] = queue.Queue()
        self.metrics_queue: queue.Queue[dict[str, float]] = queue.Queue()
        self.skipped: Counter[str] = Counter()
        self._play = play
        self._prompts = list(prompts)
        if not self._prompts:
            raise UsageError("prompts: none given; give the prompts for which `play` is called")
        self._concurrent_groups = concurrent_groups
        self._max_waiting = max_waiting
        self._advantage: AdvantageName | Advantage = advantage
        self._allow_incomplete = (
            allow_incomplete if isinstance(allow_incomplete, bool | str) else tuple(allow_incomplete)
        )
        self._model_version = 0
        self._numbers = count()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="art-otel-trl-worker", daemon=True)
        self._error: BaseException | None = None
        self._heartbeat = time.monotonic()

    def start(self) -> None:
        """Begin to play."""
        self._heartbeat = time.monotonic()
        self._thread.start()

    def stop(self) -> None:
        """Cancel what is being played."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join(timeout=30)

    def update_model_version(self, model_version: int) -> None:
        """Rows of groups that begin from now on are of this version."""
        self._model_version = model_version

    def check_health(self, stale_after_s: float) -> None:
        """Raise RuntimeError if `play` raised, or if no group has ended for so many seconds."""
        if self._error is not None:
            raise RuntimeError(f"play: it raised {self._error!r:.200}") from self._error
        silent = time.monotonic() - self._heartbeat
        if silent > stale_after_s:
            raise RuntimeError(
                f"play: no group has ended for {silent:.0f} seconds; if groups take so long, raise "
                "heartbeat_stale_after_s of AsyncGRPOConfig"
            )

    def _run(self) -> None:
        try:
            asyncio.run(self._play_until_stopped())
        except BaseException as error:  # noqa: BLE001 # whatever it was, the trainer raises it in its own thread
            self._error = error

    async def _play_until_stopped(self) -> None:
        players = [asyncio.ensure_future(self._play_groups()) for _ in range(self._concurrent_groups)]
        try:
            while not self._stopped.is_set():
                ended, _ = await asyncio.wait(players, timeout=0.1, return_when=asyncio.FIRST_EXCEPTION)
                for player in ended:
                    player.result()
        finally:
            for player in players:
                player.cancel()
            await asyncio.gather(*players, return_exceptions=True)

    async def _play_groups(self) -> None:
        while True:
            while self.rollout_buffer.qsize() >= self._max_waiting:
                self._heartbeat = time.monotonic()
                await asyncio.sleep(0.05)
            number, version = next(self._numbers), self._model_version
            played = await self._play(self._prompts[number % len(self._prompts)])
            for sample in self._samples(played, number, version):
                self.rollout_buffer.put(sample)
            self._heartbeat = time.monotonic()

    def _samples(self, played: Sequence[Trajectory], number: int, version: int) -> Iterator[TrlSample]:
        """The rows of a group."""
        group = TrajectoryGroup(group_id=str(number), trajectories=list(played))
        batches = art_otel.batches(group, advantage=self._advantage, allow_incomplete=self._allow_incomplete)
        stats = ExportStats()
        for sequence in batches.sequences():
            kept = scored(sequence, stats)
            if kept is None or kept.advantages is None:
                continue
            yield TrlSample(
                input_ids=kept.input_ids.astype(np.int64),
                completion_mask=kept.loss_mask.astype(np.int64),
                old_log_probs=kept.logprobs,
                # One number a row: every turn of a rollout has its outcome as the reward.
                advantage=float(kept.advantages[kept.loss_mask][0]),
                model_version=version,
                group_id=number,
                metrics={} if kept.reward is None else {"reward": kept.reward},
                enqueued_at=time.time(),
            )
        skipped = named("trajectories", batches.report.trajectories_skipped)
        skipped += named("completions", batches.report.completions_skipped | stats.skipped)
        count_skipped(self.skipped, skipped, "art-otel: AsyncGRPOTrainer gets no %s; skipped counts them")
