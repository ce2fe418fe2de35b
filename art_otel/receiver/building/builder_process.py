"""The process of a Builder: tasks on its standard input, their trajectories on its standard output."""

import logging
import os
import sys
from contextlib import suppress
from pathlib import Path

from art_otel.live import assemble
from art_otel.receiver.building.builder import Built, Task, Tasks, read_frame, write_frame
from art_otel.receiver.protocol.selection import facts_of
from art_otel.spool import FoundFile, SpooledLine
from art_otel.store import encode_trajectory

logger = logging.getLogger(__name__)


def main() -> None:
    """Build until the other side ends. `sys.argv` are globs of span names that count as rollouts."""
    output = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    sys.stdout = sys.stderr  # what is printed is no answer
    assemble(())  # loads what builds trajectories, which the first rollout need not wait for
    with suppress(EOFError, BrokenPipeError):
        while True:
            tasks = read_frame(sys.stdin.buffer, Tasks)
            write_frame(output, tuple(_build(task, sys.argv[1:]) for task in tasks))


def _build(task: Task, rollout_spans: list[str]) -> tuple[Built, ...] | None:
    lines = [SpooledLine(file=FoundFile(Path(path)), offset=offset, size=size) for path, offset, size in task.lines]
    try:
        return tuple(
            Built(
                rollout_id=trajectory.rollout_id,
                trace_id=trajectory.trace_id,
                order=trajectory.order,
                facts=facts_of(trajectory),
                encoded=encode_trajectory(trajectory),
            )
            for trajectory in assemble(lines, rollout_spans)
        )
    except Exception:  # one rollout that nobody can build must not end them all
        logger.exception("art-otel: a rollout cannot be built; its spans are in the spool")
        return None


if __name__ == "__main__":
    main()
