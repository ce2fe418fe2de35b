"""Delivery: leases finished rollouts to consumers, in this process and over HTTP.

    POST /v1/rollouts/CONSUMER/session   stays open as long as the session lives; its first line is the session's id
    POST /v1/rollouts/CONSUMER           a `SessionRequest` as JSON; the answer holds leases

Invariant: each consumer (a name) gets every revision of every rollout until it acknowledges it. Several sessions of one
consumer share the rollouts; what one session leaves unacknowledged goes to another. A new consumer gets everything that
the index has. A session over HTTP ends when its connection ends, so a process that died holds no lease.
"""

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple, TypeAlias

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from art_otel.errors import UsageError
from art_otel.http import Bodies
from art_otel.live.delivery import Acknowledgment, DeliveredTrajectory, Key, Question
from art_otel.receiver.finished import FinishedRollouts
from art_otel.receiver.index import Finished, SpooledRolloutIndex
from art_otel.receiver.ingest import ReceiverMetrics
from art_otel.receiver.protocol import (
    Lease,
    ReceiverSelection,
    SessionEndedError,
    SessionRequest,
    check_consumer,
    encode_answer,
)
from art_otel.trajectories import GroupKey

_PING_EVERY: Final = 10.0
_MAX_WAIT: Final = 30.0
_MAX_COUNT: Final = 256

_LeaseKey: TypeAlias = tuple[Key, str]
"""A rollout's key, and the digest of the spans that it was leased with."""


class _Leased(NamedTuple):
    """A lease: the session that has the rollout, its revision, and its group.

    No other session gets rollouts of `group` meanwhile; None without `whole_groups`.
    """

    session: str
    revision: int
    group: GroupKey | None


@dataclass(slots=True)
class _Consumer:
    """A consumer: its open sessions, and the rollouts that are leased to them."""

    sessions: set[str] = field(default_factory=set[str])
    leases: dict[_LeaseKey, _Leased] = field(default_factory=dict[_LeaseKey, _Leased])

    def release(self, session: str, but: AbstractSet[_LeaseKey] = frozenset()) -> None:
        """Take back the leases of a session, but for those in `but`."""
        for key in [key for key, leased in self.leases.items() if leased.session == session and key not in but]:
            del self.leases[key]

    def choose(self, pending: Iterable[Finished], session: str) -> Iterator[Finished]:
        """The pending rollouts that a session may get: not leased, and in no group that another session has begun.

        If an earlier revision is still leased, the new one gets a higher number.
        """
        held_groups = {leased.group: leased.session for leased in self.leases.values() if leased.group is not None}
        revisions: dict[Key, int] = {}
        for (key, _), leased in self.leases.items():
            revisions[key] = max(leased.revision, revisions.get(key, 0))
        for finished in pending:
            if (finished.key, finished.digest) in self.leases:
                continue
            group = finished.facts.group
            if group is None or held_groups.get(group, session) == session:
                earlier = revisions.get(finished.key, -1)
                yield replace(finished, revision=max(finished.revision, earlier + 1))


class Delivery:
    """Leases finished rollouts of the index to sessions of consumers. Any thread may use it."""

    def __init__(self, index: SpooledRolloutIndex) -> None:
        self._index = index
        self._lock = threading.Lock()
        self._consumers: dict[str, _Consumer] = {}
        self._listeners: list[Callable[[], None]] = []

    def tell(self) -> None:
        """Wake all waiting sessions: there may be more for them."""
        with self._lock:
            listeners = list(self._listeners)
        # Called outside of the lock, which a listener may need itself.
        for listener in listeners:
            listener()

    def listen(self, tell: Callable[[], None]) -> Callable[[], None]:
        """Call `tell` whenever there may be more. Returns a function that ends this."""
        with self._lock:
            self._listeners.append(tell)
        return lambda: self._listeners.remove(tell)

    def open_session(self, name: str) -> str:
        """Begin a session of a consumer, and return its id. Raises UsageError for an invalid name, and OSError."""
        check_consumer(name)
        with self._lock:
            self._index.add_consumer(name)
            session = os.urandom(8).hex()
            self._consumers.setdefault(name, _Consumer()).sessions.add(session)
            return session

    def take(self, name: str, session: str, question: Question, selection: ReceiverSelection) -> list[Finished]:
        """Lease up to `question.count` rollouts to a session.

        A rollout that was leased to the session and that it neither handled nor holds got lost on the way; its lease is
        taken back, so that it is delivered again. Raises SessionEndedError.
        """
        with self._lock:
            consumer = self._consumers.get(name)
            if consumer is None or session not in consumer.sessions:
                raise SessionEndedError
            held = {(each.key, each.digest) for each in question.holds}
            consumer.release(session, held)
            for each in question.holds:  # after a restart or a broken connection these leases are not known here
                facts = self._index.facts(each.key, each.digest) if question.whole_groups else None
                group = None if facts is None else facts.group
                consumer.leases[each.key, each.digest] = _Leased(session, each.revision, group)
            taken: list[Finished] = []
            if question.count:
                with self._index.pending(name, selection) as pending:
                    for finished in consumer.choose(pending, session):
                        taken.append(finished)
                        if len(taken) == question.count:
                            break
            for finished in taken:
                group = finished.facts.group if question.whole_groups else None
                leased = _Leased(session, finished.revision, group)
                consumer.leases[finished.key, finished.digest] = leased
            return taken

    def acknowledge(self, name: str, acknowledgments: Sequence[Acknowledgment]) -> int:
        """Note what a consumer has handled; return how many were new. Raises OSError, for example for a full disk."""
        with self._lock:
            count = self._index.acknowledge(name, acknowledgments)
            consumer = self._consumers.get(name)
            if consumer is not None:
                for each in acknowledgments:
                    consumer.leases.pop((each.key, each.digest), None)
            return count

    def close_session(self, name: str, session: str) -> None:
        """End a session. Rollouts that it did not acknowledge are pending again."""
        with self._lock:
            consumer = self._consumers[name]
            consumer.sessions.discard(session)
            consumer.release(session)
            if not consumer.sessions:
                del self._consumers[name]
        self.tell()


