"""Gateway processes behind a balancer: their folders are read together, and a receiver hands out what they share."""

import asyncio
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

import art_otel
from tests.conversions import convert_files
from tests.examples import kills
from tests.model_gateway.balancer import balanced
from tests.model_gateway.gateways import MODEL, Running, user
from tests.receiver.consuming import has_no_more, take, take_all
from tests.receiver.serving import Serve, serving

CALLS = 6


def spools(folder: Path, *names: str) -> list[Path]:
    """The spools of gateways that recorded anything."""
    return [spool for name in names if any((spool := folder / name / "spool").rglob("*.jsonl"))]


@pytest.mark.long
def test_a_rollout_whose_calls_went_through_two_gateways_is_one(tmp_path, address):
    gateways = [Running(tmp_path / name, address) for name in ("one", "two")]
    for each in gateways:
        each.start()
    try:
        for number in range(CALLS):
            url = gateways[number % 2].url
            body = {"model": MODEL, "messages": user(f"turn {number}"), "stream": number % 3 == 0}
            for rollout in ("a", "b"):
                asked = httpx.post(f"{url}/rollout/{rollout};group_id=g/v1/chat/completions", json=body)
                assert asked.status_code == 200
        for rollout in ("a", "b"):
            httpx.post(f"{gateways[0].url}/rollout/{rollout}/end", json={"reward": 1})
    finally:
        for each in gateways:
            each.stop()
    trajectories, _ = convert_files(tmp_path / "out", *spools(tmp_path, "one", "two"))
    assert {one.rollout_id for one in trajectories} == {"a", "b"}
    for one in trajectories:
        assert len(one.calls) == CALLS
        assert one.group_id == "g"
        assert one.reward == 1.0
        assert one.complete, one.incomplete_reasons


@pytest.mark.long
@pytest.mark.parametrize("then", ["goes on", "is stopped", "is killed", "is another"])
def test_what_was_said_of_a_rollout_counts_wherever_it_is_ended(tmp_path, address, then):
    one, two = gateways = [Running(tmp_path / name, address) for name in ("one", "two")]
    for each in gateways:
        each.start()
    try:
        settings = "group_id=g;split=val;training_step=3;name=solver"
        asked = httpx.post(
            f"{one.url}/rollout/r;{settings}/v1/chat/completions", json={"model": MODEL, "messages": user("Hi")}
        )
        assert asked.status_code == 200
        first = {"reward": 0, "status": "error", "error": "no time", "metadata": {"a": 1, "b": 1}}
        second = {"reward": 1, "metadata": {"b": 2, **{f"c{number}": number for number in range(9)}}}
        assert httpx.post(f"{one.url}/rollout/r/end", json=first).status_code == 200
        if then in ("is stopped", "is killed"):
            (one.stop if then == "is stopped" else one.kill)()
            one.start()
        ended = two if then == "is another" else one
        assert httpx.post(f"{ended.url}/rollout/r/end", json=second).status_code == 200
    finally:
        for each in gateways:
            each.stop()
    (trajectory,), _ = convert_files(tmp_path / "out", *spools(tmp_path, "one", "two"))
    assert trajectory.complete, trajectory.incomplete_reasons
    assert (trajectory.group_id, trajectory.split, trajectory.training_step) == ("g", "val", 3)
    assert (trajectory.name, trajectory.status, trajectory.error) == ("solver", "ok", None)
    assert trajectory.metadata == {"a": 1, **second["metadata"]}
    assert [reward.value for reward in trajectory.rewards] == [0.0, 1.0]
    assert (trajectory.reward, len(trajectory.calls)) == (1.0, 1)


@dataclass
class Shared:
    """Gateways that send to one receiver, and what agents ask through the balancer at `url`."""

    receiver: Serve
    gateways: list[Running]
    url: str

    def play(self, rollout: str, turns: int, text: str = "", *, is_ended: bool = True) -> list[str]:
        """A conversation, each request to another gateway, and its end. Gives the ids of the answers."""
        history: list[dict] = []
        answered: list[str] = []
        for turn in range(turns):
            history += user(f"{rollout} {turn} {text}")
            body = {"model": MODEL, "messages": history, "stream": False}
            answer = _post(f"{self.url}/rollout/{rollout};group_id=g/v1/chat/completions", body).json()
            history.append(answer["choices"][0]["message"])
            answered.append(answer["id"])
        if is_ended:
            _post(f"{self.url}/rollout/{rollout}/end", {"reward": 1})
        return answered


def _post(url: str, body: dict) -> httpx.Response:
    """Ask on a connection of its own, again where there is no answer."""
    while True:
        try:
            return httpx.post(url, json=body, timeout=60).raise_for_status()
        except httpx.TransportError:
            time.sleep(0.05)


@contextmanager
def shared(folder: Path, address: str, count: int, *, grace: str, delays: tuple[float, ...] = ()) -> Iterator[Shared]:
    """So many gateways. What the first ones send to the receiver arrives later."""
    with ExitStack() as stack:
        receiver = stack.enter_context(serving(folder / "receiver", "--grace", grace))
        ways = [stack.enter_context(balanced([receiver.url], delay)) for delay in delays]
        ways += [receiver.url] * (count - len(ways))
        gateways = [
            Running(folder / f"gateway-{number}", address, "--otlp", way, "--grace", grace)
            for number, way in enumerate(ways)
        ]
        for each in gateways:
            each.start()
            stack.callback(each.stop)
        url = stack.enter_context(balanced([each.url for each in gateways]))
        yield Shared(receiver, gateways, url)


