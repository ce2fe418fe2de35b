"""Environments: what a recording is made in, of its own: Python packages with uv, or Node packages with npm.

Invariant: an environment's name follows from what it holds, so that it is made once and kept until it is deleted. They
lie below the temporary folder. What a package requires itself is as old as the table's day allows.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

FOLDER: Final = Path(tempfile.gettempdir()) / "art-otel-dialects"


class InstallError(Exception):
    """An environment could not be made."""


def python_command(program: Path, requirements: tuple[str, ...], *, day: str) -> list[str]:
    """The command that runs a Python program where the requirements are installed."""
    folder = _folder(*requirements, day)
    python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    if not _is_finished(folder):
        _run("uv", "venv", "--clear", "--python", sys.executable, str(folder))
        _run("uv", "pip", "install", "--python", str(python), "--exclude-newer", day, *requirements)
        _finish(folder)
    return [str(python), str(program)]


def node_command(program: Path, requirements: tuple[str, ...], *, day: str) -> list[str]:
    """The same for Node, which finds packages beside the program only: so it is copied, with its task."""
    folder = _folder(*requirements, day)
    if not _is_finished(folder):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        _run("npm", "install", "--prefix", str(folder), "--no-audit", "--no-fund", f"--before={day}", *requirements)
        _finish(folder)
    shutil.copy(program.with_name("task.mjs"), folder)
    return ["node", str(shutil.copy(program, folder))]


def _folder(*parts: str) -> Path:
    return FOLDER / hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]


def _is_finished(folder: Path) -> bool:
    return (folder / "installed").exists()


def _finish(folder: Path) -> None:
    (folder / "installed").touch()


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tempfile.gettempdir())
    if done.returncode != 0:
        raise InstallError(f"{' '.join(command[:3])} failed: {done.stderr.strip()[-800:]}")
