"""ReceivedRollouts: what a trainer iterates over.

Invariant: asking for the next acknowledges the one before, on the receiver's disk; so does leaving the block without an
exception. What was not acknowledged is handed out again.
"""

from collections.abc import AsyncGenerator, Sequence
from types import TracebackType
from typing import Final, Self, Unpack

from art_otel.receiver.client.gather_groups import PartialGroups
from art_otel.receiver.protocol.parcel import Delivery
from art_otel.receiver.protocol.receipt import Receipt
from art_otel.receiver.protocol.selection import Selection, SelectionOptions
from art_otel.receiver.protocol.session import Question, Session
from art_otel.trajectories import Trajectory, TrajectoryGroup

_TOGETHER: Final = 16
"""Trajectories of groups that are fetched with one question."""
_WAIT: Final = 20.0
"""Seconds that a question waits at the receiver before it is asked again."""


class ReceivedRollouts:
    """Finished rollouts, the moment they have ended, each once. `url` is where the receiver listens.

    async for trajectory in rollouts:
        ...
    async for group in rollouts.groups(size=8, timeout=60):
        ...
    """

    def __init__(self, url: str, session: Session, selection: Selection) -> None:
        self.url = url
        self._selection = selection
        self._session = session
        self._handling: list[Receipt] = []
        self._handled: list[Receipt] = []

    def select(self, **selection: Unpack[SelectionOptions]) -> None:
        """Choose anew which rollouts are wanted from now on, as after an update of the policy: as `connect` does."""
        self._selection = Selection(**selection)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Trajectory:
        """The next one that ends. It waits as long as there is none."""
        self._finish_handling()
        while True:
            for receipt, trajectory in await self._ask(1, _WAIT):
                self._handling = [receipt]
                return trajectory

    async def groups(self, *, size: int, timeout: float | None = None) -> AsyncGenerator[TrajectoryGroup]:
        """Give groups of `size` trajectories that say the same `group_id` and training step.

        A group that is not full `timeout` seconds after its first trajectory is given as it is. A rollout without a
        group is one of its own. A revision of a rollout whose group was given already is acknowledged and left out.
        """
        partial = PartialGroups(size=size, timeout=timeout)
        while True:
            self._finish_handling()
            ready = partial.take()
            if ready is not None:
                self._handling = list(ready.receipts)
                while self._handled:
                    await self._ask(0, 0.0, partial.receipts)
                yield ready.group
                continue
            wait = min(_WAIT, partial.next_timeout())
            for delivery in await self._ask(_TOGETHER, wait, partial.receipts):
                self._handled += partial.add(delivery)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Acknowledge what was handled, but what raised, and leave the rest to the consumer's next session."""
        if error is None:
            self._finish_handling()
        await self._session.close(self._handled)

    def _finish_handling(self) -> None:
        self._handled += self._handling
        self._handling = []

    async def _ask(self, count: int, wait: float, holds: Sequence[Receipt] = ()) -> list[Delivery]:
        holding = [*holds, *self._handling]
        handled = list(self._handled)
        question = Question(handled=handled, holds=holding, selection=self._selection, count=count, wait=wait)
        parcels = await self._session.take(question)
        del self._handled[: len(handled)]
        return [parcel.unpack() for parcel in parcels]
