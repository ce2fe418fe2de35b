"""`receive`: finished rollouts for a trainer, of a receiver in this process.

Invariant: leaving the block ends what it began.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Unpack

from art_otel.http import Address
from art_otel.receiver.client.rollouts import ReceivedRollouts
from art_otel.receiver.protocol.selection import Selection, SelectionOptions
from art_otel.receiver.receiver import Receiver, ReceiverOptions


@asynccontextmanager
async def receive(
    *,
    http: str = "127.0.0.1:4318",
    grpc: str | None = None,
    dir: str | Path = ".art",  # noqa: A002 # as the option of `art-otel serve`
    grace: float = 60.0,
    token: str | None = None,
    rollout_spans: Iterable[str] = (),
    consumer: str = "trainer",
    **selection: Unpack[SelectionOptions],
) -> AsyncGenerator[ReceivedRollouts]:
    """Take OTLP at `http` (and `grpc`) and give the rollouts that end, as `art-otel serve` and `connect` do together.

    async with art_otel.receive() as rollouts:
        async for group in rollouts.groups(size=8, timeout=60):
            ...

    What arrives is kept below `dir`. A rollout whose spans are not counted has ended after `grace` seconds of quiet.
    The other arguments are those of `connect`. Raises UsageError for an address that cannot be used.
    """
    options = ReceiverOptions(
        http=Address.parse(http),
        grpc=None if grpc is None else Address.parse(grpc),
        folder=Path(dir),
        grace=grace,
        token=token,
        rollout_spans=tuple(rollout_spans),
    )
    receiver = Receiver(options)
    await asyncio.to_thread(receiver.start)
    try:
        async with ReceivedRollouts(receiver.url, receiver.session(consumer), Selection(**selection)) as rollouts:
            yield rollouts
    finally:
        await asyncio.to_thread(receiver.stop)
