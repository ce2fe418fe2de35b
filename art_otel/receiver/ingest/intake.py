"""Intake: exports on their way to the spool.

Invariant: an export is acknowledged only after its lines are in the spool file (with `fsync`, on the disk); one that
cannot be written is refused. Exports wait in no more memory than the budget of bodies allows.
"""

import asyncio
import contextlib
import logging
import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Final, TypeAlias

from art_otel.receiver.ingest.export import Export, ExportRefusedError, Stored, read_export
from art_otel.receiver.ingest.otlp_lines import encode_lines
from art_otel.receiver.ingest.secrets import RecordScrubber
from art_otel.receiver.metrics import Metrics
from art_otel.scrubbing import Scrubbing
from art_otel.sources import Record
from art_otel.spool import SpooledLine, SpoolWriter

logger = logging.getLogger(__name__)

_MAX_WAITING: Final = 1024
"""Exports that wait for the writer; who comes then is told to try again."""
WhenWritten: TypeAlias = Callable[[Sequence[tuple[Sequence[Record], SpooledLine]]], None]
"""Told of records and the line that they stand in now."""

_MAX_TOGETHER: Final = 64
"""Exports that share one flush to the disk."""


@dataclass(frozen=True, kw_only=True, slots=True)
class IntakeOptions:
    """`max_bytes` of one export, decompressed. `fsync` acknowledges only what the disk itself has."""

    max_bytes: int = 256 << 20
    fsync: bool = False
    scrubbing: Scrubbing = "on"


class Intake:
    """Writes exports to a spool, in a thread of its own. `when_written` is told of each that was."""

    def __init__(self, spool: SpoolWriter, options: IntakeOptions, metrics: Metrics, when_written: WhenWritten) -> None:
        self._spool = spool
        self._options = options
        self._metrics = metrics
        self._when_written = when_written
        self._scrubber = RecordScrubber(options.scrubbing)
        self._waiting: queue.Queue[tuple[Export, Future[Stored]] | None] = queue.Queue(_MAX_WAITING)
        self._thread = threading.Thread(target=self._run, name="art-otel intake", daemon=True)
        self._thread.start()

    async def take(self, export: Export) -> Stored:
        """Write an export, and say what of it was set aside. Raises ExportRefusedError for one that is not taken."""
        done: Future[Stored] = Future()
        try:
            self._waiting.put_nowait((export, done))
        except queue.Full:
            raise ExportRefusedError(429, "more is being sent than can be written") from None
        return await asyncio.shield(asyncio.wrap_future(done))

    def close(self) -> None:
        """Write what waits, and end."""
        self._waiting.put(None)
        self._thread.join()
        self._spool.close()

    def _run(self) -> None:
        while (first := self._waiting.get()) is not None:
            together = [first]
            ends = False
            with contextlib.suppress(queue.Empty):
                while len(together) < _MAX_TOGETHER and not ends:
                    more = self._waiting.get_nowait()
                    if more is None:
                        ends = True
                    else:
                        together.append(more)
            self._write(together)
            if ends:
                return

    def _write(self, exports: list[tuple[Export, "Future[Stored]"]]) -> None:
        written: list[tuple[Stored, Future[Stored]]] = []
        for export, done in exports:
            try:
                written.append((self._write_one(export), done))
            except ExportRefusedError as refused:
                done.set_exception(refused.with_traceback(None))  # its frames hold what was decompressed
            except Exception as error:  # whatever is wrong with one export, the next one is written
                logger.exception("art-otel: an export could not be read; it is refused")
                done.set_exception(ExportRefusedError(500, f"it could not be read: {type(error).__name__}"))
        is_safe = not self._options.fsync or self._spool.sync()
        for stored, done in written:
            if is_safe:
                self._metrics.stored(spans=stored.spans, log_records=stored.log_records, rejected=stored.rejected)
                done.set_result(stored)
            else:
                done.set_exception(_unwritable())

    def _write_one(self, export: Export) -> Stored:
        received = read_export(export, self._options.max_bytes)
        lines = encode_lines(self._scrubber.scrub(received.records))
        if lines:
            written = self._spool.write(b"".join(line.text for line in lines))
            if written is None:
                raise _unwritable()
            spooled_lines = written.cut([len(line.text) for line in lines])
            self._when_written([(line.records, spooled) for line, spooled in zip(lines, spooled_lines, strict=True)])
        return received.counts()


def _unwritable() -> ExportRefusedError:
    return ExportRefusedError(503, "the spool cannot be written: the disk may be full")