class LocalSession:
    """A session with the receiver of this process. Sessions over HTTP use one each, too.

    A question is answered as soon as there is a rollout for it, and at the latest after `question.wait` seconds.
    """

    def __init__(self, consumer: str, delivery: Delivery, finished: FinishedRollouts, metrics: ReceiverMetrics) -> None:
        self.id = delivery.open_session(consumer)
        self.selection = ReceiverSelection()
        self._consumer = consumer
        self._delivery = delivery
        self._finished = finished
        self._metrics = metrics
        self._questions = 0

    async def take(self, question: Question) -> list[DeliveredTrajectory]:
        """Answer a question of the loop (see `DeliverySession`)."""
        return [lease.unpack() for lease in await self.lease(question)]

    async def lease(self, question: Question) -> list[Lease]:
        """Answer a question with leases, whose trajectories are encoded as they go over HTTP."""
        self._acknowledge(question.handled)
        loop, more = asyncio.get_running_loop(), asyncio.Event()

        def tell() -> None:
            loop.call_soon_threadsafe(more.set)

        stop_listening = self._delivery.listen(tell)
        ends = loop.time() + question.wait
        self._questions += 1
        number = self._questions
        try:
            while True:
                # Before the look, so that news which come during it are not lost.
                more.clear()
                leases = await self._packed(self._delivery.take(self._consumer, self.id, question, self.selection))
                if leases or not question.count or loop.time() >= ends:
                    return leases
                with suppress(TimeoutError):
                    await asyncio.wait_for(more.wait(), ends - loop.time())
                if number != self._questions:  # the client gave this question up and asked another: it gets the rest
                    return []
        finally:
            stop_listening()

    async def close(self, handled: Sequence[Acknowledgment] = ()) -> None:
        """Acknowledge what was handled, and end the session."""
        self._acknowledge(handled)
        self._delivery.close_session(self._consumer, self.id)

    def _acknowledge(self, handled: Sequence[Acknowledgment]) -> None:
        if handled:
            new = self._delivery.acknowledge(self._consumer, handled)
            self._metrics.add("art_otel_acknowledged_total", new)

    async def _packed(self, taken: Sequence[Finished]) -> list[Lease]:
        leases: list[Lease] = []
        for finished in taken:
            encoded = self._finished.kept(finished)
            if encoded is None:
                encoded = await asyncio.to_thread(self._finished.build, finished)
            if encoded is None:  # its lines were removed from the spool: waiting would not bring them back
                self._delivery.acknowledge(self._consumer, [finished.acknowledgment])
            else:
                leases.append(Lease(finished.acknowledgment, encoded))
        self._metrics.add("art_otel_handed_out_total", len(leases))
        return leases


class RolloutRoutes:
    """The routes that `art_otel.connect` uses. `open_session` begins a session of a consumer.

    All are POST, because they change state, and any web page can make a browser send a GET.
    """

    def __init__(self, open_session: Callable[[str], LocalSession], bodies: Bodies) -> None:
        self._open_session = open_session
        self._bodies = bodies
        self._sessions: dict[str, LocalSession] = {}
        self._stopping = asyncio.Event()
        self.routes = [
            Route("/v1/rollouts/{consumer}/session", self._hold, methods=["POST"]),
            Route("/v1/rollouts/{consumer}", self._take, methods=["POST"]),
        ]

    async def stop(self) -> None:
        """End all sessions. Their processes begin new ones when the receiver is back."""
        self._stopping.set()

    async def _hold(self, request: Request) -> Response:
        try:
            session = self._open_session(request.path_params["consumer"])
        except UsageError as error:
            return Response(str(error), 400)
        except OSError as error:
            return _unwritable(error)
        return StreamingResponse(self._pings(session), media_type="text/plain")

    async def _pings(self, session: LocalSession) -> AsyncIterator[str]:
        self._sessions[session.id] = session
        try:
            yield f"{session.id}\n"
            while not self._stopping.is_set():
                with suppress(TimeoutError):
                    # A client takes a connection without any byte for broken, so a newline is sent now and then.
                    await asyncio.wait_for(self._stopping.wait(), _PING_EVERY)
                yield "\n"
        finally:
            del self._sessions[session.id]
            await session.close()

    async def _take(self, request: Request) -> Response:
        try:
            async with self._bodies.read(request.scope, request.receive) as body:
                ask = msgspec.json.decode(body, type=SessionRequest)
        except msgspec.DecodeError as error:
            return Response(f"not a question: {error}", 400)
        session = self._sessions.get(ask.session)
        if session is None:
            return Response("the session has ended; begin a new one", 410)
        question = Question(
            handled=ask.handled,
            holds=ask.holds,
            count=min(ask.count, _MAX_COUNT),
            wait=min(ask.wait, _MAX_WAIT),
            whole_groups=ask.whole_groups,
        )
        try:
            session.selection = ask.selection
            leases = await session.lease(question)
        except SessionEndedError:
            return Response("the session has ended; begin a new one", 410)
        except OSError as error:
            return _unwritable(error)
        return Response(encode_answer(leases), media_type="application/msgpack")


def _unwritable(error: OSError) -> Response:
    return Response(f"the acknowledgment cannot be written there: {error}; it will be sent again later", 503)
