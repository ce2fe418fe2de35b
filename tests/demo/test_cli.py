"""`art-otel demo` as a person sees it."""

import json
import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from art_otel.cli import main
from art_otel.cli.demo import plot
from art_otel.demo import training


@pytest.mark.long
def test_the_demo_leaves_what_it_says(tmp_path, capsys):
    out = tmp_path / "out"
    assert main(["demo", "--steps", "1", "--seed", "3", "--out", str(out)]) == 0
    said = capsys.readouterr().out
    row = next(line.split() for line in said.splitlines() if line.split()[:1] == ["0"])
    assert row[2] == row[3]
    assert "64 trajectories" in said
    assert json.loads((out / "dataset" / "_report.json").read_text())["trajectories"]["complete"] == 64
    run = out / "demo" / "models" / "guide"
    assert len((run / "history.jsonl").read_text().splitlines()) == 1
    for path in (out / "spool", out / "dataset", out / "dataset" / "_report.json", run):
        assert str(path) in said
        assert path.exists()
    assert main(["demo", "--out", str(out)]) == 2
    said = capsys.readouterr()
    assert "choose a new folder" in said.err
    assert said.out == ""


def test_what_is_in_the_way_is_said_before_anything_else(tmp_path, capsys, monkeypatch):
    (tmp_path / "file").touch()
    for options, what in ((["--out"], "file: is "), (["--recordings"], "dumps: cannot be written ")):
        assert main(["demo", *options, str(tmp_path / "file")]) == 2
        said = capsys.readouterr()
        assert (said.out, what in said.err) == ("", True)
    monkeypatch.setattr(training, "find_spec", lambda _: None)
    assert main(["demo", "--out", str(tmp_path / "new")]) == 2
    said = capsys.readouterr()
    assert (said.out, "openai client" in said.err) == ("", True)
    assert not (tmp_path / "new").exists()


@pytest.mark.program
def test_where_otel_is_turned_off_it_says_so(tmp_path):
    command = [sys.executable, "-m", "art_otel", "demo", "--steps", "1", "--out", str(tmp_path / "out")]
    environment = {**os.environ, "OTEL_SDK_DISABLED": "true"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("art-otel: no rollout was recorded")


@pytest.mark.program
def test_variables_of_the_shell_do_not_disturb_it(tmp_path):
    command = [sys.executable, "-m", "art_otel", "demo", "--steps", "1", "--out", str(tmp_path / "out")]
    others = {"ART_OTEL_ENABLED": "0", "ART_OTEL_SPOOL": "0", "ART_OTEL_REQUEST_TOKENS": "0", "OPENAI_API_KEY": "sk-x"}
    others["OTEL_PROPAGATORS"] = "none"
    proxies = dict.fromkeys(("HTTP_PROXY", "http_proxy", "ALL_PROXY"), "http://127.0.0.1:9")
    done = subprocess.run(command, env={**os.environ, **others, **proxies}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "64 complete, 0 incomplete" in done.stdout


@pytest.mark.program
def test_where_not_every_token_is_trained_it_says_so_and_why(tmp_path):
    command = [sys.executable, "-m", "art_otel", "demo", "--steps", "1", "--out", str(tmp_path / "out")]
    off = {"OTEL_PYTHON_DISABLED_INSTRUMENTATIONS": "openai,openai_v2"}
    done = subprocess.run(command, env={**os.environ, **off}, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert "tokens were sampled, 0 of them could be trained (left out: nothing sampled: 64)" in last


@pytest.mark.parametrize("options", [["--steps", "0"], ["--seed", "-1"]])
def test_what_cannot_be_trained_is_refused(options, capsys):
    assert main(["demo", *options]) == 2
    assert "need at least 1 step" in capsys.readouterr().err


def test_a_plot_shows_the_way_up():
    assert list(plot([0.0, 0.5, 1.0])) == [
        "1 ┤      ███",
        "  │      ███",
        "  │      ███",
        "  │      ███",
        "  │   ██████",
        "  │   ██████",
        "  │   ██████",
        "0 ┤   ██████",
        "   0       2",
    ]


@given(st.lists(st.floats(0, 1), min_size=1, max_size=300))
def test_a_plot_has_the_same_size_for_any_number_of_values(values):
    *lines, axis = plot(values)
    assert len(lines) == 8
    assert len({len(line) for line in lines}) == 1
    assert len(axis) <= max(len(lines[0]), 7) <= 63
    assert axis.endswith(str(len(values) - 1))
