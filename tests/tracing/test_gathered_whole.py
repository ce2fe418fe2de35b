"""A small version of `tests.benchmarks.gathering`: what a real server was asked comes back whole, in little memory."""

import pytest

from tests.benchmarks.gathering import run

pytestmark = pytest.mark.long

ROLLOUTS, CALLS, PROMPT_BYTES = 24, 4, 20_000
MOST = 80
"""Megabytes: that of the libraries which are loaded on the way, and of one rollout that is read."""


@pytest.mark.parametrize("case", ["no spool", pytest.param("spool", marks=pytest.mark.program)])
def test_what_is_gathered_comes_back_whole_in_little_memory(tmp_path, case):
    options = ["--spool", str(tmp_path)] if case == "spool" else []
    found = run(ROLLOUTS, CALLS, PROMPT_BYTES, *options)
    assert found["whole"] == ROLLOUTS
    assert found["beyond"] < MOST
