"""Deliveries: finished rollouts on their way to consumers.

Invariant: each consumer, by its name, gets every revision of every rollout until it acknowledges it; sessions of one
consumer share them, and what a session leaves unacknowledged goes to the next one. A new consumer gets all that the
spool has.
"""

import os
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, TypeAlias

from art_otel.errors import UsageError
from art_otel.receiver.building.finished import Finished
from art_otel.receiver.delivery.acknowledged import Acknowledged
from art_otel.receiver.protocol.receipt import Key, Receipt
from art_otel.receiver.protocol.selection import Selection
from art_otel.receiver.protocol.session import SessionEndedError

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")

_Lease: TypeAlias = tuple[Key, str]
"""A rollout's key, and the digest of what was handed out."""


@dataclass(slots=True)
class _Consumer:
    """`pending` waits, the oldest first; `leased` is with a session, by its id. `sessions` are those that are open."""

    acknowledged: Acknowledged
    sessions: set[str] = field(default_factory=set[str])
    pending: OrderedDict[Key, Finished] = field(default_factory=OrderedDict[Key, Finished])
    leased: dict[_Lease, tuple[str, Finished]] = field(default_factory=dict[_Lease, tuple[str, Finished]])

    def offer(self, finished: Finished) -> None:
        """Let a rollout wait, unless the consumer has just this."""
        handled = self.acknowledged.receipts.get(finished.key)
        receipts = [] if handled is None else [handled]
        receipts += [leased.receipt for _, leased in self.leased.values() if leased.key == finished.key]
        if all(receipt.digest != finished.receipt.digest for receipt in receipts):
            revision = max([finished.revision, *(receipt.revision + 1 for receipt in receipts)])
            self.pending[finished.key] = replace(finished, revision=revision)

    def acknowledge(self, receipt: Receipt) -> bool:
        """Note that a rollout was handled, whoever had it, and say whether that is new. Raises OSError."""
        earlier = self.acknowledged.receipts.get(receipt.key)
        is_new = earlier is None or earlier.revision < receipt.revision
        if is_new:
            self.acknowledged.add(receipt)
        self.leased.pop((receipt.key, receipt.digest), None)
        waiting = self.pending.get(receipt.key)
        if waiting is not None and waiting.receipt.digest == receipt.digest:
            del self.pending[receipt.key]
        return is_new

    def lease(self, session: str, holds: AbstractSet[_Lease]) -> None:
        """Note what a session has since before this server, or this connection, began."""
        for lease in holds:
            waiting, leased = self.pending.get(lease[0]), self.leased.get(lease)
            if waiting is not None and waiting.receipt.digest == lease[1]:
                self.leased[lease] = (session, self.pending.pop(lease[0]))
            elif leased is not None:
                self.leased[lease] = (session, leased[1])

    def release(self, session: str, but: AbstractSet[_Lease] = frozenset()) -> None:
        """Take back what a session has, before everything else."""
        for lease, (holder, finished) in reversed(list(self.leased.items())):
            if holder == session and lease not in but:
                del self.leased[lease]
                if finished.key not in self.pending:  # else a later revision waits
                    self.pending[finished.key] = finished
                    self.pending.move_to_end(finished.key, last=False)


class Deliveries:
    """Hands rollouts to consumers, from any thread. `folder` holds what they acknowledged."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._finished: OrderedDict[Key, Finished] = OrderedDict()
        self._consumers: dict[str, _Consumer] = {}
        self._listeners: list[Callable[[], None]] = []

    def offer(self, finished: Iterable[Finished]) -> None:
        """These have ended, or have more than before."""
        with self._lock:
            for rollout in finished:
                self._finished[rollout.key] = rollout
                for consumer in self._consumers.values():
                    consumer.offer(rollout)
        self._tell()

    def listen(self, tell: Callable[[], None]) -> Callable[[], None]:
        """Have `tell` called whenever there is more; what is given ends that."""
        with self._lock:
            self._listeners.append(tell)
        return lambda: self._listeners.remove(tell)

    def open_session(self, name: str) -> str:
        """Begin a session of a consumer, and give its id. Raises UsageError for a name that is none."""
        with self._lock:
            session = os.urandom(8).hex()
            self._consumer(name).sessions.add(session)
            return session

    def take(
        self, name: str, session: str, selection: Selection, count: int, holds: Iterable[Receipt] = ()
    ) -> list[Finished]:
        """Lease up to `count` rollouts to a session.

        `holds` is what it has: anything else that was leased to it got lost on the way, and is given again. Raises
        SessionEndedError.
        """
        with self._lock:
            consumer = self._consumer(name)
            if session not in consumer.sessions:
                raise SessionEndedError
            held = {(receipt.key, receipt.digest) for receipt in holds}
            consumer.release(session, held)
            consumer.lease(session, held)
            taken: list[Finished] = []
            for finished in consumer.pending.values():
                if len(taken) == count:
                    break
                if selection.wants(finished.facts):
                    taken.append(finished)
            for finished in taken:
                del consumer.pending[finished.key]
                consumer.leased[finished.key, finished.receipt.digest] = (session, finished)
            return taken

    def acknowledge(self, name: str, receipts: Iterable[Receipt]) -> int:
        """A consumer has handled these; says how many of them it had not before. Raises OSError for a full disk."""
        with self._lock:
            consumer = self._consumer(name)
            return sum([consumer.acknowledge(receipt) for receipt in receipts])

    def close_session(self, name: str, session: str) -> None:
        """A session has ended: what it did not acknowledge waits again."""
        with self._lock:
            consumer = self._consumer(name)
            consumer.sessions.discard(session)
            consumer.release(session)
        self._tell()

    def close(self) -> None:
        """Leave the files."""
        with self._lock:
            for consumer in self._consumers.values():
                consumer.acknowledged.close()

    def _tell(self) -> None:
        with self._lock:
            listeners = list(self._listeners)
        for tell in listeners:
            tell()

    def _consumer(self, name: str) -> _Consumer:
        consumer = self._consumers.get(name)
        if consumer is None:
            if _NAME.fullmatch(name) is None:
                raise UsageError(f"{name!r:.120} is no name of a consumer: up to 100 letters, digits, '.', '_' and '-'")
            consumer = self._consumers[name] = _Consumer(Acknowledged(self._folder, name))
            for finished in self._finished.values():
                consumer.offer(finished)
        return consumer
