"""Many rollouts at once: each call in exactly its own."""

import asyncio
import random
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from opentelemetry import trace

from art_otel import gather_trajectories, get_current_trajectory, in_context, reward, rollout, step
from tests.tracing.api.app import messages

MANY = 200


async def stream(app, question, chunks):
    """A streamed call: its span is current only while it starts, and ends with the last chunk."""
    asked = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m", "gen_ai.response.id": f"id {question}"}
    span = app.instrumentor.start_span("openai.chat", kind=trace.SpanKind.CLIENT, attributes=asked)
    span.set_attribute("gen_ai.input.messages", messages("user", question))
    for number in range(chunks):
        await asyncio.sleep(0)
        yield number
    span.set_attribute("gen_ai.output.messages", messages("assistant", f"answer {question}"))
    span.end()


@rollout(name="sub-agent")
async def sub_agent(app, name):
    await app.ask_later(f"{name} sub")
    get_current_trajectory().log(f"{name} sub")


@rollout(name="agent")
async def agent(app, number):
    name = f"{number}"
    random.seed(7)
    for turn in range(2):
        async with step():
            streams = [stream(app, f"{name} {turn} {which}", 1 + random.randrange(3)) for which in range(2)]
            async for _ in streams[0]:
                async for _ in streams[1]:
                    pass
            reward(number + turn / 2)
    await asyncio.gather(sub_agent(app, name), app.ask_later(f"{name} task"))
    loop = asyncio.get_running_loop()
    await loop.run_in_executor(None, in_context(app.ask), f"{name} thread")
    get_current_trajectory().log(name)
    get_current_trajectory().reward = number
    return name


@pytest.mark.parametrize("count", [40, pytest.param(MANY, marks=pytest.mark.flood)])
def test_many_tasks_with_interleaved_streams(app, count):
    found = asyncio.run(gather_trajectories(agent(app, number) for number in range(count)))
    stored, report = app.convert()
    by_id = {trajectory.rollout_id: trajectory for trajectory in stored}
    assert len(by_id) == len(stored) == 2 * count
    for number, trajectory in enumerate(found):
        assert by_id[trajectory.rollout_id] == trajectory
        expected = {f"{number} {turn} {which}" for turn in range(2) for which in range(2)}
        asked = [call.input_messages[0].content for call in trajectory.calls]
        assert sorted(asked) == sorted({*expected, f"{number} task", f"{number} thread"})
        assert (trajectory.complete, trajectory.reward, trajectory.logs) == (True, number, (f"{number}",))
        assert [given.value for given in trajectory.rewards if given.step is not None] == [number, number + 0.5]
    subs = [trajectory for trajectory in stored if trajectory.name == "sub-agent"]
    for trajectory in subs:
        outer = by_id[trajectory.parent_rollout_id]
        assert [call.input_messages[0].content for call in trajectory.calls] == [f"{outer.result or outer.logs[0]} sub"]
    assert len({trajectory.parent_rollout_id for trajectory in subs}) == count
    assert report.spans.quarantined == {}


def test_two_hundred_threads(app):
    barrier = threading.Barrier(MANY, timeout=60)

    @rollout(name="agent")
    def run(number):
        barrier.wait()
        app.ask(f"{number}")
        with step():
            app.ask(f"{number}")
        return number

    with ThreadPoolExecutor(MANY) as pool:
        assert list(pool.map(run, range(MANY))) == list(range(MANY))
    found, _ = app.convert()
    asked = [{call.input_messages[0].content for call in trajectory.calls} for trajectory in found]
    assert sorted(int(only) for (only,) in asked) == list(range(MANY))
    assert all(trajectory.complete and len(trajectory.calls) == 2 for trajectory in found)
