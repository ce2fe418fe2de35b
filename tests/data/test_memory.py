"""Memory: that of a window of row groups, whatever the size of the dataset."""

import subprocess
import sys

import pytest

from art_otel.calls import Logprobs, TokenIds
from art_otel.store import FileLimits, write_trajectories
from tests.data.rollouts import rollout
from tests.trajectories.calls import call, choice

TOKENS = 400_000

READER = """
import sys
import art_otel

batches = art_otel.batches(sys.argv[1], batch_size=1, shuffle_buffer=2, seed=1, advantage=None)
assert sum(batch.loss_mask.sum() for batch in batches) == int(sys.argv[2])
print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""
"""Tells the most memory it held in KiB. `ru_maxrss` would count its parent's, too."""


def peak(folder, count: int) -> int:
    """The most memory, in KiB, that reading so many row groups took."""
    sampled = choice("a", None)
    long = type(sampled)(
        index=0,
        message=sampled.message,
        token_ids=TokenIds(bytes(4 * TOKENS)),
        logprobs=Logprobs(bytes(4 * TOKENS)),
    )
    found = (rollout([call(0, "q", [1], long)], f"r-{number:02}") for number in range(count))
    write_trajectories(found, folder, limits=FileLimits(group_rows=1))
    command = [sys.executable, "-c", READER, str(folder), str(count * TOKENS)]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


@pytest.mark.flood
def test_memory_does_not_grow_with_the_number_of_row_groups(tmp_path):
    few, many = peak(tmp_path / "few", 8), peak(tmp_path / "many", 40)
    # One row group is about 8 MB of arrays: 32 more would be 250 MB.
    assert many < 1.3 * few
