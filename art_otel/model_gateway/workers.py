"""Workers: the parent process of a gateway with several workers. It starts them, and it is their receiver.

    agents ─► one address ─► worker 0 ─► spool file ─┐
                        └──► worker 1 ─► spool file ─┴─► parent: finished rollouts ─► trainers
                             worker 1 died ─► the parent writes its running calls as failed, and starts it again

Invariant: a waiting connection is answered even if a worker dies, because the parent keeps the sockets open. No call is
lost silently: each running call of a dead worker becomes a failed call of its rollout. All processes end together.
"""

import asyncio
import logging
import os
import pickle
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import msgspec
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from art_otel.errors import UsageError
from art_otel.exchange.api_dialects import API_DIALECTS, call_identity
from art_otel.exchange.failures import CallFailure
from art_otel.http import listen_at
from art_otel.model_gateway.addresses import RequestAddress
from art_otel.model_gateway.gateway import GatewayOptions, is_of_receiver
from art_otel.model_gateway.handover import Inbox, open_inbox, read_and_hand_over
from art_otel.model_gateway.rollouts import GatewayRollout, gateway_resource, gateway_span, now_ns, own_span
from art_otel.model_gateway.worker import (
    PARENT,
    CallInFlight,
    CallsInFlight,
    WorkerReport,
    WorkerStart,
    calls_of,
    inbox_of,
)
from art_otel.receiver.export import ExportRefusedError
from art_otel.receiver.receiver import Receiver
from art_otel.spans import Span

logger = logging.getLogger(__name__)

_PROGRAM: Final = "from art_otel.model_gateway.worker import main; main()"
_AUTOLOAD: Final = "ART_OTEL_ENABLED"
_START_SECONDS: Final = 60.0
_STOP_SECONDS: Final = 20.0
_PAUSE: Final = 1.0
"""Seconds of pause before a worker that died within this time is started again."""

_DIED: Final = CallFailure("GatewayWorkerDied", "the process of the gateway died before the answer was recorded")
_CALL: Final = call_identity("chat", API_DIALECTS["chat"].path, None, "")[1]
"""The attributes of a lost call's span. The request died with the worker, so model and dialect are not known."""


class GatewayWorkers:
    """A gateway of `count` worker processes and this parent; it is the receiver's `Front`.

    Raises UsageError for options that do not work with workers.
    """

    routes: Sequence[Route] = ()

    def __init__(self, options: GatewayOptions, count: int) -> None:
        if options.receiver.tls is not None:
            raise UsageError(
                "--workers: a connection with TLS cannot go from one process to another: let a proxy speak TLS, or use"
                " one worker"
            )
        self._listening = listen_at(options.receiver.http)
        address = options.receiver.http._replace(port=self._listening.getsockname()[1])
        self._options = replace(options, receiver=replace(options.receiver, http=address))
        self.receiver = Receiver(self._options.receiver, self, listens=False)
        self._folder = Path(tempfile.mkdtemp(prefix="art-otel-"))
        self._inboxes = [open_inbox(inbox_of(self._folder, number)) for number in range(count)]
        self._inbox = Inbox(open_inbox(inbox_of(self._folder, PARENT)), self.receiver.adopt)
        self._workers = [_WorkerProcess(self, number) for number in range(count)]

    @property
    def url(self) -> str:
        """The address at which the workers listen."""
        return f"http://{self._options.receiver.http}"

    def application(self, receiver: ASGIApp) -> ASGIApp:
        """The receiver's own application, for the requests that workers hand over.

        The next request on such a connection may be for a worker again; it is handed back.
        """

        async def dispatch(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] != "http" or is_of_receiver(scope["path"]):
                await receiver(scope, receive, send)
            else:
                await read_and_hand_over(self.receiver.bodies, inbox_of(self._folder, 0), scope, receive, send)

        return dispatch

    async def start(self) -> None:
        """Start the workers. Raises UsageError if one of them cannot start."""
        await asyncio.to_thread(self._start)

    async def leave(self) -> None:
        """End the workers, and wait until they have written all their spans."""
        await asyncio.to_thread(self._end)

    async def stop(self) -> None:
        """Close the sockets, and remove their folder."""
        self._inbox.close()
        for each in (*self._inboxes, self._listening):
            each.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _start(self) -> None:
        for worker in self._workers:
            worker.thread.start()
        for worker in self._workers:
            # Set also by a worker that refused to start, so a wrong option is told at once.
            worker.is_ready.wait(_START_SECONDS)
            if worker.refused is not None:
                raise UsageError(worker.refused)

    def _end(self) -> None:
        for worker in self._workers:
            worker.end()
        for worker in self._workers:
            if worker.thread.is_alive():
                worker.thread.join()

    def start_of(self, number: int) -> WorkerStart:
        """The start parameters of a worker."""
        return WorkerStart(
            options=self._options,
            number=number,
            count=len(self._inboxes),
            run=self.receiver.run,
            folder=self._folder,
            listening=self._listening.fileno(),
            inbox=self._inboxes[number].fileno(),
            parent=os.getpid(),
        )

    def write_lost(self, calls: Iterable[CallInFlight]) -> int:
        """Write the running calls of a dead worker as failed ones; return how many they are."""
        lost = list(calls)
        spans = list(_lost_spans(lost))
        try:
            if spans:
                self.receiver.ingest.write(spans)
        except ExportRefusedError as refused:
            logger.warning("art-otel: %d calls of a worker that died cannot be written: %s", len(lost), refused)
        return len(lost)


