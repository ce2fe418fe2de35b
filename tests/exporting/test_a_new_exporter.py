"""The two files of docs/reference/extending.md are an exporter that `art-otel` finds and runs."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from art_otel.store import write_trajectories
from art_otel.trajectories import token_histories
from tests.docs.pages import ROOT, text_of
from tests.exporting.samples import group

BLOCK = re.compile(r"^```(?P<language>\w+)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def project(tmp_path_factory) -> Path:
    """The distribution, as the page has it."""
    blocks = [(block["language"], block["body"]) for block in BLOCK.finditer(text_of("docs/reference/extending.md"))]
    (settings,) = [body for language, body in blocks if language == "toml"]
    (module,) = [body for language, body in blocks if language == "python" and "EXPORTER = " in body]
    assert len(module.splitlines()) <= 50
    folder = tmp_path_factory.mktemp("mini")
    (folder / "pyproject.toml").write_text(settings, encoding="utf-8")
    (folder / "art_otel_mini").mkdir()
    (folder / "art_otel_mini" / "__init__.py").write_text(module, encoding="utf-8")
    return folder


def run(*command, cwd: Path, **variables: str) -> str:
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    words = [str(word) for word in command]
    done = subprocess.run(words, cwd=cwd, env=environment | variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(words)}\n{done.stdout}{done.stderr}"
    return done.stdout


def check(python: Path | str, folder: Path, **variables: str) -> None:
    """The exporter is listed, and writes what the trajectories say."""
    write_trajectories(group(), folder / "out")
    listed = json.loads(run(python, "-m", "art_otel", "export", "--list", "--json", cwd=folder, **variables))
    (mini,) = [one for one in listed if one["name"] == "mini"]
    assert mini["distribution"] == "art-otel-mini 0.1.0"
    assert mini["problem"] is None
    (file_format,) = mini["formats"]
    assert file_format["options"] == {"longest": {"default": "4096", "about": "how many tokens Mini takes"}}
    command = ("export", "out", "--to", "mini", "-o", "mini.jsonl", "--advantage", "dr_grpo", "--json")
    report = json.loads(run(python, "-m", "art_otel", *command, cwd=folder, **variables))
    assert (report["records"], report["trajectories_used"]) == (3, 3)
    assert report["not_carried"]["metadata"]["trajectories"] == 1
    lines = [json.loads(line) for line in (folder / "mini.jsonl").read_text(encoding="utf-8").splitlines()]
    for line, trajectory, advantage in zip(
        lines, sorted(group(), key=lambda one: one.order), (-0.5, 0.0, 0.5), strict=True
    ):
        (history,) = token_histories(trajectory)
        assert line["ids"] == history.token_ids.tolist()
        sampled = zip(line["ids"], history.loss_mask, strict=True)
        assert line["labels"] == [token if trained else -100 for token, trained in sampled]
        assert line["weights"] == [advantage if trained else 0.0 for trained in history.loss_mask]
    with pytest.raises(AssertionError, match=r"none of 3 trajectories is used .longer than Mini takes: 3"):
        run(python, "-m", "art_otel", *command, "--option", "longest=2", cwd=folder, **variables)


@pytest.mark.long
def test_the_exporter_of_the_page_is_found_by_its_entry_point(project, tmp_path):
    # What an installer writes of the pyproject.toml, without one.
    found = tmp_path / "site"
    shutil.copytree(project / "art_otel_mini", found / "art_otel_mini")
    record = found / "art_otel_mini-0.1.0.dist-info"
    record.mkdir()
    (record / "METADATA").write_text("Metadata-Version: 2.1\nName: art-otel-mini\nVersion: 0.1.0\n", encoding="utf-8")
    (record / "entry_points.txt").write_text("[art_otel.exporters]\nmini = art_otel_mini:EXPORTER\n", encoding="utf-8")
    check(sys.executable, tmp_path, PYTHONPATH=str(found))


@pytest.mark.install
def test_the_exporter_of_the_page_builds_and_installs(project, tmp_path):
    uv = shutil.which("uv")
    if uv is None:
        pytest.skip("uv is not installed: pip install uv")
    for source in (ROOT, ROOT / "exporters" / "openai", project):
        run(uv, "build", "--wheel", "--out-dir", tmp_path / "dist", source, cwd=tmp_path)
    python = tmp_path / "venv" / ("Scripts" if os.name == "nt" else "bin") / "python"
    run(uv, "venv", "--python", sys.executable, tmp_path / "venv", cwd=tmp_path)
    wheels = ("--find-links", tmp_path / "dist")
    run(uv, "pip", "install", "--python", python, *wheels, "art-otel[openai-finetuning]", "art-otel-mini", cwd=tmp_path)
    check(python, tmp_path)
    listed = run(python, "-m", "art_otel", "export", "--list", cwd=tmp_path)
    assert "openai (art-otel-openai" in listed
    assert "cannot be loaded" not in listed
