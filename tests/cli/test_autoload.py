"""`art-otel autoload` in an environment of its own, as its programs meet it."""

import sys
import venv
from pathlib import Path

import pytest

from art_otel.cli import main
from art_otel.cli.autoload import NAME, autoload_path
from tests.tracing.setup.programs import CALL, run_command

ON = {"ART_OTEL_ENABLED": "1", "PYTHONPATH": ""}


@pytest.fixture
def python(tmp_path) -> Path:
    """An environment that has what this one has, by a link in its site-packages."""
    venv.create(tmp_path / "venv", with_pip=False, symlinks=True)
    (site,) = (tmp_path / "venv").glob("lib/python*/site-packages")
    linked = [entry for entry in sys.path if entry.endswith("site-packages")]
    root = Path(__file__).parents[2]
    (site / "linked.pth").write_text("\n".join([*linked, str(root)]) + "\n")
    return tmp_path / "venv" / "bin" / "python"


def autoload(python: Path, folder: Path, action: str, **settings: str):
    return run_command(folder, python, "-m", "art_otel", "autoload", action, **{"PYTHONPATH": "", **settings})


@pytest.mark.long
def test_every_program_is_traced_once_it_is_installed(python, tmp_path):
    (tmp_path / "app.py").write_text(CALL)
    before = autoload(python, tmp_path, "status")
    assert (before.code, "is not there" in before.output) == (1, True)
    assert autoload(python, tmp_path, "install").code == 0
    status = autoload(python, tmp_path, "status")
    assert (status.code, status.output.rstrip().endswith(f"{NAME} works")) == (0, True)
    assert run_command(tmp_path, python, "app.py", PYTHONPATH="").spans == []
    assert run_command(tmp_path, python, "-I", "app.py", **ON).ended == ["chat m", "rollout app.py"]
    assert autoload(python, tmp_path, "remove").code == 0
    assert autoload(python, tmp_path, "remove").code == 0
    assert autoload(python, tmp_path, "status").code == 1


def test_installing_twice_and_several_ways_at_once_are_one(python, tmp_path):
    (tmp_path / "app.py").write_text(f"import art_otel{CALL}")
    assert autoload(python, tmp_path, "install").code == 0
    assert autoload(python, tmp_path, "install", **ON).code == 0
    found = run_command(tmp_path, python, "-m", "art_otel", "run", "--", python, "app.py", **ON)
    assert found.ended == ["chat m", "rollout app.py"], found.errors
    (told,) = [line for line in found.errors.splitlines() if line.startswith("art-otel: ")]
    assert told.startswith("art-otel: 1 call in ")
    assert told.endswith(" --out dataset` makes trajectories")


def test_it_does_not_load_anything_where_the_variable_is_not_set(python, tmp_path):
    assert autoload(python, tmp_path, "install").code == 0
    code = (
        "import sys; print([name for name in sys.modules if name.startswith(('art_otel', 'opentelemetry', 'wrapt'))])"
    )
    assert run_command(tmp_path, python, "-c", code, PYTHONPATH="").output == "[]\n"


def test_it_is_silent_where_art_otel_has_been_removed(python, tmp_path):
    assert autoload(python, tmp_path, "install").code == 0
    next((tmp_path / "venv").glob("lib/python*/site-packages/linked.pth")).unlink()
    found = run_command(tmp_path, python, "-c", "print('runs')", **ON)
    assert (found.output, found.errors) == ("runs\n", "")


def test_a_file_that_is_not_read_does_not_work(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("sysconfig.get_path", lambda _: str(tmp_path))
    assert autoload_path() == tmp_path / NAME
    assert main(["autoload", "install"]) == 1
    assert "does not work" in capsys.readouterr().out
    assert main(["autoload", "remove"]) == 0
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_exit_1(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("sysconfig.get_path", lambda _: str(tmp_path / "gone"))
    assert main(["autoload", "install"]) == 1
    assert "gone" in capsys.readouterr().err
