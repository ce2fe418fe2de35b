"""`art-otel run`: a program, traced, without a change to it."""

import argparse
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from art_otel.errors import UsageError
from art_otel.spool.runs import DEFAULT_DIR, DIR, expanded
from art_otel.tracing.autoload import ENABLED

STARTUP: Final = Path(__file__).parent.parent / "tracing" / "startup"
"""The folder whose sitecustomize starts tracing in every Python program below."""

PROGRAM: Final = "ART_OTEL_RUN_PID"


def add_parser(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:  # pyright: ignore[reportPrivateUsage] # argparse has no public name for it
    """Add the verb."""
    parser = verbs.add_parser(
        "run",
        usage="art-otel run [--quiet] -- PROGRAM [ARGUMENT ...]",
        help="run a Python program and trace it",
        description="Run a Python program, and the Python programs that it starts, with ART_OTEL_ENABLED=1:"
        " `art-otel run -- python app.py`, `-- python -m module`, `-- gunicorn …`. The program"
        " replaces this process, so exit code and signals are those of the program. Settings are"
        " environment variables; with ART_OTEL_ENABLED=0, it is not traced. At its end, a line on standard error says"
        " how many calls were recorded, and where.",
    )
    parser.add_argument("--quiet", action="store_true", help="do not write that line")
    parser.add_argument("program", nargs=argparse.REMAINDER, metavar="PROGRAM", help="the program and its arguments")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Replace this process by the program, with tracing on."""
    words: list[str] = arguments.program
    command = words[1:] if words[:1] == ["--"] else words
    if not command:
        raise UsageError("no program to run: art-otel run -- python app.py")
    executable = shutil.which(command[0])
    if executable is None:
        raise UsageError(f"{command[0]}: no such program; for a script write: art-otel run -- python {command[0]}")
    environment = traced_environment(os.environ)
    if arguments.quiet:
        del environment[PROGRAM]
    if os.name != "nt":
        os.execve(executable, command, environment)  # noqa: S606 # the user's own program
    # Windows has no exec: it would start another process and end this one.
    done = subprocess.run(command, executable=executable, env=environment, check=False)  # pragma: no cover # noqa: S603 # as above
    return done.returncode  # pragma: no cover


def traced_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Build the environment in which a program, and each program that it starts, is traced."""
    python_path = environ.get("PYTHONPATH")
    paths = [path for path in python_path.split(os.pathsep) if path != str(STARTUP)] if python_path else []
    return {
        **environ,
        ENABLED: environ.get(ENABLED) or "1",
        DIR: str(expanded(environ.get(DIR) or DEFAULT_DIR).absolute()),
        "PYTHONPATH": os.pathsep.join([str(STARTUP), *paths]),
        PROGRAM: str(os.getpid()),
    }
