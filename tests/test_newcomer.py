"""A newcomer builds, installs and tries art-otel in a fresh environment, far from the checkout."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import httpx
import pytest

from art_otel.demo import RECORDINGS
from tests.viewer.served import exported

ROOT = Path(__file__).parent.parent

pytestmark = pytest.mark.install


@pytest.fixture(scope="module")
def uv() -> str:
    found = shutil.which("uv")
    if found is None or subprocess.run([found, "--version"], capture_output=True, check=False).returncode:
        pytest.skip("uv is not installed: pip install uv")
    return found


@pytest.fixture(scope="module")
def wheel(uv, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("dist")
    run(uv, "build", "--wheel", "--out-dir", out, ROOT, cwd=out)
    (built,) = out.glob("art_otel-*.whl")
    return built


@pytest.fixture(scope="module")
def art_otel(uv, wheel, tmp_path_factory) -> Path:
    """The command in an environment that has nothing but the wheel and what it and its demo ask for."""
    folder = tmp_path_factory.mktemp("environment")
    scripts = folder / "venv" / ("Scripts" if os.name == "nt" else "bin")
    run(uv, "venv", "--python", sys.executable, folder / "venv", cwd=folder)
    run(uv, "pip", "install", "--python", scripts / "python", f"{wheel}[client]", cwd=folder)
    return scripts / "art-otel"


def run(*command, cwd: Path) -> str:
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    words = [str(word) for word in command]
    done = subprocess.run(words, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(words)}\n{done.stdout}{done.stderr}"
    return done.stdout


def test_the_wheel_has_the_recordings_and_the_types_and_no_tests(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {f"art_otel/demo/recordings/{path.name}" for path in RECORDINGS.iterdir()} <= names
    assert "art_otel/py.typed" in names
    assert {name.split("/")[0] for name in names} == {
        "art_otel",
        wheel.name.removesuffix("-py3-none-any.whl") + ".dist-info",
    }


def test_the_demo_runs_elsewhere(art_otel, tmp_path):
    shown = run(art_otel, "demo", "--steps", "2", "--out", tmp_path / "out", cwd=tmp_path)
    assert str(ROOT) not in shown
    assert "128 complete, 0 incomplete" in shown
    assert list((tmp_path / "out" / "dataset").glob("part-00000-*.parquet"))


def test_the_recordings_convert_elsewhere(art_otel, tmp_path):
    assert "● trains" in run(art_otel, "demo", "--recordings", cwd=tmp_path)


def test_a_dump_converts_and_reads_back_elsewhere(art_otel, tmp_path):
    shutil.copytree(RECORDINGS, tmp_path / "dumps")
    report = json.loads(run(art_otel, "convert", "dumps", "--out", "out", "--json", cwd=tmp_path))
    assert report["trajectories"]["total"] == 6
    code = "import art_otel; print(*[one.rollout_id for one in art_otel.read_trajectories('out')])"
    assert "r-sync_tools" in run(art_otel.with_name("python"), "-W", "error", "-c", code, cwd=tmp_path)


@pytest.mark.parametrize("runner", ["uvx", "pipx"])
def test_nothing_has_to_be_installed(uv, runner, tmp_path):
    """As the quickstart says; pipx comes by uvx here."""
    once = (
        [uv, "tool", "run", "--from", ROOT] if runner == "uvx" else [uv, "tool", "run", "pipx", "run", "--spec", ROOT]
    )
    shutil.copytree(RECORDINGS, tmp_path / "dumps")
    assert "6 trajectories" in run(*once, "art-otel", "convert", "dumps", "--out", "out", cwd=tmp_path)
    run(*once, "art-otel", "view", "out", "--html", "page.html", cwd=tmp_path)
    assert "r-sync_tools" in exported(tmp_path / "page.html")[0]
    command = list(map(str, [*once, "art-otel", "serve", "--listen", "127.0.0.1:0", "--no-grpc"]))
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True, start_new_session=True) as serving:
        try:
            assert serving.stderr is not None
            address = next(found[0] for line in serving.stderr if (found := re.search(r"http://127[.0-9]+:\d+", line)))
            assert httpx.get(f"{address}/healthz").status_code == 200
        finally:
            os.killpg(serving.pid, signal.SIGTERM)
