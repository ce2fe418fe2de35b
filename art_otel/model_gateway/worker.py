"""Worker: one process of `art-otel gateway --workers N`: a gateway that answers at the address of its parent.

    worker = crc32(rollout id) % N        a request for another worker's rollout is handed over, with its connection

Invariant: the id of a rollout decides its worker, so the calls, the limit and the sampled ids of a rollout are all in
one process. Requests for the receiver are handed to the parent, which reads the spool files of all workers. A worker
ends when its standard input ends, so never later than its parent.
"""

import asyncio
import mmap
import os
import pickle
import shutil
import signal
import socket
import sys
import threading
import zlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
from starlette.types import Receive, Scope, Send

from art_otel.errors import UsageError
from art_otel.http import Bodies, HttpServer, new_loop
from art_otel.model_gateway.addresses import is_of_rollout
from art_otel.model_gateway.gateway import Gateway, GatewayOptions
from art_otel.model_gateway.handover import Inbox, hand_over, read_and_hand_over
from art_otel.model_gateway.rollouts import GatewayRollout
from art_otel.receiver.ingest import Ingest, ReceiverMetrics
from art_otel.receiver.receiver import guard
from art_otel.spool import SpoolWriter

_SLOT: Final = 2 + 8 + 4 + 1024
"""Bytes of a slot: the length, the start, the attempt and the rollout's id, of 256 characters of up to 4 bytes."""

_MOST: Final = (1 << 32) - 1
_SLOTS: Final = 4096
"""One slot for each connection that a server accepts at once."""


class CallInFlight(NamedTuple):
    """A running call: its rollout, the attempt, and its start in nanoseconds since the epoch."""

    rollout_id: str
    attempt: int
    start_ns: int


class CallsInFlight:
    """A table of the running calls of a worker, so that the parent knows them if the worker dies.

    The table is a file that both processes map into memory: writing to it costs no system call, and it survives a kill.
    """

    def __init__(self, path: Path) -> None:
        with path.open("a+b") as file:
            file.truncate(_SLOTS * _SLOT)
            self._memory = mmap.mmap(file.fileno(), _SLOTS * _SLOT)
        self._free = list(range(_SLOTS))

    def begin(self, call: CallInFlight) -> int | None:
        """Note a call, and return its slot; None where all slots are taken."""
        if not self._free:
            return None
        slot = self._free.pop()
        at = slot * _SLOT
        facts = (
            call.start_ns.to_bytes(8) + min(call.attempt, _MOST).to_bytes(4) + call.rollout_id.encode(errors="replace")
        )
        self._memory[at + 2 : at + 2 + len(facts)] = facts
        self._memory[at : at + 2] = len(facts).to_bytes(2)  # last: a worker killed before this line leaves a free slot
        return slot

    def end(self, slot: int) -> None:
        """Free the slot of a call that was recorded."""
        self._memory[slot * _SLOT : slot * _SLOT + 2] = b"\0\0"
        self._free.append(slot)

    def take(self) -> Iterator[CallInFlight]:
        """Take the running calls of a worker that has died out of the table."""
        for at in range(0, _SLOTS * _SLOT, _SLOT):
            if length := int.from_bytes(self._memory[at : at + 2]):
                facts = self._memory[at + 2 : at + 2 + length]
                yield CallInFlight(facts[12:].decode(), int.from_bytes(facts[8:12]), int.from_bytes(facts[:8]))
                self._memory[at : at + 2] = b"\0\0"


_SWITCH: Final = 0.001


@dataclass(frozen=True, kw_only=True)
class WorkerStart:
    """The start parameters of a worker.

    - `number`: which of the `count` workers it is. `run`: the folder of this run in the spool.
    - `listening`, `inbox`: file descriptors of sockets that the worker inherits.
    - `folder`: has the inboxes of all processes (`inbox_of`); the process with the pid `parent` removes it at the end.
    """

    options: GatewayOptions
    number: int
    count: int
    run: Path
    folder: Path
    listening: int
    inbox: int
    parent: int


