"""Run: an app that knows nothing of tracing, run under the variable alone, and what came of it.

Invariant: an app is given nothing but environment variables and one of the ways to enable tracing; what it printed and
what the server answered is kept beside the trajectories that its spool became.
"""

import json
import os
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from art_otel.store import ConversionReport
from art_otel.trajectories import Trajectory
from tests.conversions import convert_files
from tests.tracing.server import Exchange, ModelServer

APPS: Final = Path(__file__).parents[1] / "tracing" / "apps"
KEY: Final = "sk-" + "e2e" * 16
"""What an API key looks like; it must be found nowhere."""

_OURS: Final = ("ART_OTEL_", "OTEL_", "OPENAI_", "TRACELOOP_", "COV_", "PYTHON")


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """What a run printed, how it ended and what its spool holds."""

    folder: Path
    code: int
    output: str
    errors: str
    trajectories: list[Trajectory]
    report: ConversionReport

    @property
    def printed(self) -> Any:
        """The last line it printed, which is JSON."""
        return json.loads(self.output.splitlines()[-1])

    @property
    def only(self) -> Trajectory:
        """The one trajectory."""
        assert len(self.trajectories) == 1, [(found.name, found.status) for found in self.trajectories]
        return self.trajectories[0]


def environment(server: ModelServer, folder: Path, **settings: str) -> dict[str, str]:
    """The environment of an app: clean of whatever the tests run under."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_OURS)}
    return {
        **kept,
        "OPENAI_BASE_URL": server.url,
        "OPENAI_API_KEY": KEY,
        "ART_OTEL_ENABLED": "1",
        "ART_OTEL_DIR": str(folder / "art"),
        "OTEL_TRACES_EXPORTER": "none",
        "OTEL_METRICS_EXPORTER": "none",
        "OTEL_LOGS_EXPORTER": "none",
        **settings,
    }


def by_run(python: Path, *command: str) -> list[str]:
    """`art-otel run`."""
    return [str(python.parent / "art-otel"), "run", "--", str(python), *command]


def by_instrument(python: Path, *command: str) -> list[str]:
    """`opentelemetry-instrument`."""
    return [str(python.parent / "opentelemetry-instrument"), str(python), *command]


def alone(python: Path, *command: str) -> list[str]:
    """Nothing in front: for apps that import art_otel, and where autoload is installed."""
    return [str(python), *command]


Way = Callable[..., list[str]]


def run_app(server: ModelServer, folder: Path, command: Sequence[str], **settings: str) -> Run:
    """Run a command to its end and convert its spool."""
    done = subprocess.run(
        command,
        env=environment(server, folder, **settings),
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    return collect(folder, done.returncode, done.stdout, done.stderr)


def collect(folder: Path, code: int = 0, output: str = "", errors: str = "") -> Run:
    """What came of a run that has ended."""
    trajectories, report = convert_files(folder / "dataset", folder / "art" / "spool")
    return Run(folder=folder, code=code, output=output, errors=errors, trajectories=trajectories, report=report)


def wait_until(holds: Callable[[], bool], what: str, seconds: float = 30) -> None:
    """Wait for something that another process does."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(0.02)


def response_ids(trajectories: Sequence[Trajectory]) -> list[str]:
    """The response ids of every call that has one, sorted."""
    return sorted(call.response_id for found in trajectories for call in found.calls if call.response_id)


def answer_ids(exchanges: Sequence[Exchange]) -> list[str]:
    """The response ids the server gave, sorted."""
    return sorted(exchange.answer["id"] for exchange in exchanges if exchange.answer is not None)
