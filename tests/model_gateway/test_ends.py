"""When the rollouts of a gateway end, by a request or by their silence, and which of their attempts is meant."""

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import httpx
import pytest

import art_otel
from art_otel import attributes as names
from tests.conversions import convert_files
from tests.examples import daily
from tests.model_gateway.gateways import MODEL, chat, gateway, recorded, spooled, user
from tests.receiver.consuming import next_rollouts


def test_a_rollout_ends_as_it_is_told_and_a_trainer_gets_it(tmp_path, address):
    with gateway(tmp_path, address) as running:
        first = chat(f"{running.url}/rollout/r%2F1;group_id=task%2F7;split=val;training_step=3")
        said = {"role": "assistant", "content": first["choices"][0]["message"]["content"]}
        chat(f"{running.url}/rollout/r%2F1", {"model": MODEL, "messages": [*user("Hi"), said, *user("More")]})
        rewarded = httpx.post(f"{running.url}/rollout/r%2F1;attempt=2/reward", json={"reward": 2, "name": "pace"})
        assert rewarded.status_code == 200
        end = {"reward": {"reward": 0.5, "style": 1}, "status": "error", "error": "no time", "metadata": {"seed": [3]}}
        ended = httpx.post(f"{running.url}/rollout/r%2F1;attempt=2/end", json=end)
        assert ended.json() == {"rollout_id": "r/1", "attempt": 2, "calls": 2}
        (taken,) = next_rollouts(running.url, 1)
    (trajectory,) = recorded(tmp_path)
    (converted,), _ = convert_files(tmp_path / "out", tmp_path / "spool")
    assert taken == trajectory == converted
    assert (taken.rollout_id, taken.group_id, taken.split, taken.training_step) == ("r/1", "task/7", "val", 3)
    assert taken.attempt == 2
    assert (taken.reward, taken.status, taken.error) == (0.5, "error", "no time")
    assert taken.metadata == {"seed": [3]}
    assert [(reward.name, reward.value) for reward in taken.rewards if reward.name == "pace"] == [("pace", 2.0)]
    assert taken.complete, taken.incomplete_reasons
    assert [turn.parent for turn in taken.turns] == [None, 0]


def test_what_comes_after_an_end_is_for_the_attempt_that_the_end_named(tmp_path, address):
    with gateway(tmp_path, address) as running:
        url = f"{running.url}/rollout/r"
        chat(url)
        for _ in range(2):
            ended = httpx.post(f"{url};attempt=2/end", json={"reward": 1})
            assert ended.json() == {"rollout_id": "r", "attempt": 2, "calls": 1}
        assert httpx.post(f"{url};attempt=2/reward", json={"reward": 3, "name": "late"}).status_code == 200
    (trajectory,) = recorded(tmp_path)
    assert (trajectory.attempt, len(trajectory.calls), trajectory.complete) == (2, 1, True)
    assert [(reward.name, reward.value) for reward in trajectory.rewards] == [("reward", 1.0), ("late", 3.0)]


def test_a_limit_that_a_quiet_rollout_reaches_is_recorded_once(tmp_path, address):
    with gateway(tmp_path, address, grace=0.5, max_calls=1) as running:
        for _ in range(3):  # slower than the grace, as with a tool that takes long
            chat(f"{running.url}/rollout/r")
            time.sleep(1.5)
    (trajectory,) = recorded(tmp_path)
    assert (len(trajectory.calls), trajectory.metadata) == (1, {"max_calls_reached": True})
    assert trajectory.complete
    assert spooled(tmp_path).count(names.MAX_CALLS_REACHED) == 1