@pytest.mark.long
def test_a_trainer_gets_each_rollout_of_a_balancer_once_and_whole(tmp_path, address):
    """Also where what one gateway sends comes later than what the others do, and where nobody says the end."""
    names, turns = [*(f"ended-{number}" for number in range(12)), "quiet-1", "quiet-2"], 4

    async def main(setup: Shared) -> list[art_otel.Trajectory]:
        with ThreadPoolExecutor(4) as pool:
            playing = [
                asyncio.wrap_future(pool.submit(setup.play, name, turns, is_ended=name.startswith("ended")))
                for name in names
            ]
            async with art_otel.connect(setup.receiver.url) as rollouts:
                taken = await take(rollouts, len(names))
                await asyncio.gather(*playing)
                assert await has_no_more(rollouts, 6)
        return taken

    with shared(tmp_path, address, 3, grace="4s", delays=(0.2,)) as setup:
        taken = asyncio.run(main(setup))
        dumped = setup.receiver.convert(tmp_path / "out")
    assert sorted(taken, key=lambda one: one.order) == dumped
    assert sorted(one.rollout_id for one in taken) == sorted(names)
    for one in taken:
        assert one.complete, one.incomplete_reasons
        assert [turn.parent for turn in one.turns] == [None, *range(turns - 1)]
        assert (one.revision, one.status, one.group_id) == (0, "ok", "g")
        assert [reward.value for reward in one.rewards] == [1.0] * one.rollout_id.startswith("ended")


@pytest.mark.long
def test_a_rollout_is_open_while_a_call_runs_at_a_gateway_that_was_not_told_of_its_end(tmp_path, address):
    """And for longer than the grace, if nobody ended it."""

    async def main(setup: Shared) -> None:
        one, other = setup.gateways
        async with art_otel.connect(setup.receiver.url) as rollouts:
            for rollout, pace in (("quiet", 0.5), ("ended", 0.25)):
                url = f"{one.url}/rollout/{rollout}/v1/chat/completions"
                body = {"model": MODEL, "messages": user(f"Hi #words=10 #pace={pace}"), "stream": True}
                running = asyncio.create_task(asyncio.to_thread(_post, url, body))
                await asyncio.sleep(1)
                assert setup.receiver.metrics()["art_otel_open_rollouts"] == 1
                if rollout == "ended":
                    await asyncio.to_thread(_post, f"{other.url}/rollout/{rollout}/end", {"reward": 1})
                assert await has_no_more(rollouts, 0.5)
                await running
                (taken,) = await take(rollouts, 1)
                assert (taken.rollout_id, taken.revision, taken.incomplete_reasons) == (rollout, 0, {})
            assert await has_no_more(rollouts, 4)
            assert taken.reward == 1.0

    with shared(tmp_path, address, 2, grace="3s") as setup:
        asyncio.run(main(setup))


@pytest.mark.long
@pytest.mark.parametrize("to", ["the same", "another"])
def test_an_end_that_is_sent_again_is_one(tmp_path, address, to):
    with shared(tmp_path, address, 2, grace="60s") as setup:
        one, other = setup.gateways
        end = {"reward": {"reward": 0.5, "style": 1}, "status": "error", "error": "no time"}
        _post(f"{one.url}/rollout/r/v1/chat/completions", {"model": MODEL, "messages": user("Hi")})
        for each in (one, one if to == "the same" else other):
            _post(f"{each.url}/rollout/r/end", end)

        async def main() -> list[art_otel.Trajectory]:
            async with art_otel.connect(setup.receiver.url) as rollouts:
                return await take_all(rollouts, 1, 2)

        *_, taken = asyncio.run(main())
    (trajectory,), _ = convert_files(tmp_path / "out", *spools(tmp_path, "gateway-0", "gateway-1"))
    for found in (taken, trajectory):
        assert [(reward.name, reward.value) for reward in found.rewards] == [("reward", 0.5), ("style", 1.0)]
        assert (found.status, found.error, found.complete) == ("error", "no time", True)


@pytest.mark.kill
def test_a_gateway_that_is_killed_costs_no_rollout_of_others_and_no_loss_is_silent(tmp_path, address):
    """What was cut is told, and nothing is given twice. The folders have every call that was answered."""
    names, chance = [f"r{number}" for number in range(60)], random.Random(7)
    ended, answered, taken = threading.Event(), dict[str, list[str]](), list[art_otel.Trajectory]()

    async def main(setup: Shared) -> None:
        def kill() -> None:
            for _ in range(kills(5)):
                time.sleep(chance.uniform(1, 3))
                one = chance.choice(setup.gateways)
                one.kill()
                time.sleep(0.3)
                one.start()
            ended.set()

        def play(name: str) -> None:
            answered[name] = setup.play(name, CALLS, "#delay=0.2")

        with ThreadPoolExecutor(13) as pool:
            killing = asyncio.wrap_future(pool.submit(kill))
            playing = [asyncio.wrap_future(pool.submit(play, name)) for name in names]
            async with art_otel.connect(setup.receiver.url) as rollouts:
                taken.extend(await take_all(rollouts, len(names), 20))
                await asyncio.gather(killing, *playing)

    with shared(tmp_path, address, 2, grace="15s") as setup:
        asyncio.run(main(setup))
    assert Counter(one.rollout_id for one in taken) == dict.fromkeys(names, 1)
    for one in taken:
        missing = set(answered[one.rollout_id]) - {call.response_id for call in one.calls}
        assert len(missing) <= one.incomplete_reasons.get("spans missing", 0)
        assert (one.reward, one.status, one.group_id) == (1.0, "ok", "g")
    for one in convert_files(tmp_path / "out", *spools(tmp_path, "gateway-0", "gateway-1"))[0]:
        assert set(answered[one.rollout_id]) <= {call.response_id for call in one.calls}
        assert one.complete, one.incomplete_reasons
