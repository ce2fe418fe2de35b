"""TorchBatches: batches as torch tensors, for a DataLoader with any number of workers.

    loader = DataLoader(TorchBatches("out", batch_size=8, seed=0), batch_size=None, num_workers=2)

Invariant: over all workers and ranks, every sequence comes exactly once in an epoch.

Needs torch, which art-otel itself does not depend on: `pip install 'art-otel[torch]'`.
"""

# torch is not installed where the types are checked.
# pyright: reportMissingImports=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false, reportUntypedBaseClass=false
# pyright: reportMissingTypeArgument=false

from collections.abc import Iterator, Mapping
from typing import Any, cast

import numpy as np

from art_otel.data.arranging import Batch
from art_otel.data.batches import batches
from art_otel.data.sources import Sources, list_sources
from art_otel.errors import UsageError

try:
    import torch
    from torch.utils.data import IterableDataset, get_worker_info
except ImportError as missing:
    raise ImportError("art_otel.data.torch_dataset needs torch: pip install 'art-otel[torch]'") from missing


class TorchBatches(IterableDataset):
    """The batches of `art_otel.batches(sources, **options)` as dicts of tensors, divided among workers.

    A dict has the names of `Batch`: tensors of int64, bool, float32 and float64 (rewards), lists of text or None; no
    `advantages` if they were not requested. Give this dataset to a DataLoader with `batch_size=None`. Each of n workers
    takes every n-th trajectory and makes its own plan. With `rank` and `world_size` all ranks give the same number of
    batches.

    To continue after a stop, keep `states[batch["worker"]] = batch["state"]` of the used batches, and give `states`
    (also after a round trip through JSON) to `load_state_dict`, with the same sources, options, epoch and number of
    workers. Reports stay in the workers; `art_otel.batches` gives them in one process. Raises the errors of
    `art_otel.batches` for options and paths at once.
    """

    def __init__(self, sources: Sources, *, epoch: int = 0, **options: Any) -> None:  # noqa: ANN401 # as `batches` takes them
        super().__init__()
        self._sources = list_sources(sources)
        self._options: dict[str, Any] = {
            name: tuple(value) if isinstance(value, Iterator) else value for name, value in options.items()
        }
        batches(self._sources, epoch=epoch, **self._options)  # so that errors are raised here and not in a worker
        self._states: dict[int, Mapping[str, Any]] = {}
        self._resumed_epoch = epoch
        self._epoch = torch.tensor(epoch).share_memory_()  # so that persistent workers see a new epoch

    def set_epoch(self, epoch: int) -> None:
        """Shuffle anew from the next iteration on, the same way for the same number."""
        batches((), epoch=epoch)  # raises UsageError for an invalid epoch
        self._epoch.fill_(epoch)

    def load_state_dict(self, states: Mapping[Any, Mapping[str, Any]]) -> None:
        """Let this epoch continue where the states, by worker, were taken.

        Raises UsageError for states that are not by worker. States of another number of workers raise UsageError in the
        next iteration.
        """
        by_worker = cast(object, states)
        if not isinstance(by_worker, Mapping) or not all(str(worker).isdecimal() for worker in by_worker):
            raise UsageError(
                f'states={states!r:.200}: give {{batch["worker"]: batch["state"]}} of the batches that were used'
            )
        self._states = {int(worker): state for worker, state in states.items()}
        self._resumed_epoch = int(self._epoch)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Give this worker's batches. Raises StoreError, and UsageError for states of another number of workers."""
        info = get_worker_info()
        worker, workers = (0, 1) if info is None else (info.id, info.num_workers)
        epoch = int(self._epoch)
        # States are of the epoch in which they were loaded; the next epochs begin at their beginning.
        states = self._states if epoch == self._resumed_epoch else {}
        # States of more workers are found here. A state of fewer workers does not fit its worker's new share, which
        # `load_state_dict` finds.
        if beyond := [number for number in states if number >= workers]:
            raise UsageError(
                f"there is a state of worker {max(beyond)}, but num_workers is {workers if info else 0}; use as many "
                "workers as before"
            )
        stream = batches(self._sources, epoch=epoch, **self._options).of_worker(worker, workers)
        if worker in states:
            stream.load_state_dict(states[worker])
        for batch in stream:
            yield {**_tensors(batch), "worker": worker, "state": stream.state_dict()}


def _tensors(batch: Batch) -> dict[str, Any]:
    """The arrays as tensors and lists. Integers become int64, which torch needs for embeddings, gather and losses."""
    tensors: dict[str, Any] = {}
    for name, array in batch.arrays().items():
        if array.dtype == np.object_:
            tensors[name] = array.tolist()
        else:
            tensors[name] = torch.from_numpy(array.astype(np.int64) if array.dtype == np.int32 else array)
    return tensors
