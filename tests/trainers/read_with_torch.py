"""Runs in torch's environment: read a dataset through DataLoaders; print JSON, a case a line of the plan."""

import json
import multiprocessing
import sys
from collections.abc import Callable
from functools import partial

import torch
from torch.utils.data import DataLoader

import art_otel
from art_otel.data.torch_dataset import TorchBatches
from art_otel.errors import UsageError

TYPES = {
    "input_ids": torch.int64,
    "segment_ids": torch.int64,
    "position_ids": torch.int64,
    "loss_mask": torch.bool,
    "logprobs": torch.float32,
    "advantages": torch.float32,
    "rewards": torch.float64,
    "retokenized": torch.bool,
}


def plain(batch: dict) -> dict:
    """A batch in JSON values, its types checked."""
    for name, dtype in TYPES.items():
        assert batch[name].dtype == dtype, name
    tensors = {name: batch[name].tolist() for name in TYPES}
    return tensors | {name: batch[name] for name in ("group_ids", "rollout_ids", "policy_version", "worker")}


def loader(dataset: TorchBatches, workers: int, **options) -> DataLoader:
    """A loader whose workers get a pickled copy of the dataset, as on every platform."""
    method = {"multiprocessing_context": "forkserver"} if workers else {}
    return DataLoader(dataset, batch_size=None, num_workers=workers, **method, **options)


def epochs(path: str, workers: int, **options) -> list[list[dict]]:
    """Two epochs of one dataset."""
    dataset = TorchBatches(path, seed=3, **options)
    batches = loader(dataset, workers, persistent_workers=bool(workers))
    found = []
    for epoch in (0, 1):
        dataset.set_epoch(epoch)
        found.append([plain(batch) for batch in batches])
    return found


def stopped(path: str, workers: int, after: int) -> list[dict]:
    """An epoch that is stopped after some batches and gone on with in new loaders, then the next epoch."""
    states, found = {}, []
    for number, batch in enumerate(loader(TorchBatches(path, seed=3, shuffle_buffer=1), workers)):
        if number == after:
            break
        found.append(plain(batch))
        states[batch["worker"]] = batch["state"]
    dataset = TorchBatches(path, seed=3, shuffle_buffer=1)
    dataset.load_state_dict(json.loads(json.dumps(states)))
    found += [plain(batch) for batch in loader(dataset, workers)]
    dataset.set_epoch(1)
    return [found, [plain(batch) for batch in loader(dataset, workers)]]


def refused(make: Callable[[], object]) -> str:
    """What is said to it."""
    try:
        make()
    except UsageError as error:
        return str(error)
    return "taken"


def resumed(path: str, states: object) -> TorchBatches:
    """A dataset that goes on from these states."""
    dataset = TorchBatches(path)
    dataset.load_state_dict(states)
    return dataset


def state_of(path: str, worker: int, workers: int) -> dict:
    """The state of one of several workers before its first batch."""
    return art_otel.batches(path).of_worker(worker, workers).state_dict()


def refusals(path: str) -> dict[str, str]:
    """What is said to states and options that do not fit."""
    (batch, *_) = loader(TorchBatches(path), 0)
    first, second = ({worker: state_of(path, worker, 2)} for worker in (0, 1))
    return {
        "a state of no worker": refused(lambda: resumed(path, batch["state"])),
        "the second of 2 workers alone": refused(lambda: list(loader(resumed(path, second), 0))),
        "2 workers": refused(lambda: list(loader(resumed(path, first | second), 0))),
        "the first of 2 workers alone": refused(lambda: list(loader(resumed(path, first), 0))),
        "a later epoch=1.5": refused(lambda: TorchBatches(path).set_epoch(1.5)),
        "no paths": refused(lambda: TorchBatches(None)),
        **{f"states={states!r}": refused(partial(resumed, path, states)) for states in ([1], "x")},
        **{
            f"{name}={value!r}": refused(partial(TorchBatches, path, **{name: value}))
            for name, value in [("epoch", None), ("epoch", 1.5), ("rank", None)]
        },
    }


def later_epoch(path: str) -> int:
    """How many sequences another epoch has than the one that the states are of."""
    dataset = resumed(path, {1: state_of(path, 1, 2)})
    dataset.set_epoch(1)
    return sum(len(batch["rollout_ids"]) for batch in loader(dataset, 0))


def main(path: str) -> None:
    """Every case by its name."""
    multiprocessing.set_forkserver_preload(["torch", "art_otel.data.torch_dataset"])
    answer = {f"{workers} workers": epochs(path, workers, shuffle_buffer=1) for workers in (0, 2)}
    answer["stopped, 0 workers"] = stopped(path, 0, 3)
    answer["stopped, 2 workers"] = stopped(path, 2, 5)
    shards = [epochs(path, 2, shuffle_buffer=1, rank=rank, world_size=2) for rank in range(2)]
    answer["2 ranks of 2 workers"] = [[*one, *other] for one, other in zip(*shards, strict=True)]
    answer["refusals"] = refusals(path)
    answer["a later epoch"] = later_epoch(path)
    json.dump(answer, sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1])
