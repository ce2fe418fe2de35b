"""Assembler: builds trajectories in a process of its own.

    receiver ── AssemblyTask: places of lines ──► process: assemble ── EncodedTrajectory ──► receiver

Invariant: the results are those of `assemble`; but building takes no time from exports and consumers, which share this
process's interpreter lock. The child ends with the receiver, however that ends, because its standard input ends. If the
child dies, another one is started.
"""

import logging
import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Final, TypeAlias, TypeVar

import msgspec

from art_otel.live import assemble
from art_otel.live.delivery import Key
from art_otel.receiver.protocol import Facts, facts_of
from art_otel.spool import FoundFile, SpooledLine
from art_otel.store import encode_trajectory

logger = logging.getLogger(__name__)

_PROGRAM: Final = "art_otel.receiver.assembler"
_SIZE: Final = 8
_AUTOLOAD: Final = "ART_OTEL_ENABLED"
"""Left out of the child's environment: it makes no LLM calls, so it need not load the tracing."""

_Frame = TypeVar("_Frame")


class _Rules(msgspec.Struct, frozen=True, array_like=True):
    """The arguments of `assemble` that say what is a rollout."""

    rollout_spans: tuple[str, ...]
    rollout_attributes: tuple[str, ...]


class AssemblyTask(msgspec.Struct, frozen=True, array_like=True):
    """The lines of rollouts that are built together, each as a path, an offset and a size in bytes."""

    lines: tuple[tuple[str, int, int], ...]


class EncodedTrajectory(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A trajectory in the bytes of `encode_trajectory`, with the facts that the index needs."""

    rollout_id: str
    trace_id: str
    order: Key
    facts: Facts
    encoded: bytes


Tasks: TypeAlias = tuple[AssemblyTask, ...]
Results: TypeAlias = tuple[tuple[EncodedTrajectory, ...] | None, ...]
"""The trajectories of each task; None for a task that failed, which the assembler logs."""


class Assembler:
    """Builds trajectories in a child process; `rollout_spans` and `rollout_attributes` are as in `assemble`.

    Any thread may use it; threads wait for each other.
    """

    def __init__(self, rollout_spans: Sequence[str], rollout_attributes: Sequence[str] = ()) -> None:
        rules = msgspec.json.encode(_Rules(tuple(rollout_spans), tuple(rollout_attributes)))
        self._command = [sys.executable, "-m", _PROGRAM, rules.decode()]
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the process. Raises OSError where the system has none to give."""
        environment = {name: value for name, value in os.environ.items() if name != _AUTOLOAD}
        self._process = subprocess.Popen(  # noqa: S603 # this very Python
            self._command,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            process_group=0,  # Ctrl-C must reach the receiver only; the child ends with its standard input
        )

    def build(self, rollouts: Sequence[Sequence[SpooledLine]]) -> Results:
        """Build the trajectories of each set of lines. Raises OSError if no process can be started.

        If the process dies, each set is tried alone in a new one: one bad rollout then costs only itself.
        """
        tasks = tuple(
            AssemblyTask(tuple((str(line.file), line.offset, line.size) for line in lines)) for lines in rollouts
        )
        with self._lock:
            try:
                return self._ask(tasks)
            except (OSError, EOFError):
                self._restart()
                # One by one now, so that the rollout that kills the process costs only itself.
                return tuple(built for task in tasks for built in self._try((task,)))

    def close(self) -> None:
        """End the process."""
        with self._lock:
            self._end()

    def _ask(self, tasks: Tasks) -> Results:
        if self._process is None or self._process.stdin is None or self._process.stdout is None:
            raise EOFError
        write_frame(self._process.stdin, tasks)
        return read_frame(self._process.stdout, Results)

    def _try(self, tasks: Tasks) -> Results:
        try:
            return self._ask(tasks)
        except (OSError, EOFError):
            logger.exception("art-otel: a process died while building a rollout; its spans are in the spool")
            self._restart()
            return (None,)

    def _restart(self) -> None:
        self._end()
        self.start()

    def _end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()


def write_frame(stream: IO[bytes], value: Tasks | Results) -> None:
    """Write a value behind its size. Raises OSError if the other side has ended."""
    data = msgspec.msgpack.encode(value)
    stream.write(len(data).to_bytes(_SIZE))
    stream.write(data)
    stream.flush()


def read_frame(stream: IO[bytes], kind: type[_Frame]) -> _Frame:
    """Read a value that `write_frame` wrote. Raises EOFError if the other side has ended."""
    size = stream.read(_SIZE)
    data = stream.read(int.from_bytes(size))
    if len(size) < _SIZE or len(data) < int.from_bytes(size):
        raise EOFError
    return msgspec.msgpack.decode(data, type=kind)


def main() -> None:
    """The child process: answer tasks until standard input ends. `sys.argv[1]` has the `_Rules` as JSON."""
    rules = msgspec.json.decode(sys.argv[1], type=_Rules)
    output = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    sys.stdout = sys.stderr  # a `print` anywhere must not get between the answers
    assemble(())  # imports what builds trajectories now, so that the first rollout need not wait for it
    with suppress(EOFError, BrokenPipeError):
        while True:
            tasks = read_frame(sys.stdin.buffer, Tasks)
            write_frame(output, tuple(_build(task, rules) for task in tasks))


def _build(task: AssemblyTask, rules: _Rules) -> tuple[EncodedTrajectory, ...] | None:
    lines = [SpooledLine(file=FoundFile(Path(path)), offset=offset, size=size) for path, offset, size in task.lines]
    try:
        return tuple(
            EncodedTrajectory(
                rollout_id=trajectory.rollout_id,
                trace_id=trajectory.trace_id,
                order=trajectory.order,
                facts=facts_of(trajectory),
                encoded=encode_trajectory(trajectory),
            )
            for trajectory in assemble(lines, rules.rollout_spans, rules.rollout_attributes)
        )
    except Exception:  # one rollout that cannot be built must not cost the others
        logger.exception("art-otel: a rollout cannot be built; its spans are in the spool")
        return None


if __name__ == "__main__":
    main()
