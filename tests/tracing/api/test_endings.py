"""How a rollout ends: by itself, with an exception, cancelled, timed out, and once."""

import asyncio
from concurrent.futures import CancelledError as FutureCancelledError

import pytest
from opentelemetry import trace
from opentelemetry.trace import StatusCode

from art_otel import rollout
from art_otel.tracing.api.run import RolloutConfig, begin


@pytest.mark.parametrize(
    ("raised", "status", "error"),
    [
        (ValueError("bad"), "error", "ValueError: bad"),
        (TimeoutError(), "error", "TimeoutError"),
        (asyncio.CancelledError(), "cancelled", "CancelledError"),
        (FutureCancelledError("x"), "cancelled", "CancelledError: x"),
        (KeyboardInterrupt(), "error", "KeyboardInterrupt"),
        (SystemExit(2), "error", "SystemExit: 2"),
        (SystemExit(0), "ok", None),
        (SystemExit(), "ok", None),
    ],
)
def test_how_it_ends(app, raised, status, error):
    @rollout(name="agent")
    def agent():
        app.ask("one")
        raise raised

    with pytest.raises(type(raised)) as caught:
        agent()
    assert caught.value is raised
    found = app.stored()["agent"]
    assert (found.status, found.error, len(found.calls)) == (status, error, 1)


def test_a_cancelled_and_a_timed_out_task(app):
    @rollout
    async def agent():
        await app.ask_later("one")
        await asyncio.sleep(60)

    async def run():
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(rollout(name="inner is cancelled")(agent)(), 0.01)
        task = asyncio.create_task(rollout(name="cancelled")(agent.__wrapped__)())
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        with pytest.raises(TimeoutError):
            async with rollout(name="timed out"), asyncio.timeout(0.01):
                await asyncio.sleep(60)

    asyncio.run(run())
    found = app.stored()
    assert {name: trajectory.status for name, trajectory in found.items() if "locals" not in name} == {
        "inner is cancelled": "cancelled",
        "cancelled": "cancelled",
        "timed out": "error",
    }
    assert len(found["cancelled"].calls) == 1


def test_a_status_that_the_app_sets_stands(app):
    with rollout(name="agent"):
        trace.get_current_span().set_status(StatusCode.ERROR, "out of turns")
    found = app.stored()["agent"]
    assert (found.status, found.error) == ("error", "out of turns")


def test_an_exception_without_words(app):
    class WordlessError(Exception):
        def __str__(self):
            raise RuntimeError("no words")

    with pytest.raises(WordlessError), rollout(name="agent"):
        raise WordlessError
    found = app.stored()["agent"]
    assert (found.status, found.error) == ("error", "WordlessError")


def test_a_run_ends_once(app):
    run = begin(RolloutConfig(name="agent"))
    run.end()
    run.end(ValueError("again"))
    assert app.stored()["agent"].status == "ok"


@pytest.mark.parametrize("make", ["trio.open_nursery", "anyio.create_task_group"])
@pytest.mark.parametrize("limit", ["trio.move_on_after", "anyio.move_on_after"])
def test_cancelled_by_trio(app, make, limit):
    trio = pytest.importorskip("trio")

    @rollout(name="waits")
    async def waits() -> None:
        app.ask("one")
        await trio.sleep(60)

    @rollout(name="waits in a group")
    async def waits_in_a_group() -> None:
        module, _, name = make.partition(".")
        async with getattr(pytest.importorskip(module), name)() as group:
            for _ in range(2):
                group.start_soon(trio.sleep, 60)
            await trio.sleep(60)

    @rollout(name="fails meanwhile")
    async def fails_meanwhile() -> None:
        async with trio.open_nursery() as group:
            group.start_soon(trio.sleep, 60)
            try:
                await trio.sleep(60)
            finally:
                raise ValueError("bad")

    async def run() -> None:
        module, _, name = limit.partition(".")
        for agent in (waits, waits_in_a_group):
            with getattr(pytest.importorskip(module), name)(0.01):
                await agent()
        with pytest.raises(ExceptionGroup), trio.move_on_after(0.01):
            await fails_meanwhile()

    trio.run(run)
    found = {name: trajectory.status for name, trajectory in app.stored().items()}
    assert found == {"waits": "cancelled", "waits in a group": "cancelled", "fails meanwhile": "error"}


def test_a_group_is_cancelled_where_all_of_it_is(app):
    cancelled = asyncio.CancelledError("x")
    both = {
        "cancelled": BaseExceptionGroup("g", [BaseExceptionGroup("h", [cancelled]), FutureCancelledError()]),
        "failed": BaseExceptionGroup("g", [cancelled, ValueError("bad")]),
    }
    for name, error in both.items():
        with pytest.raises(BaseExceptionGroup), rollout(name=name):
            raise error
    found = app.stored()
    assert (found["cancelled"].status, found["cancelled"].error) == ("cancelled", "CancelledError: x")
    assert (found["failed"].status, found["failed"].error) == ("error", "BaseExceptionGroup: g (2 sub-exceptions)")
