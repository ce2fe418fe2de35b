"""Record anew what the project records itself: `uv run python -m tests.dialects.record [NAME…] [--list] [--before]`.

Invariant: a recording is put in place only if what becomes of it is what `expected.py` says; else the old one stays.
Environments are made first where they are not there yet, which needs the network.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from tests.conversions import with_logs
from tests.dialects.judging import expected_verdict, verdict
from tests.dialects.recording.environments import FOLDER, InstallError, node_command, python_command
from tests.dialects.recording.files import difference, write
from tests.dialects.recording.server import RecordingServer
from tests.dialects.recording.tables import HARDER, ROWS
from tests.dialects.recording.tables.row import Row, before

HERE: Final = Path(__file__).parent
PROGRAMS: Final = HERE / "recording" / "programs"


def main() -> int:
    """Record the named ones, or all; the exit code says whether each is in place."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="recordings of `--list`; all without a name")
    parser.add_argument("--list", action="store_true", help="say which recordings the project makes itself")
    parser.add_argument("--before", action="store_true", help="judge the release before the newest, and keep nothing")
    given = parser.parse_args()
    if unknown := [name for name in given.names if name not in ROWS]:
        parser.error(f"no row in recording/tables/: {', '.join(unknown)}")
    if given.list:
        print(*ROWS, sep="\n")
        return 0
    names = given.names or (HARDER if given.before else ROWS)
    said = [record(name, None if given.before else HERE) for name in names]
    return 0 if all(said) else 1


def record(name: str, folder: Path | None) -> bool:
    """Make one recording, judge it, and put it in place; without a folder, judge one of the release before."""
    row = before(ROWS[name]) if folder is None else ROWS[name]
    if folder is None and row == ROWS[name]:
        return True
    try:
        command = _command(row)
    except InstallError as error:
        print(f"{name}: {error}")
        return False
    with tempfile.TemporaryDirectory() as home, RecordingServer() as server:
        settings = _settings(name, server.url, home) | row.settings
        done = subprocess.run(command, env=settings, cwd=home, capture_output=True, text=True, check=False, timeout=300)
    if done.returncode != 0:
        print(f"{name}: the program failed: {done.stderr.strip()[-2000:]}")
        return False
    if not server.spans:
        print(f"{name}: no span came: {done.stderr.strip()[-500:]}")
        return False
    with tempfile.TemporaryDirectory() as scratch:
        made = write(Path(scratch), name, server, hidden=[home])
        found, wanted = verdict(Path(scratch), name, Path(scratch) / "out"), expected_verdict(name)
        if found != wanted:
            print(f"{name}: {found} and not {wanted}, so the old one stays")
            return False
        if folder is None:
            print(f"{name} before: {found}{difference(HERE, Path(scratch), name)}")
            return True
        if len(with_logs(folder / f"{name}.jsonl")) > 1 and not server.logs:
            print(f"{name}: no log record came, so the old one stays")
            return False
        print(f"{name}: {found}{difference(folder, Path(scratch), name)}")
        for file in made:
            (folder / file.name).write_bytes(file.read_bytes())
    return True


def _command(row: Row) -> list[str]:
    program, *arguments = row.run
    command = node_command if program.endswith(".mjs") else python_command
    return [*command(PROGRAMS / program, row.pins, day=row.day), *arguments]


def _settings(name: str, url: str, home: str) -> dict[str, str]:
    """Nothing of this machine but the path to programs: no settings, no keys, no files of a user."""
    keys = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GOOGLE_API_KEY", "LANGSMITH_API_KEY")
    return {
        "PATH": os.environ["PATH"],
        "HOME": home,
        "NO_PROXY": "127.0.0.1",
        "MODEL_URL": url,
        "OTEL_SERVICE_NAME": name,
        "OTEL_EXPORTER_OTLP_ENDPOINT": url,
        "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "PYTHONPYCACHEPREFIX": str(FOLDER / "bytecode"),
        **dict.fromkeys(keys, "key"),
    }


if __name__ == "__main__":
    sys.exit(main())
