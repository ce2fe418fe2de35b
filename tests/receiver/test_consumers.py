"""Consumers: each gets every rollout until it acknowledges it, whatever ends, dies or starts again meanwhile."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import art_otel
from art_otel.errors import UsageError
from tests.dumps import request_of
from tests.receiver.consuming import consume, has_no_more, take
from tests.receiver.otlp import send
from tests.receiver.rollouts import call, late_reward, logged_reward, rollout, root
from tests.receiver.serving import serving

pytestmark = [pytest.mark.long, pytest.mark.filterwarnings("error")]


@pytest.fixture
def server(tmp_path):
    with serving(tmp_path / "art", "--grace", "1s") as running:
        yield running


def ids(trajectories) -> list[tuple[str, int]]:
    return [(one.rollout_id, one.revision) for one in trajectories]


def numbered(count: int, revision: int = 0) -> list[tuple[str, int]]:
    return [(f"r{number}", revision) for number in range(1, count + 1)]


async def give(server, *requests) -> None:
    for request in requests:
        await asyncio.to_thread(send, server.url, request)


def test_two_names_each_get_all_and_two_sessions_of_one_name_share(server):
    async def run():
        taken: dict[int, list] = {1: [], 2: []}

        async def session(number: int) -> None:
            async with art_otel.connect(server.url, consumer="shared") as rollouts:
                while len(taken[1]) + len(taken[2]) < 40:
                    try:
                        taken[number].append(await asyncio.wait_for(anext(rollouts), 1))
                    except TimeoutError:
                        continue
                    await asyncio.sleep(0.01)

        sessions = asyncio.gather(session(1), session(2))
        for number in range(1, 41):
            await give(server, rollout(number))
        await sessions
        return taken

    taken = asyncio.run(run())
    assert sorted(ids(taken[1] + taken[2])) == sorted(numbered(40))
    assert taken[1]
    assert taken[2]
    assert sorted(ids(consume(server.url, 40, "other"))) == sorted(numbered(40))


DIES = """
import asyncio, sys, art_otel
async def main():
    async with art_otel.connect(sys.argv[1]) as rollouts:
        for _ in range(3):
            print((await anext(rollouts)).rollout_id, flush=True)
        await asyncio.sleep(1000)
