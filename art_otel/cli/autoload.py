"""`art-otel autoload`: a file in this environment that starts tracing in every program where the variable is set."""

import argparse
import os
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Final, Literal, NamedTuple

from art_otel.cli.terminal import printable
from art_otel.tracing.autoload import ENABLED

NAME: Final = "zz_art_otel_autoload.pth"
"""Python reads such files by the order of their names: this one after that of an editable art_otel."""

LINE: Final = (
    f'import os; exec("try:\\n import art_otel\\nexcept ImportError: pass") if os.environ.get("{ENABLED}") else None\n'
)
"""Python runs a line that begins with `import`. Where art_otel has been removed it is silent."""

_PROBE: Final = "import sys; sys.exit('art_otel' not in sys.modules)"

Works = Literal["works", "does not work", "is not there"]


class Autoload(NamedTuple):
    """The path of the file, and whether it works."""

    path: Path
    state: Works


def add_parser(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:  # pyright: ignore[reportPrivateUsage] # argparse has no public name for it
    """Add the verb."""
    parser = verbs.add_parser(
        "autoload",
        help="trace every program of this environment if ART_OTEL_ENABLED=1 is set",
        description=f"install: put a file ({NAME}) into the site-packages of this environment. status: say whether it"
        " is there and works (exit code 1 if not). remove: remove it. The file does nothing if ART_OTEL_ENABLED is not"
        " set.",
    )
    parser.add_argument("action", choices=["install", "status", "remove"])
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Install the file, remove it, or print whether it works."""
    path = autoload_path()
    if arguments.action == "remove":
        path.unlink(missing_ok=True)
        _say(f"{path} is removed")
        return 0
    if arguments.action == "install":
        _write(path)
    autoload = find_autoload()
    _say(f"{autoload.path} {autoload.state}")
    return 0 if autoload.state == "works" else 1


def autoload_path() -> Path:
    """Where the file is, or would be."""
    return Path(sysconfig.get_path("purelib")) / NAME


def find_autoload() -> Autoload:
    """Check whether the file exists, and whether it starts tracing in a new Python."""
    path = autoload_path()
    if not path.exists():
        return Autoload(path, "is not there")
    # -I: only what the environment itself does, whatever PYTHONPATH and the folder hold.
    command = [sys.executable, "-I", "-c", _PROBE]
    environment = {**os.environ, ENABLED: "1"}
    done = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, check=False)  # noqa: S603 # our own words
    return Autoload(path, "does not work" if done.returncode else "works")


def _write(path: Path) -> None:
    """Write the file whole or not at all, because every Python that starts meanwhile reads it."""
    with tempfile.NamedTemporaryFile("w", dir=path.parent, prefix=f".{NAME}.", delete=False, encoding="utf-8") as file:
        file.write(LINE)
    temporary = Path(file.name)
    temporary.chmod(0o644)
    temporary.replace(path)


def _say(text: str) -> None:
    sys.stdout.write(f"{printable(text)}\n")
