"""How a rollout ends: by itself, with an exception, cancelled, timed out, and once."""

import asyncio
from concurrent.futures import CancelledError as FutureCancelledError

import pytest
from opentelemetry import trace
from opentelemetry.trace import StatusCode

from art_otel import rollout
from art_otel.tracing.guest import AS_GUEST
from art_otel.tracing.rollouts.run import About, begin


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
    AS_GUEST.faults -= 2


def test_a_run_ends_once(app):
    run = begin(About(name="agent"))
    run.end()
    run.end(ValueError("again"))
    assert app.stored()["agent"].status == "ok"