def test_a_rollout_that_is_quiet_ends_and_goes_on_as_a_revision(tmp_path, address):
    async def main(url: str) -> list[art_otel.Trajectory]:
        async with art_otel.connect(url) as rollouts:
            chat(f"{url}/rollout/q")
            taken = [await asyncio.wait_for(anext(rollouts), 30)]
            chat(f"{url}/rollout/q")
            httpx.post(f"{url}/rollout/q/end", json={"reward": 1})
            while len(taken[-1].calls) < 2 or taken[-1].reward is None:
                taken.append(await asyncio.wait_for(anext(rollouts), 30))
            return taken

    with gateway(tmp_path, address, grace=1.0) as running:
        first, *_, last = asyncio.run(main(running.url))
    assert (first.complete, len(first.calls), first.reward, first.revision) == (True, 1, None, 0)
    assert (last.complete, len(last.calls), last.reward, last.rollout_id) == (True, 2, 1.0, "q")
    assert last.revision > 0


@contextmanager
def streaming(url: str, text: str) -> Iterator[None]:
    """An answer that has begun when the block begins, and has ended behind it."""
    body = {"model": MODEL, "messages": user(text), "stream": True}
    with httpx.stream("POST", f"{url}/v1/chat/completions", json=body, timeout=30) as response:
        pieces = response.iter_bytes()
        next(pieces)
        yield
        list(pieces)


def test_a_rollout_that_is_ended_while_a_call_runs_is_given_with_the_call(tmp_path, address):
    with gateway(tmp_path, address) as running:
        with streaming(f"{running.url}/rollout/r", "Hi #words=10 #pace=0.1"):
            httpx.post(f"{running.url}/rollout/r/end", json={"reward": 1})
        (taken,) = next_rollouts(running.url, 1)
    assert (taken.complete, taken.revision, len(taken.calls), taken.reward) == (True, 0, 1, 1.0)


@pytest.mark.long
def test_what_runs_longer_than_the_grace_is_missed_until_it_ends_and_no_revision_is_without_news(tmp_path, address):
    async def main(url: str) -> list[art_otel.Trajectory]:
        async with art_otel.connect(url) as rollouts:
            taken: list[art_otel.Trajectory] = []

            async def take(wait: float) -> None:
                taken.append(await asyncio.wait_for(anext(rollouts), wait))

            with streaming(f"{url}/rollout/r", "Hi #words=10 #pace=0.4"):
                httpx.post(f"{url}/rollout/r/end", json={"reward": 1})
                await take(30)
            await take(30)
            with pytest.raises(TimeoutError):
                await take(3)
            return taken

    with gateway(tmp_path, address, grace=1.0) as running:
        taken = asyncio.run(main(running.url))
    given = [(one.revision, len(one.calls), one.incomplete_reasons, one.reward) for one in taken]
    assert given == [(0, 0, {"spans missing": 1}, 1.0), (1, 1, {}, 1.0)]


@pytest.mark.parametrize("is_restarted", daily([True, False], one_in=2))
def test_a_rollout_that_was_ended_and_is_called_again_is_another_attempt(tmp_path, address, caplog, is_restarted):
    async def main(url: str, count: int) -> list[art_otel.Trajectory]:
        async with art_otel.connect(url) as rollouts:
            taken = [await asyncio.wait_for(anext(rollouts), 30) for _ in range(count)]
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(anext(rollouts), 1)
            return taken

    with ExitStack() as stack:
        running = stack.enter_context(gateway(tmp_path, address, max_calls=2))
        taken: list[art_otel.Trajectory] = []
        for attempt, reward in ((1, 0), (2, 1), (3, 1)):
            for _ in range(2):
                chat(f"{running.url}/rollout/small-2")
            httpx.post(f"{running.url}/rollout/small-2/reward", json={"reward": 0.5, "name": "style"})
            ended = httpx.post(f"{running.url}/rollout/small-2/end", json={"reward": reward})
            assert ended.json() == {"rollout_id": "small-2", "attempt": attempt, "calls": 2}
            if is_restarted:
                taken += asyncio.run(main(running.url, 1))
                stack.close()
                running = stack.enter_context(gateway(tmp_path, address, max_calls=2))
        if not is_restarted:
            taken = asyncio.run(main(running.url, 3))
    converted, _ = convert_files(tmp_path / "out", tmp_path / "spool")
    assert converted == sorted(taken, key=lambda one: one.order)
    facts = [(one.attempt, one.revision, len(one.calls), one.complete, one.reward) for one in converted]
    assert facts == [(None, 0, 2, True, 0.0), (2, 0, 2, True, 1.0), (3, 0, 2, True, 1.0)]
    assert all([reward.name for reward in one.rewards] == ["style", "reward"] for one in converted)
    said = [record.message for record in caplog.records if "is called again" in record.message]
    assert len(said) == 2
    assert "attempt 3 begins" in said[-1]