class WorkerReport(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A report of a worker to its parent, as a line of JSON.

    `listens` says that the worker has started, `refused` why it cannot start. `open` has the ids of its open rollouts,
    `counts` its counters.
    """

    listens: bool = False
    refused: str | None = None
    open: list[str] = []
    counts: list[tuple[str, str, int]] = []


PARENT: Final = "parent"


def inbox_of(folder: Path, process: int | str) -> Path:
    """The path of the socket at which a process (a worker by its number, or `PARENT`) takes connections over."""
    return folder / f"{process}.sock"


def calls_of(folder: Path, number: int) -> Path:
    """The path of a worker's table of running calls."""
    return folder / f"{number}.calls"


class GatewayWorker:
    """A worker: it runs a Gateway, and is the Recorder of that gateway. It writes reports to a descriptor."""

    def __init__(self, start: WorkerStart, reports: int) -> None:
        self._start = start
        self._reports = reports
        options = start.options.receiver
        self.bodies = Bodies(options.bodies)
        self.metrics = ReceiverMetrics()
        self._calls = CallsInFlight(calls_of(start.folder, start.number))
        self._spool = SpoolWriter(start.run, sent_again=True)
        self.ingest = Ingest(self._spool, options.ingest, self.metrics, None)
        self._gateway = Gateway(start.options, worker=self)
        self._own = guard(self._gateway.routes, options, self._gateway.receiver_refused)
        listening = socket.socket(fileno=start.listening)
        self._http = HttpServer(self._gateway.application(self._own_paths), options.http, None, [listening])

    async def run(self, ended: asyncio.Event) -> None:
        """Answer requests until `ended` is set."""
        await self._gateway.start()
        await self._http.start()
        loop = asyncio.get_running_loop()
        inbox = Inbox(
            socket.socket(fileno=self._start.inbox),
            lambda connection, received: self._http.adopt_soon(connection, received, loop),
        )
        _report(self._reports, WorkerReport(listens=True))
        await ended.wait()
        inbox.close()
        await self._gateway.leave()
        await self._http.stop()
        await self._gateway.stop()
        await asyncio.to_thread(self.ingest.close)
        self.keep_open(())

    def keep_open(self, rollout_ids: Sequence[str]) -> None:
        """Report the open rollouts and the counters to the parent."""
        counts = [*self.metrics.counts(), ("art_otel_spool_bytes_total", "", self._spool.counts.bytes)]
        _report(self._reports, WorkerReport(open=[*rollout_ids], counts=counts))

    def begin_call(self, rollout: GatewayRollout, start_ns: int) -> int | None:
        """Note a call in case this worker dies, and return its slot; None where all slots are taken."""
        return self._calls.begin(CallInFlight(rollout.rollout_id, rollout.attempt, start_ns))

    def end_call(self, slot: int) -> None:
        """Free the slot of a call that was recorded."""
        self._calls.end(slot)

    async def is_elsewhere(self, scope: Scope, body: bytes, key: str) -> bool:
        """If another worker has the rollout `key`, hand the request over to that worker, and return True.

        An empty key is a conversation without a rollout id; worker 0 has all of these.
        """
        owner = zlib.crc32(key.encode(errors="replace")) % self._start.count if key else 0
        if owner == self._start.number:
            return False
        await hand_over(scope, body, inbox_of(self._start.folder, owner))
        return True

    async def _own_paths(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer requests that end or reward a rollout; hand those for the receiver over to the parent."""
        if is_of_rollout(scope["path"]):
            await self._own(scope, receive, send)
        else:
            await read_and_hand_over(self.bodies, inbox_of(self._start.folder, PARENT), scope, receive, send)


def _report(to: int, what: WorkerReport) -> None:
    """Write a report to the parent; nothing if the parent has ended."""
    line = memoryview(msgspec.json.encode(what) + b"\n")
    with suppress(BrokenPipeError):
        while line:
            line = line[os.write(to, line) :]


def main() -> None:
    """Run a worker. Standard input has a WorkerStart, and ends when the worker must end."""
    reports = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # a `print` anywhere must not get between the reports
    sys.setswitchinterval(_SWITCH)
    start: WorkerStart = pickle.load(sys.stdin.buffer)  # noqa: S301 # it comes from the parent
    loop = new_loop()
    asyncio.set_event_loop(loop)
    ended = asyncio.Event()

    def wait() -> None:
        sys.stdin.buffer.read()
        loop.call_soon_threadsafe(ended.set)

    loop.add_signal_handler(signal.SIGTERM, ended.set)
    loop.add_signal_handler(signal.SIGINT, ended.set)
    threading.Thread(target=wait, daemon=True).start()
    try:
        loop.run_until_complete(GatewayWorker(start, reports).run(ended))
    except UsageError as error:
        _report(reports, WorkerReport(refused=str(error)))
    if os.getppid() != start.parent:  # the parent was killed, so this worker removes the folder
        shutil.rmtree(start.folder, ignore_errors=True)
    os._exit(0)  # a thread may still wait at the standard input
