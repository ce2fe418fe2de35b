"""The command line: one thin module a verb.

Exit codes: 0 everything was read, 1 a source or dataset could not be read, 2 the command was used wrongly, 3 something
was quarantined and `--strict` was given, or tokens that `verify` compared are not the model's.
"""

import argparse
import atexit
import gc
import os
import sys
import threading
import warnings
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Final, NoReturn

from art_otel.cli.terminal import forgive_streams, printable
from art_otel.errors import ArtOtelError, UsageError
from art_otel.version import __version__

_VERBS: Final = (
    *(
        "run",
        "autoload",
        "doctor",
        "convert",
        "compact",
        "show",
        "export",
        "verify",
        "log",
        "serve",
        "gateway",
        "view",
        "demo",
    ),
)
"""Each is a module of this package, which loads only for who wants it."""

_COLLECT_EVERY: Final = 100_000
"""A command loads much and makes few cycles, so looking for cycles as often as Python does is a part of its start."""


def make_parser(arguments: Sequence[str] = ()) -> argparse.ArgumentParser:
    """The parser of these arguments: of the verb that they begin with, else of all. docs/cli.md is made of all."""
    parser = argparse.ArgumentParser(
        prog="art-otel",
        description="OpenTelemetry in, training data out: span dumps become trajectories.",
        epilog="exit codes: 0 everything was read; 1 a source or dataset could not be read; 2 the command was used"
        " wrongly; 3 something was quarantined and --strict was given, or verify found a difference",
    )
    parser.add_argument("--version", action="version", version=f"art-otel {__version__}")
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    wanted = arguments[0] if arguments else None
    for verb in (wanted,) if wanted in _VERBS else _VERBS:
        import_module(f"art_otel.cli.{verb}").add_parser(verbs)
    return parser


def command() -> NoReturn:
    """Run one verb in a process that is the command's own, and end it.

    The system takes the process's memory as it is: Python would first take all of it apart, for 10 to 30 ms.
    """
    code = main()
    if threading.active_count() > 1:  # Python waits for those
        sys.exit(code)
    atexit._run_exitfuncs()  # noqa: SLF001 # pyright: ignore[reportPrivateUsage] # nothing else runs them
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # as Python does; what main wrote is flushed
            stream.flush()
    os._exit(code)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb and return its exit code. Without `argv` the process is the command's own."""
    forgive_streams()
    if argv is None and "_ARGCOMPLETE" in os.environ:
        _complete()
    if argv is None:
        gc.set_threshold(_COLLECT_EVERY)
        warnings.formatwarning = _warning_line  # a person at a terminal needs no line of our source
    words = sys.argv[1:] if argv is None else argv
    parser = make_parser(words)
    arguments, unknown = parser.parse_known_args(words, argparse.Namespace(owns_process=argv is None))
    if unknown:
        verb = arguments.verb
        parser.error(f"{verb} has no argument {' '.join(unknown)}; art-otel {verb} --help lists its arguments")
    try:
        code: int = arguments.run(arguments)
        sys.stdout.flush()  # here, where what it raises is told
    except UsageError as error:
        return _fail(error, 2)
    except ArtOtelError as error:
        return _fail(error, 1)
    except BrokenPipeError:
        # Who reads our output has gone (`art-otel show … | head`); Python would complain again while closing stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        return _fail(_of_system(error), 1)
    except KeyboardInterrupt:
        return 130
    return code


def _warning_line(message: Warning | str, *_: object, **__: object) -> str:
    return f"art-otel: warning: {printable(str(message))}\n"


def _complete() -> None:
    """Tell the shell, which has asked for them, the words that may follow, and end.

    Returns where argcomplete is not installed. A shell asks in an environment and through files that are argcomplete's.
    """
    with suppress(ImportError):
        from argcomplete import autocomplete  # noqa: PLC0415 # an extra, and nobody else needs it

        autocomplete(make_parser(os.environ.get("COMP_LINE", "").split()[1:]))


def _of_system(error: OSError) -> str:
    """Say what the system refused, and where. Of a link in the place of a folder it says only that a file exists."""
    if error.filename is None:
        return error.strerror or str(error)
    is_link = isinstance(error, FileExistsError) and Path(os.fsdecode(error.filename)).is_symlink()
    dangling = "is a link to a folder that does not exist; create that folder, or choose another"
    problem = dangling if is_link else error.strerror
    return f"{error.filename}: {problem or error}"


def _fail(problem: object, code: int) -> int:
    sys.stderr.write(f"art-otel: {printable(str(problem))}\n")
    return code
