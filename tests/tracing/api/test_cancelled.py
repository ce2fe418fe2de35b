"""What is cancelled, or ends the program, reaches the caller; what fails inside of a rollout is its trajectory's."""

import asyncio

import pytest

from art_otel import gather_trajectories, gather_trajectory, rollout
from tests.tracing.api.test_gather import agent_of


def test_the_caller_can_be_cancelled(app):
    @rollout(name="agent")
    async def agent():
        await asyncio.sleep(60)

    async def run():
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await gather_trajectory(agent())
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(gather_trajectories([agent() for _ in range(3)], max_concurrent=2), 0.01)
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(run())
    found, _ = app.convert()
    assert [trajectory.status for trajectory in found] == ["cancelled"] * 3


async def fail_in_a_group():
    """As tools of one turn at once; Python 3.11 and 3.12 leave the task counted as cancelled."""

    async def tool():
        raise ValueError("tool failed")

    async with asyncio.TaskGroup() as group:
        group.create_task(tool())


@pytest.mark.usefixtures("app")
def test_a_failed_task_group_is_an_error_of_its_rollout():
    @rollout(name="agent")
    async def agent(number):
        if number == 0:
            await fail_in_a_group()
        await asyncio.sleep(0.01)
        return number

    async def run():
        alone = await gather_trajectory(agent(0))
        return alone, await gather_trajectories([agent(number) for number in range(3)], max_exceptions=0.5)

    alone, found = asyncio.run(run())
    assert alone.status == "error"
    assert [(one.status, one.result) for one in found] == [("error", None), ("ok", 1), ("ok", 2)]


@pytest.mark.usefixtures("app")
@pytest.mark.parametrize("error", [KeyError("later"), asyncio.CancelledError()])
def test_a_task_group_that_was_handled_does_not_count(error):
    async def handled():
        try:
            await fail_in_a_group()
        except* ValueError:
            pass

    @rollout(name="agent")
    async def agent():
        await handled()
        raise error

    async def run():
        await handled()
        return await gather_trajectory(agent())

    assert asyncio.run(run()).error is not None


def test_the_caller_can_be_cancelled_after_a_task_group_failed(app):
    @rollout(name="agent")
    async def agent():
        try:
            await fail_in_a_group()
        except* ValueError:
            await asyncio.sleep(60)

    async def run():
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await gather_trajectory(agent())
        gathering = asyncio.ensure_future(gather_trajectory(agent()))
        asyncio.get_running_loop().call_soon(gathering.cancel)  # after it began, before its rollout does
        with pytest.raises(asyncio.CancelledError):
            await gathering

    asyncio.run(run())
    assert [trajectory.status for trajectory in app.convert()[0]] == ["cancelled"]


def test_what_ends_the_program_reaches_the_caller(app):
    async def run():
        with pytest.raises(SystemExit):
            await gather_trajectory(agent_of(app)("one", SystemExit(3)))

    asyncio.run(run())
