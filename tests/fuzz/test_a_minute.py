"""A minute of fuzzing finds nothing; `.ci/full` fuzzes for an hour."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.fuzz


def test_a_minute_of_fuzzing_finds_nothing(tmp_path):
    command = [sys.executable, "-m", "tests.fuzz", "--minutes", "1", "--findings", str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr[-6_000:]
