"""`receive` and `connect`: finished rollouts for a trainer, of a receiver in this process or of a running `serve`.

Invariant: leaving the block ends what it began.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Unpack

from art_otel.http import Address
from art_otel.receiver.receiver import Receiver, ReceiverOptions
from art_otel.receiver.remote_session import RemoteSession
from art_otel.receiver.rollouts import ReceivedRollouts
from art_otel.receiver.selection import Selection, SelectionOptions


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


@asynccontextmanager
async def connect(
    url: str = "http://127.0.0.1:4318",
    *,
    token: str | None = None,
    certificate: str | Path | None = None,
    consumer: str = "trainer",
    **selection: Unpack[SelectionOptions],
) -> AsyncGenerator[ReceivedRollouts]:
    """Give the rollouts that end at a running `art-otel serve`.

    async with art_otel.connect("http://127.0.0.1:4318") as rollouts:
        async for trajectory in rollouts:
            ...

    Each `consumer`, by its name, gets every rollout once; programs with the same name share them. Asking for the next
    acknowledges the one before, and so does leaving the block without an exception; what a program that died did not
    acknowledge is given again. A rollout is left to others unless all that is asked about it holds: its `split`, the
    `model` of any of its calls, the `policy_version` of its first, at least `min_policy_version`, and that it ended at
    most `max_age` seconds ago. `certificate` is a PEM file to trust. Raises UsageError where no receiver answers.
    """
    session = RemoteSession(url, consumer, token, None if certificate is None else str(certificate))
    async with ReceivedRollouts(url, await session.open(), Selection(**selection)) as rollouts:
        yield rollouts
