"""TorchBatches: batches as torch tensors, for a DataLoader with any number of workers.

Invariant: over all workers, and over all shards, every sequence comes exactly once an epoch, whatever their number.

    loader = DataLoader(TorchBatches("out", batch_size=8, seed=0), batch_size=None, num_workers=2)

Needs torch, which art-otel itself does not depend on: `pip install 'art-otel[torch]'`.
"""

# torch is not installed where the types are checked.
# pyright: reportMissingImports=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false, reportUntypedBaseClass=false
# pyright: reportMissingTypeArgument=false

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from art_otel.batches.batch import Batch
from art_otel.batches.checks import whole
from art_otel.batches.chunks import Sources, one_by_one
from art_otel.batches.options import batches
from art_otel.batches.reading import State
from art_otel.errors import UsageError

try:
    import torch
    from torch.utils.data import IterableDataset, get_worker_info
except ImportError as missing:
    raise ImportError("art_otel.batches.torch_dataset needs torch: pip install 'art-otel[torch]'") from missing


class TorchBatches(IterableDataset):
    """The batches of `art_otel.batches(sources, **options)` as dicts, each worker's from trajectories of its own.

    A dict has the names of `Batch`: tensors int64, bool, float32 and float64 (rewards), lists of text or None; no
    `advantages` where nobody asked for them. Give it to a DataLoader with `batch_size=None`. A worker takes every n-th
    trajectory; each makes its own plan. With `shard=(rank, ranks)` every process of a distributed run has its own part.

    To go on after a stop, keep `states[batch["worker"]] = batch["state"]` for the batches that were used and give
    `resume=states`, or what JSON made of it, with the same sources, options, epoch and number of workers. Counts of
    what was left out stay in the workers; `art_otel.batches` itself tells them. Raises what that does, for options and
    paths at once, and UsageError for states that are not by worker, or of another number of workers.
    """

    def __init__(
        self,
        sources: Sources,
        *,
        epoch: int = 0,
        shard: tuple[int, int] = (0, 1),
        resume: Mapping[int, State] | Mapping[str, State] | None = None,
        **options: Any,  # noqa: ANN401 # as `batches` takes them
    ) -> None:
        super().__init__()
        self._sources = one_by_one(sources)
        options = {name: tuple(value) if isinstance(value, Iterator) else value for name, value in options.items()}
        batches(self._sources, epoch=epoch, shard=shard, **options)  # what is wrong is told here, not in a worker
        self._options = options
        self._shard = shard
        self._resume = _by_worker({} if resume is None else resume)
        self._resumed_epoch = epoch
        self._epoch = torch.tensor(epoch).share_memory_()  # so that workers that stay alive hear of a new one

    def set_epoch(self, epoch: int) -> None:
        """Shuffle anew from the next iteration on, the same way for the same number."""
        self._epoch.fill_(whole("epoch", epoch, 0))

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Give this worker's batches. Raises StoreError, and UsageError for states of another number of workers."""
        info = get_worker_info()
        worker, workers = (0, 1) if info is None else (info.id, info.num_workers)
        index, count = self._shard
        epoch = int(self._epoch)
        states = self._resume if epoch == self._resumed_epoch else {}
        # A state of fewer workers is refused by its own worker, whose shard is another one then.
        if beyond := [number for number in states if number >= workers]:
            raise UsageError(
                f"resume: has a state of worker {max(beyond)}, but num_workers is {workers if info else 0}; "
                "give as many as before"
            )
        found = batches(
            self._sources,
            epoch=epoch,
            shard=(index * workers + worker, count * workers),
            resume=states.get(worker),
            **self._options,
        )
        for batch in found:
            yield {**_tensors(batch), "worker": worker, "state": found.state}


def _by_worker(states: object) -> dict[int, State]:
    """The states by the number of their worker, which JSON makes text."""
    if not isinstance(states, Mapping) or not all(
        str(worker).isdecimal() and isinstance(state, Mapping) for worker, state in states.items()
    ):
        raise UsageError(
            f'resume={states!r:.200}: give {{batch["worker"]: batch["state"]}} of the batches that were used'
        )
    return {int(worker): state for worker, state in states.items()}


def _tensors(batch: Batch) -> dict[str, Any]:
    """The arrays as tensors and lists. Integers are int64, with which torch looks up, gathers and computes losses."""
    found: dict[str, Any] = {}
    for name, array in batch.arrays().items():
        if array.dtype == np.object_:
            found[name] = array.tolist()
        else:
            found[name] = torch.from_numpy(array.astype(np.int64) if array.dtype == np.int32 else array)
    return found