class _WorkerProcess:
    """A worker process, started again as often as it dies, and the thread that reads its reports."""

    def __init__(self, parent: GatewayWorkers, number: int) -> None:
        self._parent = parent
        self._number = number
        self._lock = threading.Lock()
        self._is_ending = False
        self._process: subprocess.Popen[bytes] | None = None
        self.refused: str | None = None
        self.is_ready = threading.Event()
        self.thread = threading.Thread(target=self._run, name=f"art-otel worker {number}", daemon=True)

    def end(self) -> None:
        """Let the process end by itself; kill it after some seconds."""
        with self._lock:
            self._is_ending = True
            process = self._process
        if process is not None:
            _close_input(process)
            # A worker that hangs must not hold up the end of the others.
            killing = threading.Timer(_STOP_SECONDS, process.kill)
            killing.daemon = True
            killing.start()

    def _run(self) -> None:
        start = self._parent.start_of(self._number)
        while True:
            began = time.monotonic()
            with self._lock:
                if self._is_ending:
                    return
                process = self._process = _begin(start)
            self._listen(process)
            status = process.wait()
            _close_input(process)
            lost = self._parent.write_lost(CallsInFlight(calls_of(start.folder, self._number)).take())
            if self._is_ending or (self.refused is not None and not self.is_ready.is_set()):
                self.is_ready.set()
                return
            logger.warning(
                "art-otel: worker %d of the gateway ended (%s) with %d calls in flight, and is started again%s",
                self._number,
                f"signal {-status}" if status < 0 else f"status {status}",
                lost,
                "" if self.refused is None else f": {self.refused}",
            )
            time.sleep(_PAUSE if time.monotonic() - began < _PAUSE else 0.0)

    def _listen(self, process: "subprocess.Popen[bytes]") -> None:
        """Read the reports of the process until it has ended."""
        assert process.stdout is not None  # noqa: S101 # it is a pipe
        receiver, name = self._parent.receiver, f"worker {process.pid}"
        with process.stdout as reports:
            for line in reports:
                try:
                    said = msgspec.json.decode(line, type=WorkerReport)
                except msgspec.DecodeError:  # half a line: the worker was killed while it wrote
                    continue
                if said.listens:
                    self.refused = None
                    self.is_ready.set()
                self.refused = said.refused or self.refused
                receiver.keep_open(said.open)
                if said.counts:
                    receiver.metrics.take(name, said.counts)


def _begin(start: WorkerStart) -> "subprocess.Popen[bytes]":
    environment = {name: value for name, value in os.environ.items() if name != _AUTOLOAD}
    process = subprocess.Popen(  # noqa: S603 # this very Python
        [sys.executable, "-c", _PROGRAM],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        pass_fds=(start.listening, start.inbox),
        process_group=0,  # Ctrl-C must reach the parent only, which ends the workers in order
    )
    assert process.stdin is not None  # noqa: S101 # it is a pipe
    try:
        process.stdin.write(pickle.dumps(start))
        process.stdin.flush()
    except BrokenPipeError:  # the process has ended already; its exit status tells
        pass
    return process


def _close_input(process: "subprocess.Popen[bytes]") -> None:
    try:
        if process.stdin is not None:
            process.stdin.close()
    except BrokenPipeError:
        return


def _lost_spans(lost: Sequence[CallInFlight]) -> Iterable[Span]:
    """The spans of the running calls of a dead worker, and editions of their rollouts' own spans that count them."""
    resource, end_ns = gateway_resource(), now_ns()
    rollouts: dict[tuple[str, int], GatewayRollout] = {}
    for call in lost:
        rollout = rollouts.setdefault(
            (call.rollout_id, call.attempt),
            GatewayRollout(
                rollout_id=call.rollout_id,
                attempt=call.attempt,
                started_ns=call.start_ns,
                attributes={},
                ended_ns=end_ns,
            ),
        )
        rollout.calls.started += 1
        address = RequestAddress("path", call.rollout_id, attempt=call.attempt)
        yield gateway_span("chat", {**_CALL}, address, resource, (call.start_ns, end_ns), _DIED)
    for rollout in rollouts.values():
        yield own_span(rollout, resource)