def test_attempts_that_agents_name_are_apart(tmp_path, address):
    with gateway(tmp_path, address) as running:
        for _ in range(2):
            for attempt in (0, 1, 2):
                chat(f"{running.url}/rollout/r;attempt={attempt}")
        for attempt in (0, 1, 2):
            ended = httpx.post(f"{running.url}/rollout/r;attempt={attempt}/end", json={"reward": attempt})
            assert ended.json() == {"rollout_id": "r", "attempt": attempt, "calls": 2}
    converted, _ = convert_files(tmp_path / "out", tmp_path / "spool")
    assert [(one.attempt, one.reward, len(one.calls), one.complete) for one in converted] == [
        (attempt, float(attempt), 2, True) for attempt in (0, 1, 2)
    ]


def test_the_end_of_an_unknown_rollout_is_no_complete_rollout(tmp_path, address):
    with gateway(tmp_path, address) as running:
        chat(f"{running.url}/rollout/small-1")
        ended = httpx.post(f"{running.url}/rollout/smal-1/end", json={"reward": 1})
        assert (ended.status_code, ended.json()) == (200, {"rollout_id": "smal-1", "attempt": 1, "calls": 0})
        (taken,) = next_rollouts(running.url, 1)
    converted, _ = convert_files(tmp_path / "out", tmp_path / "spool")
    assert (taken.complete, taken.incomplete_reasons) == (False, {"no calls": 1})
    assert [(one.rollout_id, one.complete) for one in converted] == [("smal-1", False), ("small-1", True)]
    told = subprocess.run(
        [sys.executable, "-m", "art_otel", "doctor", str(tmp_path / "spool")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "no call of it came" in told.stdout or "no call came" in told.stdout, told.stdout
    assert "threads" not in told.stdout


def test_what_ends_a_rollout_wrongly_is_refused_in_words(tmp_path, address):
    with gateway(tmp_path, address) as running:
        for end, words in (
            ({"reward": "high"}, "$.reward"),
            ({"rewards": 1}, "rewards"),
            ({"score": 1}, "the fields are reward, status, error, metadata, metrics"),
            ({"status": "x"}, "$.status"),
        ):
            response = httpx.post(f"{running.url}/rollout/r/end", json=end)
            assert response.status_code == 400
            assert words in response.json()["error"]["message"]
        form = httpx.post(f"{running.url}/rollout/r/end", content=b"reward=1")
        assert 'send an object of JSON, such as {"reward": 1}' in form.json()["error"]["message"]
        got = httpx.get(f"{running.url}/rollout/r/end")
        assert (got.status_code, got.headers["allow"]) == (405, "POST")
        assert "send it with POST" in got.json()["error"]["message"]
        misspelled = httpx.post(f"{running.url}/rollout/r;groupid=g/v1/chat/completions", json={})
        assert "did you mean group_id?" in misspelled.json()["error"]["message"]
        behind_a_query = httpx.post(f"{running.url}/rollout/r?group_id=g/end", json={"reward": 1})
        assert behind_a_query.status_code == 400
        assert "POST /rollout/ID/end" in behind_a_query.json()["error"]["message"]
