"""A minute of fuzzing finds nothing; `.ci/full` fuzzes for an hour."""

import pytest

from tests.fuzz import __main__ as fuzz

pytestmark = pytest.mark.fuzz


def test_a_minute_of_fuzzing_finds_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr("sys.argv", ["fuzz", "--minutes", "1", "--findings", str(tmp_path)])
    assert fuzz.main() == 0, tmp_path
