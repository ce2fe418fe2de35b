"""What nobody waits for any more: a coroutine was cancelled, a generator was read as far as anybody wanted."""

import asyncio
import gc
from contextlib import asynccontextmanager

import pytest
from opentelemetry import context as otel_context

from art_otel import rollout, step
from tests.tracing.setup.programs import spans_in

CLOSED = ("cancelled", "CancelledError: its caller no longer waits for it")


@rollout(name="agent")
async def decorated(app) -> None:
    await wait(app)


async def block(app) -> None:
    with rollout(name="agent"):
        await wait(app)


async def async_block(app) -> None:
    async with rollout(name="agent"):
        await wait(app)


async def wait(app) -> None:
    await app.ask_later("one")
    await asyncio.get_running_loop().create_future()


@rollout(name="agent")
def awaited(app):
    return wait(app)


@asynccontextmanager
async def managed():
    with rollout(name="agent"):
        yield


async def in_a_manager(app) -> None:
    async with managed():
        await wait(app)


def leave_waiting(coroutine) -> None:
    """The loop ends while it waits, and it is collected."""
    loop = asyncio.new_event_loop()
    task = loop.create_task(coroutine)
    loop.call_later(0.05, loop.stop)
    loop.run_forever()
    assert not task.done()
    task._log_destroy_pending = False
    loop.close()
    del task, coroutine
    gc.collect()


@pytest.mark.long
@pytest.mark.parametrize("agent", [decorated, block, async_block, awaited, in_a_manager])
def test_a_coroutine_that_is_closed_was_cancelled(app, agent, caplog):
    leave_waiting(agent(app))
    found = app.stored()["agent"]
    assert (found.status, found.error, len(found.calls)) == (*CLOSED, 1)
    assert caplog.text == ""
    assert otel_context.get_current() == {}


def test_a_coroutine_that_is_closed_here(app):
    async def run() -> None:
        with rollout(name="around"):
            coroutine = decorated(app)
            coroutine.send(None)
            coroutine.send(None)
            coroutine.close()
            app.ask("two")

    asyncio.run(run())
    found = app.stored()
    assert (found["agent"].status, found["agent"].error) == CLOSED
    assert (found["around"].status, len(found["around"].calls)) == ("ok", 1)


def test_a_step_that_is_closed(app):
    @rollout(name="agent")
    async def agent() -> None:
        with step():
            await wait(app)

    leave_waiting(agent())
    app.processor.shutdown()
    (ended,) = [span for span in spans_in(app.spool.folder) if span["name"] == "step 0" and "endTimeUnixNano" in span]
    assert ended["status"] == {"code": 2, "message": CLOSED[1]}


@pytest.mark.long
@pytest.mark.usefixtures("nothing_set_up")
def test_it_is_closed_as_quietly_where_nothing_is_set_up(caplog):
    class Nothing:
        async def ask_later(self, _question):
            await asyncio.sleep(0)

    for agent in (decorated, block, async_block, awaited):
        leave_waiting(agent(Nothing()))
    assert caplog.text == ""


def test_readers_may_leave_while_nothing_is_waited_for(app):
    @rollout(name="agent")
    async def agent():
        with step():
            await app.ask_later("one")
            yield 1
        yield 2

    @rollout(name="plain")
    def plain():
        with rollout(name="inner"):
            yield 1

    gc.freeze()  # what was there before need not be looked at

    async def run() -> None:
        async for _ in agent():
            break
        for _ in plain():
            break
        gc.collect()
        await asyncio.sleep(0)

    asyncio.run(run())
    assert {name: found.status for name, found in app.stored().items()} == {"agent": "ok", "plain": "ok", "inner": "ok"}
