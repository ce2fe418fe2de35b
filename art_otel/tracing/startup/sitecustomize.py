"""Startup: runs at the start of every Python program below `art-otel run`, which puts this folder on PYTHONPATH.

Invariant: the program still gets its own `sitecustomize` and its own `sys.path`. This module runs in Python
interpreters of any environment and version, so it imports only the standard library before it tries art_otel.
"""

import atexit
import os
import sys
from importlib.machinery import PathFinder
from importlib.util import module_from_spec

_HERE = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 # pathlib would cost every program its import
_PROGRAM = "ART_OTEL_RUN_PID"


def _write_summary() -> None:
    if getattr(sys, "last_type", None) is KeyboardInterrupt:
        # CPython remembers that SIGINT ended the program, for its exit status, only until it compiles the next text.
        # The imports below compile some (a dataclass does), so nothing is written here.
        return
    if os.environ.get(_PROGRAM) == str(os.getpid()):  # only the program itself, no child that it forked
        from art_otel.tracing.setup.run_summary import write_run_summary  # noqa: PLC0415 # at the end

        write_run_summary()


def _start_tracing() -> None:
    if os.environ.get(_PROGRAM) == str(os.getpid()):
        atexit.register(_write_summary)  # registered first, so it runs last, after the spool is closed
    try:
        import art_otel  # noqa: F401, PLC0415 # pyright: ignore[reportUnusedImport] # it reads the environment
    except ImportError as error:
        # Only the program that the user named gets a message, not the programs that it starts in other environments.
        atexit.unregister(_write_summary)
        if os.environ.get(_PROGRAM) == str(os.getpid()):
            sys.stderr.write(f"art-otel: not traced: {sys.executable}: {error}; install art-otel there\n")


def _run_own_sitecustomize() -> None:
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry) != _HERE]  # noqa: PTH100 # as above
    spec = PathFinder.find_spec("sitecustomize", sys.path)
    if spec is not None and spec.loader is not None:
        module = module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


_start_tracing()
_run_own_sitecustomize()
