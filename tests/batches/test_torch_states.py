"""TorchBatches go on with the states of as many workers as there are."""

import pytest

import art_otel
from art_otel.errors import UsageError
from tests.batches.token_rollouts import talk

pytest.importorskip("torch")

from torch.utils.data import DataLoader

from art_otel.batches.torch_dataset import TorchBatches

FOUND = [talk(f"r-{number}", 1, reward=1.0) for number in range(6)]


def state_of(worker: int, workers: int) -> dict:
    return {worker: art_otel.batches(FOUND, shard=(worker, workers)).state}


@pytest.mark.parametrize(
    ("states", "problem"),
    [
        (state_of(1, 2), "has a state of worker 1, but num_workers is 0"),
        (state_of(0, 2) | state_of(1, 2), "has a state of worker 1, but num_workers is 0"),
        (state_of(0, 2), "its order is "),
    ],
)
def test_states_of_another_number_of_workers_are_refused(states, problem):
    with pytest.raises(UsageError, match=f"^resume: {problem}"):
        list(DataLoader(TorchBatches(FOUND, resume=states), batch_size=None))


def test_states_are_of_the_epoch_that_was_resumed():
    dataset = TorchBatches(FOUND, resume=state_of(1, 2))
    dataset.set_epoch(1)
    (batch,) = DataLoader(dataset, batch_size=None)
    assert len(batch["rollout_ids"]) == len(FOUND)


@pytest.mark.parametrize(
    "options",
    [{"epoch": None}, {"epoch": 1.5}, {"shard": None}, {"resume": [1]}, {"resume": "x"}, {"resume": {0: None}}],
)
def test_options_that_make_no_sense_are_refused_at_once(options):
    (name,) = options
    with pytest.raises(UsageError, match=f"^{name}="):
        TorchBatches(FOUND, **options)
    with pytest.raises(UsageError, match=r"^epoch=1\.5"):
        TorchBatches(FOUND).set_epoch(1.5)
    with pytest.raises(UsageError, match="give paths"):
        TorchBatches(None)
