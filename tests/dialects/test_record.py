"""What the project records itself: its rows are whole, and the command makes what the folder has."""

import re
import shutil

import pytest

from tests.dialects.judging import expected_verdict, verdict
from tests.dialects.record import HERE, PROGRAMS, record
from tests.dialects.recording.files import difference
from tests.dialects.recording.tables import ROWS

NAMES = {path.name.removesuffix(".truth.json") for path in HERE.glob("*.truth.json")}


def test_each_row_is_of_a_recording_and_has_a_program():
    assert set(ROWS) <= NAMES
    assert all((PROGRAMS / row.run[0]).exists() for row in ROWS.values())
    assert all("==" in one or "@" in one[1:] for row in ROWS.values() for one in row.pins)


def test_the_readme_names_those_that_were_made_by_hand():
    _, _, by_hand = (HERE / "README.md").read_text(encoding="utf-8").partition("## Made by hand")
    named = "".join(re.findall(r"^- (`.+?`):", by_hand, re.MULTILINE))
    assert set(re.findall(r"`(\w+)`", named)) == NAMES - set(ROWS)


@pytest.mark.live
def test_the_command_makes_the_recording_again(tmp_path, capsys):
    name = "anthropic_native_sync"
    if shutil.which("uv") is None:
        pytest.skip("uv is not installed: pip install uv")
    made = record(name, tmp_path)
    said = capsys.readouterr().out
    if "pip install failed" in said:
        pytest.skip(said)
    assert made, said
    assert verdict(tmp_path, name, tmp_path / "out") == expected_verdict(name)
    assert not difference(HERE, tmp_path, name)