asyncio.run(main())
"""


def test_what_a_killed_consumer_had_not_acknowledged_is_given_at_once(server):
    for number in range(1, 4):
        send(server.url, rollout(number))
    program = subprocess.Popen([sys.executable, "-c", DIES, server.url], stdout=subprocess.PIPE, text=True)
    assert program.stdout is not None
    had = [program.stdout.readline().strip() for _ in range(3)]

    async def run():
        async with art_otel.connect(server.url) as rollouts:
            assert await has_no_more(rollouts, 0.5), "the other one has it"
            program.kill()
            began = time.monotonic()
            return await take(rollouts, 1), time.monotonic() - began

    taken, seconds = asyncio.run(run())
    program.wait()
    program.stdout.close()
    assert [rollout_id for rollout_id, _ in ids(taken)] == had[2:]
    assert seconds < 10


def test_waiting_only_so_long_loses_nothing_and_delays_nothing(server):
    async def run():
        async with art_otel.connect(server.url) as rollouts:
            for _ in range(3):
                assert await has_no_more(rollouts, 0.1)
            await give(server, rollout(1), rollout(2))
            first = await take(rollouts, 1, 10)
            for _ in range(20):  # whatever is under way when it is cancelled
                try:
                    first.append(await asyncio.wait_for(anext(rollouts), 0.002))
                except TimeoutError:
                    continue
            while len(first) < 2:
                first += await take(rollouts, 1, 10)
            assert await has_no_more(rollouts, 0.5)
            return first

    assert sorted(ids(asyncio.run(run()))) == numbered(2)


@pytest.mark.parametrize("late", [late_reward, logged_reward])
def test_more_of_a_rollout_is_its_next_revision_also_after_a_restart(server, late):
    async def run():
        async with art_otel.connect(server.url) as rollouts:
            await give(server, rollout(1), rollout(2))
            assert sorted(ids(await take(rollouts, 2))) == numbered(2)
            await give(server, late(1, 0.5))
            (again,) = await take(rollouts, 1)
            assert (ids([again]), again.reward) == ([("r1", 1)], 0.5)
            assert await has_no_more(rollouts, 2)
            server.stop()
            server.start()
            assert await has_no_more(rollouts, 2), "it had all of them"
            await give(server, late(2, 0.25))
            (again,) = await take(rollouts, 1)
            assert (ids([again]), again.reward) == ([("r2", 1)], 0.25)

    asyncio.run(run())
    assert sorted((one.rollout_id, one.reward) for one in consume(server.url, 2, "new")) == [("r1", 0.5), ("r2", 0.25)]


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_a_server_that_starts_again_gives_nothing_twice(server, how):
    """What the session holds, and has not handled, is not given again; what was open goes on."""
    for number in range(1, 21):
        send(server.url, rollout(number))
    send(server.url, request_of(call(21)))

    async def run():
        async with art_otel.connect(server.url) as rollouts:
            taken = await take(rollouts, 3)
            getattr(server, how)()
            server.start()
            await give(server, request_of(root(21)))
            taken += await take(rollouts, 18)
            assert await has_no_more(rollouts, 2)
            return taken

    assert sorted(ids(asyncio.run(run()))) == sorted(numbered(21))

    async def again():
        async with art_otel.connect(server.url) as rollouts:
            return await has_no_more(rollouts)

    assert asyncio.run(again()), "all were acknowledged"


def test_an_exception_leaves_the_current_one_unacknowledged(server):
    taken = []

    async def run() -> None:
        async with art_otel.connect(server.url) as rollouts:
            async for trajectory in rollouts:
                taken.append(trajectory)
                if len(taken) == 2:
                    raise ZeroDivisionError

    for number in range(1, 4):
        send(server.url, rollout(number))
    with pytest.raises(ZeroDivisionError):
        asyncio.run(run())
    first, second = taken
    rest = consume(server.url, 2)
    assert ids([first])[0] not in ids(rest)
    assert sorted(ids([first, *rest])) == numbered(3)
    assert ids([second])[0] in ids(rest)


def test_groups(server):
    async def run():
        given = []
        async with art_otel.connect(server.url) as rollouts:
            groups = rollouts.groups(size=3, timeout=2)
            await give(server, *(rollout(n, **{"art.group.id": "a", "art.training.step": 1}) for n in (1, 2)))
            await give(server, rollout(3, **{"art.group.id": "a", "art.training.step": 2}))
            await give(server, rollout(4), rollout(5, **{"art.group.id": "a", "art.training.step": 1}))
            began = time.monotonic()
            for _ in range(3):
                group = await asyncio.wait_for(anext(groups), 20)
                given.append((group.group_id, sorted(one.rollout_id for one in group.trajectories)))
            assert time.monotonic() - began > 1
            await give(server, late_reward(1, 0.5))
            await asyncio.sleep(2.5)
            await give(server, rollout(6))
            group = await asyncio.wait_for(anext(groups), 20)
            given.append((group.group_id, [one.rollout_id for one in group.trajectories]))
        return given

    given = asyncio.run(run())
    full, late, alone = ("a", ["r1", "r2", "r5"]), ("a", ["r3"]), ("r4", ["r4"])
    assert sorted(given[:3]) == sorted([full, late, alone])
    assert given[2] == late
    assert given[3] == ("r6", ["r6"])

    async def again():
        async with art_otel.connect(server.url) as rollouts:
            return await has_no_more(rollouts)

    assert asyncio.run(again())


def test_a_partial_group_outlives_the_server(server):
    """It is neither given twice nor acknowledged before it was handled."""

    def member(number: int):
        return rollout(number, **{"art.group.id": "a", "art.training.step": 1})

    async def run() -> None:
        async with art_otel.connect(server.url) as rollouts:
            await give(server, member(1), member(2))
            first = asyncio.create_task(anext(rollouts.groups(size=3)))
            await asyncio.sleep(1)
            server.kill()
            server.start()
            await asyncio.sleep(1.5)
            await give(server, member(3))
            group = await asyncio.wait_for(first, 30)
            assert sorted(ids(group.trajectories)) == numbered(3)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        asyncio.run(run())
    assert sorted(ids(consume(server.url, 3))) == numbered(3)


def test_selection(server):
    for number, version, split in ((1, "1", "train"), (2, "2", "train"), (3, "10", "train"), (4, "2", "val")):
        send(server.url, rollout(number, **{"art.policy.version": version, "art.split": split}))
    send(server.url, rollout(5))

    def chosen(consumer: str, count: int, **selection) -> list[str]:
        return sorted(one.rollout_id for one in consume(server.url, count, consumer, **selection))

    assert chosen("a", 1, split="val") == ["r4"]
    assert chosen("b", 2, policy_version="2") == ["r2", "r4"]
    assert chosen("c", 3, min_policy_version=2) == ["r2", "r3", "r4"]
    assert chosen("d", 5, model="m") == ["r1", "r2", "r3", "r4", "r5"]
    assert chosen("e", 0, model="another") == []
    assert chosen("e", 5) == ["r1", "r2", "r3", "r4", "r5"], "what it did not choose waits"
    assert chosen("f", 0, max_age=1) == []


def test_receive_in_this_process(tmp_path):
    async def run(count: int):
        async with art_otel.receive(listen="127.0.0.1:0", dir=tmp_path) as rollouts:
            return await take(rollouts, count) if count else await has_no_more(rollouts)

    with serving(tmp_path) as server:
        send(server.url, rollout(1))
        with pytest.raises(UsageError, match="another receiver"):
            asyncio.run(run(1))
    assert ids(asyncio.run(run(1))) == numbered(1)
    assert asyncio.run(run(0))


def test_a_builder_that_dies_costs_nothing(server):
    send(server.url, rollout(1))
    assert ids(consume(server.url, 1)) == [("r1", 0)]
    assert server.process is not None
    threads = Path(f"/proc/{server.process.pid}/task").glob("*/children")
    (builder,) = (int(pid) for thread in threads for pid in thread.read_text().split())
    os.kill(builder, signal.SIGKILL)
    send(server.url, rollout(2))
    assert ids(consume(server.url, 1)) == [("r2", 0)]
    assert sorted(ids(consume(server.url, 2, "new"))) == numbered(2)
