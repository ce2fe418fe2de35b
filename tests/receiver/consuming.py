"""Consuming: what a consumer of a running server gets."""

import asyncio
from collections.abc import Iterable
from dataclasses import replace

import art_otel
from art_otel.trajectories import Trajectory


async def take(rollouts, count: int, seconds: float = 60) -> list[Trajectory]:
    """The next so many."""
    return [await asyncio.wait_for(anext(rollouts), seconds) for _ in range(count)]


async def has_no_more(rollouts, seconds: float = 0.7) -> bool:
    """Whether nothing comes for a while."""
    try:
        extra = await asyncio.wait_for(anext(rollouts), seconds)
    except TimeoutError:
        return True
    print("there is more:", extra.rollout_id, extra.revision)
    return False


async def take_all(rollouts, count: int, seconds: float = 0.7) -> list[Trajectory]:
    """At least so many, and what comes until nothing comes for a while."""
    taken = await take(rollouts, count)
    while True:
        try:
            taken.append(await asyncio.wait_for(anext(rollouts), seconds))
        except TimeoutError:
            return taken


def next_rollouts(url: str, count: int) -> list[Trajectory]:
    """The next that end, which are acknowledged."""

    async def run() -> list[Trajectory]:
        async with art_otel.connect(url) as rollouts:
            return await take(rollouts, count)

    return asyncio.run(run())


def consume(url: str, count: int, consumer: str = "trainer", **selection) -> list[Trajectory]:
    """What a consumer is given, which acknowledges it all; later revisions may make it more than `count`."""

    async def run() -> list[Trajectory]:
        async with art_otel.connect(url, consumer=consumer, **selection) as rollouts:
            return await take_all(rollouts, count)

    return asyncio.run(run())


def by_order(trajectories: Iterable[Trajectory]) -> dict:
    """The newest revision of each, by what identifies it, and without the number of the revision."""
    newest = sorted(trajectories, key=lambda each: each.revision)
    return {each.order: replace(each, revision=0) for each in newest}
