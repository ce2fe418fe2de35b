"""The output folder of `art-otel convert` is replaced as a whole or left alone, and named where nobody can write it."""

import json
import os

import pytest

from art_otel.cli import main
from tests.cli.test_convert import SYNC, run
from tests.conversions import RECORDINGS


def test_the_dataset_is_replaced_as_a_whole(tmp_path, capsys):
    run(capsys, "convert", RECORDINGS, "--out", tmp_path)
    run(capsys, "convert", SYNC, "--out", tmp_path)
    _, out, _ = run(capsys, "show", tmp_path, "--json")
    assert len(json.loads(out)) == 1
    assert [path.name.partition("-0")[0] for path in sorted(tmp_path.iterdir())] == ["_report.json", "part"]


def test_what_a_killed_run_left_behind_is_removed(tmp_path, capsys):
    left = tmp_path / ".art-otel-scratch-dead"
    left.mkdir()
    (left / "bucket-00000").write_bytes(b"x")
    assert run(capsys, "convert", SYNC, "--out", tmp_path)[0] == 0
    assert not left.exists()


def test_an_output_folder_that_is_a_file_is_exit_2(tmp_path, capsys):
    (tmp_path / "out").write_text("")
    code, _, err = run(capsys, "convert", SYNC, "--out", tmp_path / "out")
    assert code == 2
    assert "is a file" in err


def test_an_output_folder_that_cannot_be_made_is_exit_1(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    code, _, err = run(capsys, "convert", SYNC, "--out", tmp_path / "file" / "out")
    assert code == 1
    assert "file" in err


@pytest.mark.parametrize(
    ("out", "problem"),
    [
        ("https://bucket/ds", "is a URL"),
        (os.fsdecode(b"\xff"), "is not UTF-8"),
        ("", "an empty path is not a folder name; is a variable unset?"),
    ],
)
@pytest.mark.parametrize("verb", ["convert", "export"])
def test_where_nothing_can_be_written_is_wrong_usage(tmp_path, capsys, monkeypatch, verb, out, problem):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as stopped:
        main([verb, str(SYNC), "--out", out, *(["--to", "trl"] if verb == "export" else [])])
    assert stopped.value.code == 2
    assert problem in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_an_export_is_not_written_into_a_store(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as stopped:
        main(["export", str(SYNC), "--to", "trl", "--out", "s3://bucket/ds"])
    assert stopped.value.code == 2
    assert "is a URL; write to a local folder and copy it there" in capsys.readouterr().err


@pytest.mark.parametrize(("target", "below"), [("nowhere", ""), ("nowhere", "/deeper"), ("out", "")])
def test_a_link_in_the_place_of_the_output_folder_is_named(tmp_path, capsys, target, below):
    (tmp_path / "out").symlink_to(target)
    code, _, err = run(capsys, "convert", SYNC, "--out", f"{tmp_path}/out{below}")
    assert (code, err.count("\n")) == (1, 1)
    assert f"{tmp_path}/out: is a link to a folder that does not exist; create that folder, or choose another" in err


def test_what_cannot_be_read_at_all_leaves_an_earlier_dataset_alone(tmp_path, capsys):
    run(capsys, "convert", SYNC, "--out", tmp_path / "out")
    before = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    (tmp_path / "picture.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(100))
    code, _, err = run(capsys, "convert", tmp_path / "picture.png", "--out", tmp_path / "out")
    assert code == 1
    assert "picture.png" in err
    assert {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()} == before
