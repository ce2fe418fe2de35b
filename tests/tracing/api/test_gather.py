"""gather_*(): trajectories of running rollouts, whatever becomes of them."""

import asyncio
import pickle
import threading
from functools import partial

import pytest

from art_otel import (
    gather_trajectories,
    gather_trajectory,
    read_trajectories,
    reward,
    rollout,
    write_trajectories,
)
from art_otel.errors import UsageError
from art_otel.tracing.api.context import use_recorder
from art_otel.trajectories import trajectory_json, with_later_rewards
from tests.tracing.api.app import questions


def agent_of(app, name="agent"):
    @rollout(name=name)
    async def agent(question: str, error: BaseException | None = None) -> str:
        answer = await app.ask_later(question)
        reward(0.5)
        if error is not None:
            raise error
        return answer

    return agent


def test_a_trajectory_has_its_result(app, tmp_path):
    found = asyncio.run(gather_trajectory(agent_of(app)("one")))
    assert (found.result, found.reward, found.complete, questions(found)) == ("a", 0.5, True, ["one"])
    stored = app.stored()["agent"]
    assert stored == found
    assert stored.result is None
    assert "result" not in trajectory_json(found)
    assert "result" not in repr(found)
    write_trajectories([found], tmp_path / "one.parquet")
    assert list(read_trajectories(tmp_path / "one.parquet")) == [found]


def test_a_result_that_nothing_can_write(app):
    @rollout
    async def agent():
        return threading.Lock()

    found = asyncio.run(gather_trajectory(agent()))
    assert trajectory_json(found)["rollout_id"] == found.rollout_id
    assert pickle.loads(pickle.dumps(app.rollouts.trajectory(found.rollout_id))) == found


@pytest.mark.parametrize(
    ("error", "status"),
    [(ValueError("bad"), "error"), (asyncio.CancelledError(), "cancelled"), (TimeoutError(), "error")],
)
def test_an_exception_becomes_a_trajectory(app, error, status):
    found = asyncio.run(gather_trajectory(agent_of(app)("one", error)))
    assert (found.status, found.result, found.reward, questions(found)) == (status, None, 0.5, ["one"])
    assert app.stored()["agent"] == found


def test_errors_are_raised_when_asked_for(app):
    with pytest.raises(ValueError, match="bad"):
        asyncio.run(gather_trajectory(agent_of(app)("one", ValueError("bad")), raise_errors=True))


def test_plain_functions_run_in_threads(app):
    barrier = threading.Barrier(10, timeout=60)

    @rollout(name="agent")
    def agent(question):
        barrier.wait()
        return app.ask(question)

    async def run():
        return await gather_trajectories(partial(agent, f"{number}") for number in range(10))

    found = asyncio.run(run())
    assert [questions(trajectory) for trajectory in found] == [[f"{number}"] for number in range(10)]
    assert asyncio.run(gather_trajectory(partial(agent_of(app), "one"))).result == "a"
    assert asyncio.run(gather_trajectory(lambda: agent_of(app)("two"))).result == "a"


def test_what_cannot_be_gathered(app):
    async def undecorated():
        return app.ask("one")

    def plain():  # as a decorator that knows no coroutines makes it
        return undecorated()

    async def failing():
        raise KeyError("own")

    async def outside():
        await agent_of(app)("one")
        raise KeyError("outside of the rollout")

    async def task():
        running = asyncio.ensure_future(undecorated())
        try:
            await gather_trajectory(running)
        finally:
            await running

    with pytest.raises(UsageError, match="no rollout began"):
        asyncio.run(gather_trajectory(undecorated()))
    with pytest.raises(UsageError, match="below any decorator that turns an async function into a plain one"):
        asyncio.run(gather_trajectory(rollout(plain)()))
    with pytest.raises(KeyError, match="own"):
        asyncio.run(gather_trajectory(failing()))
    with pytest.raises(KeyError, match="outside of the rollout"):
        asyncio.run(gather_trajectory(outside()))
    with pytest.raises(UsageError, match="not a task"):
        asyncio.run(task())
    with pytest.raises(UsageError, match=r"3 cannot be gathered, because it is not a pending call: .*without await"):
        asyncio.run(gather_trajectory(3))
    with pytest.raises(UsageError, match=r"gather_trajectory\(\) takes one"):
        asyncio.run(gather_trajectories(undecorated()))


