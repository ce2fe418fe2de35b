"""`connect`: finished rollouts for a trainer, of a running `art-otel serve`.

Invariant: leaving the block ends what it began.
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Unpack

from art_otel.receiver.client.remote_session import RemoteSession
from art_otel.receiver.client.rollouts import ReceivedRollouts
from art_otel.receiver.protocol.selection import Selection, SelectionOptions


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
