"""LocalSession: a session of a receiver in this process, by which it also answers those of others.

Invariant: a question waits no longer than it says, and is answered at once when there is more for it.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress

from art_otel.receiver.building.finished import Finished, FinishedRollouts
from art_otel.receiver.delivery.deliveries import Deliveries
from art_otel.receiver.metrics import Metrics
from art_otel.receiver.protocol.parcel import Parcel
from art_otel.receiver.protocol.receipt import Receipt
from art_otel.receiver.protocol.session import Question


class LocalSession:
    """A session of a receiver in this process."""

    def __init__(self, consumer: str, deliveries: Deliveries, finished: FinishedRollouts, metrics: Metrics) -> None:
        self.id = deliveries.open_session(consumer)
        self._consumer = consumer
        self._deliveries = deliveries
        self._finished = finished
        self._metrics = metrics
        self._questions = 0

    async def take(self, question: Question) -> list[Parcel]:
        """As Session."""
        self._acknowledge(question.handled)
        loop, more = asyncio.get_running_loop(), asyncio.Event()

        def tell() -> None:
            loop.call_soon_threadsafe(more.set)

        stop_listening = self._deliveries.listen(tell)
        ends = loop.time() + question.wait
        self._questions += 1
        number = self._questions
        try:
            while True:
                more.clear()
                taken = self._deliveries.take(
                    self._consumer, self.id, question.selection, question.count, question.holds
                )
                parcels = await self._packed(taken)
                if parcels or not question.count or loop.time() >= ends:
                    return parcels
                with suppress(TimeoutError):
                    await asyncio.wait_for(more.wait(), ends - loop.time())
                if number != self._questions:  # whoever asked this has left it and asked again
                    return []
        finally:
            stop_listening()

    async def close(self, handled: Sequence[Receipt] = ()) -> None:
        """As Session."""
        self._acknowledge(handled)
        self._deliveries.close_session(self._consumer, self.id)

    def _acknowledge(self, handled: Sequence[Receipt]) -> None:
        if handled:
            new = self._deliveries.acknowledge(self._consumer, handled)
            self._metrics.add("art_otel_acknowledged_total", new)

    async def _packed(self, taken: Sequence[Finished]) -> list[Parcel]:
        parcels: list[Parcel] = []
        for finished in taken:
            encoded = self._finished.kept(finished)
            if encoded is None:
                encoded = await asyncio.to_thread(self._finished.build, finished)
            if encoded is None:  # its lines have left the spool, which the builder logs
                self._deliveries.acknowledge(self._consumer, [finished.receipt])
            else:
                parcels.append(Parcel(finished.receipt, encoded))
        self._metrics.add("art_otel_handed_out_total", len(parcels))
        return parcels