@pytest.mark.usefixtures("nothing_set_up")
def test_where_tracing_is_turned_off_it_says_so(monkeypatch):
    monkeypatch.setenv("ART_OTEL_ENABLED", "0")

    @rollout
    async def agent():
        raise AssertionError("never begun")

    with pytest.raises(UsageError, match="ART_OTEL_ENABLED=0"):
        asyncio.run(gather_trajectory(agent()))
    with pytest.raises(UsageError, match="ART_OTEL_ENABLED=0"):
        asyncio.run(gather_trajectories([agent(), agent(), agent()], max_concurrent=1))


def test_spans_that_still_run_are_waited_for(app):
    late = []

    @rollout(name="agent")
    async def agent():
        async def straggler():
            with app.recorded("late", "a", None):
                await asyncio.sleep(0.05)

        late.append(asyncio.create_task(straggler()))
        await asyncio.sleep(0.01)

    async def run(grace_seconds):
        found = await gather_trajectory(agent(), grace_seconds=grace_seconds)
        await late.pop()
        return found

    complete, cut_off = asyncio.run(run(30)), asyncio.run(run(0))
    assert (complete.complete, complete.calls[0].choices is not None) == (True, True)
    assert (cut_off.incomplete_reasons, cut_off.calls[0].end_ns) == ({"not ended": 1, "no content": 1}, None)
    assert all(trajectory.complete for trajectory in app.convert()[0])


def test_of_a_retried_rollout_the_last_counts(app):
    agent = agent_of(app)

    async def retried():
        try:
            return await agent("one", ValueError("first try"))
        except ValueError:
            return await agent("two")

    found = asyncio.run(gather_trajectory(retried()))
    assert (questions(found), found.status, found.result) == (["two"], "ok", "a")


def test_several_rollouts_in_one_piece_of_work_are_told(app):
    agent = agent_of(app)

    async def one_after_another():
        return [await agent(question) for question in ("one", "two", "three")]

    async def at_once():
        return await asyncio.gather(agent("one"), agent("two"))

    async def ending_badly():
        await agent("one")
        await agent("two", ValueError("bad"))

    def plain():
        return [asyncio.run(agent(question)) for question in ("one", "two")]

    for work, count in ((one_after_another(), 3), (at_once(), 2), (ending_badly(), 2), (plain, 2)):
        with pytest.raises(UsageError, match=rf"^{count} rollouts \(agent\) began .*gather_trajectories\(\["):
            asyncio.run(gather_trajectory(work))
    with pytest.raises(UsageError, match=r"^3 rollouts"):
        asyncio.run(gather_trajectories([one_after_another(), agent("four")]))
    found = asyncio.run(gather_trajectory(rollout(name="outer")(one_after_another)()))
    assert [questions(child) for child in found.children] == [["one"], ["two"], ["three"]]


def test_what_is_gathered_outlives_the_grace(app):
    app.rollouts.grace = 0

    @rollout(name="agent")
    async def agent(number):
        return await app.ask_later(f"{number}")

    found = asyncio.run(gather_trajectories([agent(number) for number in range(20)]))
    assert [questions(trajectory) for trajectory in found] == [[f"{number}"] for number in range(20)]
    with rollout(name="another"):
        pass
    assert [app.rollouts.trajectory(trajectory.rollout_id) for trajectory in found] == [None] * 20


