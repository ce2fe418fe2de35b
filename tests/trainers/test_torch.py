"""A torch DataLoader gives every sequence exactly once an epoch, with any number of workers."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import art_otel
from art_otel.store import write_trajectories
from art_otel.trajectories import Trajectory
from tests.data.rollouts import rollout as rollout_of
from tests.trainers.environment import trainer_python
from tests.trajectories.calls import call, choice

ROOT = Path(__file__).parents[2]
ROLLOUTS = 23
FILES = 7


def rollout(number: int) -> Trajectory:
    sampled = choice("!", [100 + number, 7])
    asked = call(number, "?", [number] * (1 + number % 3), sampled, policy_version=None if number % 2 else "3")
    group = None if number == 0 else f"g{number % 4}"
    return rollout_of([asked], f"r{number:02}", group_id=group, reward=float(number))


@pytest.fixture(scope="module")
def dataset(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("torch")
    for number in range(FILES):
        write_trajectories([rollout(n) for n in range(number, ROLLOUTS, FILES)], folder / f"{number}.parquet")
    return folder


@pytest.fixture(scope="module")
def read(dataset) -> dict:
    python = trainer_python("torch", "torch==2.13.0", "numpy>=1.26", "msgspec>=0.22", "pyarrow>=18", "zstandard>=0.23")
    script = Path(__file__).with_name("read_with_torch.py")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([python, script, dataset], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def rows(batches: list[dict]) -> list[tuple]:
    """Every sequence of padded batches as plain values, in any order."""
    found = []
    for batch in batches:
        for row, rollout_id in enumerate(batch["rollout_ids"]):
            size = np.count_nonzero(batch["segment_ids"][row])
            tokens = (batch[name][row][:size] for name in ("input_ids", "loss_mask", "logprobs", "advantages"))
            known = (rollout_id, batch["group_ids"][row], batch["policy_version"][row], batch["rewards"][row])
            found.append((*known, *map(tuple, tokens)))
    return sorted(found, key=lambda each: each[0])


def numpy_batches(dataset: Path, **options) -> list[dict]:
    names = ("input_ids", "loss_mask", "logprobs", "advantages", "segment_ids", "rewards")
    texts = ("rollout_ids", "group_ids", "policy_version")
    return [{name: batch[name].tolist() for name in (*names, *texts)} for batch in art_otel.batches(dataset, **options)]


CASES = [
    "0 workers",
    "2 workers",
    "stopped, 0 workers",
    "stopped, 2 workers",
    "2 ranks of 2 workers",
]


@pytest.mark.trainer
@pytest.mark.parametrize("case", CASES)
def test_every_sequence_comes_once_an_epoch_as_numpy_has_it(dataset, read, case):
    expected = rows(numpy_batches(dataset))
    assert len(expected) == ROLLOUTS
    for epoch in read[case]:
        assert rows(epoch) == expected


@pytest.mark.trainer
def test_one_process_gives_the_batches_of_numpy_in_their_order(dataset, read):
    for epoch, batches in enumerate(read["0 workers"]):
        expected = numpy_batches(dataset, seed=3, shuffle_buffer=1, epoch=epoch)
        assert [{name: batch[name] for name in expected[0]} for batch in batches] == expected


@pytest.mark.trainer
def test_epochs_differ_and_all_workers_work(read):
    for case in CASES:
        first, second = ([rollout for batch in epoch for rollout in batch["rollout_ids"]] for epoch in read[case])
        assert first != second
    assert {batch["worker"] for batch in read["2 workers"][1]} == {0, 1}


REFUSED = {
    "a state of no worker": 'give {batch["worker"]: batch["state"]}',
    "the second of 2 workers alone": "there is a state of worker 1, but num_workers is 0",
    "2 workers": "there is a state of worker 1, but num_workers is 0",
    "the first of 2 workers alone": "state: its order is ",
    "a later epoch=1.5": "epoch=1.5: ",
    "no paths": "give paths",
    "epoch=None": "epoch=None: ",
    "epoch=1.5": "epoch=1.5: ",
    "rank=None": "rank=None: ",
    "states=[1]": "states=[1]: ",
    "states='x'": "states='x': ",
}


@pytest.mark.trainer
@pytest.mark.parametrize("case", REFUSED)
def test_states_and_options_that_do_not_fit_are_refused(read, case):
    assert REFUSED[case] in read["refusals"][case]


@pytest.mark.trainer
def test_states_are_of_the_epoch_that_was_resumed(read):
    assert read["a later epoch"] == ROLLOUTS


def test_without_torch_it_says_what_to_install():
    code = "import sys; sys.modules['torch'] = None; import art_otel.data.torch_dataset"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "ImportError: art_otel.data.torch_dataset needs torch: pip install 'art-otel[torch]'" in done.stderr
