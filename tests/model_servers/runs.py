"""Runs: agents in programs of their own, and the trajectories of what was recorded of them."""

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import art_otel
from tests.model_servers.servers import ModelServer

_ROOT = Path(__file__).parents[2]
_ASKS = Path(__file__).with_name("asks.py")
_FAILED = re.compile(r"[a-z_-]+: \w+Error: ")
"""How programs tell of an ask that failed: its name and the exception."""


def ask(server: ModelServer, address: str, *chosen: str, refusal: str | None = None) -> str:
    """Run agents, with clients that know nothing of art-otel. What is asked may be refused with such words."""
    return _run([str(server.python), str(_ASKS), address, *chosen], refusal)


def run_app(server: ModelServer, folder: Path, *chosen: str, refusal: str | None = None) -> None:
    """Run README's app."""
    _run([sys.executable, "-m", "tests.model_servers.app", server.url, str(folder), *chosen], refusal)


def _run(command: list[str], refusal: str | None) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=1800, cwd=_ROOT)
    failed = [line for line in done.stderr.splitlines() if _FAILED.match(line)]
    assert done.returncode == 0 or failed, done.stderr
    assert all(refusal is not None and refusal in line for line in failed), failed
    return done.stdout


def converted(folder: Path) -> list[art_otel.Trajectory]:
    """The trajectories of the spans in a folder, as `art-otel convert` has them."""
    art_otel.convert(folder / "spool", folder / "dataset")
    return [
        one if one.name == "agent" else replace(one, rollout_id=one.name)  # as its ask is called
        for one in art_otel.read_trajectories(folder / "dataset")
    ]
