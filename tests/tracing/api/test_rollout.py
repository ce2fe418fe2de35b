"""rollout(): each kind of function, blocks, what it says about itself."""

import asyncio
import inspect
from functools import partial, wraps

import pytest
from opentelemetry import baggage, trace
from opentelemetry import context as otel_context

from art_otel import get_current_trajectory, rollout
from art_otel.errors import UsageError
from art_otel.tracing.api.context import current_rollout_id, running_trajectory
from tests.tracing.api.app import questions


def test_a_plain_function(app):
    @rollout
    def agent(question: str, *, loud: bool = False) -> str:
        """Ask."""
        return app.ask(question) + ("!" if loud else "")

    assert agent("one", loud=True) == "a!"
    assert (agent.__doc__, list(inspect.signature(agent).parameters)) == ("Ask.", ["question", "loud"])
    (found,) = app.stored().values()
    assert found.name == "test_a_plain_function.<locals>.agent"
    assert (questions(found), found.status, found.complete, found.error) == (["one"], "ok", True, None)
    assert len(found.rollout_id) == 32
    assert running_trajectory() is None


def test_everything_that_can_be_said(app):
    given = {"task": 7, "level": 0.5, "hard": True, "note": "x", "absent": None, "list": [1, {"a": "b"}]}

    @rollout(name="sums", group_id="g", split="val", attempt=2, training_step=30, metadata=given)
    def agent():
        return get_current_trajectory().metadata

    assert agent() == given
    found = app.stored()["sums"]
    assert (found.group_id, found.split, found.attempt, found.training_step) == ("g", "val", 2, 30)
    assert found.metadata == given


async def _agent(app, question):
    await asyncio.sleep(0)
    return await app.ask_later(question)


def test_an_async_function(app):
    agent = rollout(name="agent")(_agent)
    assert inspect.iscoroutinefunction(agent)
    assert asyncio.run(agent(app, "one")) == "a"
    assert questions(app.stored()["agent"]) == ["one"]


def test_an_async_function_behind_a_plain_decorator(app):
    @wraps(_agent)
    def logged(*args):
        return _agent(*args)

    assert asyncio.run(rollout(name="agent")(logged)(app, "one")) == "a"
    assert questions(app.stored()["agent"]) == ["one"]


def test_methods_class_methods_and_partials(app):
    class Agent:
        @rollout(name="method")
        def run(self, question):
            return app.ask(question)

        @classmethod
        @rollout(name="class method")
        def make(cls, question):
            return cls, app.ask(question)

        @staticmethod
        @rollout(name="static method")
        def tell(question):
            return app.ask(question)

    assert (Agent().run("one"), Agent.make("two"), Agent.tell("three")) == ("a", (Agent, "a"), "a")
    assert rollout(partial(app.ask, "four"))() == "a"
    found = app.stored()
    assert {name: questions(trajectory) for name, trajectory in found.items()} == {
        "method": ["one"],
        "class method": ["two"],
        "static method": ["three"],
        "partial": ["four"],
    }


def test_what_is_no_function_is_refused():
    with pytest.raises(UsageError, match="below @classmethod"):
        rollout(classmethod(len))


def test_blocks(app):
    with rollout(name="sync", group_id="g") as trajectory:
        app.ask("one")
        assert get_current_trajectory() is trajectory

    async def block():
        async with rollout(name="async") as inner:
            await app.ask_later("two")
            assert get_current_trajectory() is inner
        async with rollout():
            pass

    asyncio.run(block())
    found = app.stored()
    assert (questions(found["sync"]), found["sync"].group_id) == (["one"], "g")
    assert questions(found["async"]) == ["two"]
    assert found["rollout"].calls == ()


def test_one_block_entered_by_many_tasks(app):
    shared = rollout(name="shared")

    async def task(number):
        async with shared as trajectory:
            await asyncio.sleep(0.001 * (number % 3))
            await app.ask_later(f"{number}")
            return trajectory.rollout_id

    async def run():
        return await asyncio.gather(*(task(number) for number in range(20)))

    ids = asyncio.run(run())
    with shared, shared:
        app.ask("nested")
    found, _ = app.convert()
    by_id = {trajectory.rollout_id: trajectory for trajectory in found}
    assert [questions(by_id[rollout_id]) for rollout_id in ids] == [[f"{number}"] for number in range(20)]
    assert all(trajectory.complete for trajectory in found)
    assert len(found) == 22


def test_a_rollout_in_a_rollout(app):
    @rollout(name="inner")
    def inner():
        app.ask("inner")

    with rollout(name="outer"):
        app.ask("before")
        with app.app.start_as_current_span("delegate"):
            inner()
        app.ask("after")
    found = app.stored()
    assert questions(found["outer"]) == ["before", "after"]
    assert questions(found["inner"]) == ["inner"]
    assert found["inner"].parent_rollout_id == found["outer"].rollout_id
    assert found["outer"].parent_rollout_id is None
    assert found["outer"].complete
    assert found["inner"].complete


@pytest.mark.usefixtures("app")
def test_other_services_are_told():
    with rollout(name="agent") as trajectory:
        assert baggage.get_baggage("art.rollout.id") == trajectory.rollout_id == current_rollout_id()
    assert baggage.get_baggage("art.rollout.id") is None


@pytest.mark.usefixtures("nothing_set_up")
def test_without_set_up_nothing_changes():
    before = otel_context.get_current()

    @rollout(name="agent", metadata={"a": 1})
    def agent(number):
        trajectory = get_current_trajectory()
        trajectory.log("x")
        trajectory.metrics["m"] = number
        trajectory.reward = 1.0
        assert baggage.get_all() == {}
        assert trace.get_current_span() is trace.INVALID_SPAN
        return trajectory

    trajectory = agent(3)
    assert (trajectory.metrics, trajectory.metadata, trajectory.reward) == ({"m": 3}, {"a": 1}, 1.0)
    assert (trajectory.calls, trajectory.turns, trajectory.get_history("x")) == ((), (), None)
    assert otel_context.get_current() == before
    with pytest.raises(ZeroDivisionError), rollout():
        _ = 1 / 0


def test_outside_of_every_rollout():
    with pytest.raises(UsageError, match=r"@art_otel.rollout"):
        get_current_trajectory()