def test_what_is_gathered_is_held_whatever_it_weighs(app):
    app.rollouts._max_bytes = 10
    for error, status in ((None, "ok"), (ValueError("bad"), "error")):
        found = asyncio.run(gather_trajectory(agent_of(app)("one", error)))
        assert (found.status, found.reward, found.complete, questions(found)) == (status, 0.5, True, ["one"])


def test_the_event_loop_is_not_blocked(app):
    @rollout(name="agent")
    async def agent():
        late = asyncio.create_task(slow())
        await asyncio.sleep(0)
        return late

    async def slow():
        with app.recorded("late", "a", None):
            await asyncio.sleep(0.1)

    async def run():
        ticks = 0
        gathering = asyncio.create_task(gather_trajectory(agent(), grace_seconds=30))
        while not gathering.done():
            ticks += 1
            await asyncio.sleep(0.005)
        found = gathering.result()
        await found.result
        return ticks

    assert asyncio.run(run()) > 1


def test_a_provider_that_nobody_records_is_left_clean(app, monkeypatch):
    use_recorder(None)
    monkeypatch.setenv("ART_OTEL_ENABLED", "0")
    with pytest.raises(UsageError, match="nothing records"):
        asyncio.run(gather_trajectory(agent_of(app)("one")))
    assert len(app.stored()) == 1


def test_rollouts_inside_are_children(app):
    inner = agent_of(app, "inner")

    @rollout(name="outer")
    async def outer():
        first = await gather_trajectory(inner("one"))
        await inner("two")
        with pytest.raises(ValueError, match="bad"):
            await inner("three", ValueError("bad"))
        await app.ask_later("own")
        return first

    found = asyncio.run(gather_trajectory(outer()))
    stored = {trajectory.rollout_id: trajectory for trajectory in app.convert()[0]}
    assert [questions(child) for child in found.children] == [["one"], ["two"], ["three"]]
    assert [child.status for child in found.children] == ["ok", "ok", "error"]
    assert all(stored[child.rollout_id] == child for child in found.children)
    assert {child.parent_rollout_id for child in found.children} == {found.rollout_id}
    assert found.children[0] == found.result
    assert (questions(found), stored[found.rollout_id]) == (["own"], found)


def test_building_leaves_the_app_its_pool_and_no_thread(app):
    @rollout
    async def agent():
        await app.ask_later("one")

    async def main():
        gathered = [await gather_trajectory(agent()) for _ in range(3)]
        return gathered, asyncio.get_running_loop()._default_executor

    before = threading.active_count()
    gathered, pool = asyncio.run(main())
    assert (len(gathered), pool) == (3, None)
    for thread in threading.enumerate():
        if thread.name.startswith("art-otel-build"):
            thread.join(5)
    assert threading.active_count() == before


def test_a_reward_for_an_id_reaches_the_gathered_one_that_has_it(app, caplog):
    """Of a rollout, or of a response. If several have the id, it reaches none, as in a conversion; this is logged."""

    @rollout
    async def agent(number):
        await app.ask_later("q", "a", f"response-{number}")
        await app.ask_later("q", "b", "shared")

    gathered = asyncio.run(gather_trajectories([agent(number) for number in range(4)]))
    first = next(one for one in gathered if one.calls[0].response_id == "response-0")
    reward(0.5, rollout_id=first.rollout_id)
    reward(2.0, "call", target="response-0")
    reward(3.0, "both", target="shared")
    reward(4.0, "second", target="shared", rollout_id=first.rollout_id)
    assert "several gathered trajectories have the id 'shared'" in caplog.text
    rewarded = {one.rollout_id: with_later_rewards(one) for one in gathered}
    seen = rewarded.pop(first.rollout_id)
    assert seen.reward == 0.5
    assert {given.name: (given.value, given.target) for given in seen.rewards} == {
        "reward": (0.5, None),
        "call": (2.0, first.calls[0].span_id),
        "second": (4.0, first.calls[1].span_id),
    }
    assert [one.rewards for one in rewarded.values()] == [()] * 3
