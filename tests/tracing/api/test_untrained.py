"""untrained(): calls that the policy does not learn from say what they are for, in every way that they are recorded."""

import asyncio
import inspect

import pytest
from opentelemetry import baggage, context, trace
from opentelemetry.propagate import extract, inject

from art_otel import (
    gather_trajectory,
    get_current_trajectory,
    read_trajectories,
    rollout,
    step,
    untrained,
    write_trajectories,
)
from art_otel.errors import UsageError
from tests.tracing.api.app import App, questions


def marks(trajectory) -> dict[str, str | None]:
    """What each call is for, by what was asked."""
    return dict(zip(questions(trajectory), [call.marked_untrained for call in trajectory.calls], strict=True))


def stored_marks(app: App) -> dict[str, str | None]:
    return {question: mark for one in app.stored().values() for question, mark in marks(one).items()}


def test_the_calls_of_a_block_say_what_they_are_for(app, tmp_path):
    @untrained("judge")
    def judge(question: str) -> str:
        """Judge."""
        return app.ask(question)

    @untrained("user simulator")
    async def simulate(question: str) -> str:
        return await app.ask_later(question)

    @rollout(name="agent")
    async def agent():
        app.ask("first")
        with untrained("title"):
            app.ask("a title")
        async with untrained("summary"), step():
            app.ask("a summary")
        assert judge("a judgment") == await simulate("a user") == "a"
        assert await untrained("outer")(lambda: simulate("nearest"))() == "a"
        assert await untrained("plain")(lambda: app.ask_later("awaited"))() == "a"
        app.ask("last")

    gathered = asyncio.run(gather_trajectory(agent()))
    expected = {
        "first": None,
        "a title": "title",
        "a summary": "summary",
        "a judgment": "judge",
        "a user": "user simulator",
        "nearest": "user simulator",
        "awaited": "plain",
        "last": None,
    }
    assert marks(gathered) == expected
    assert gathered.complete
    assert app.stored()["agent"] == gathered
    write_trajectories([gathered], tmp_path / "one.parquet")
    assert list(read_trajectories(tmp_path / "one.parquet")) == [gathered]
    assert (judge.__doc__, list(inspect.signature(judge).parameters)) == ("Judge.", ["question"])
    assert inspect.iscoroutinefunction(simulate)


def test_rollouts_and_steps_are_marked_by_their_arguments(app):
    with rollout(name="outer"):
        with step(untrained="plan"):
            app.ask("in a step")
        with rollout(name="judge", untrained="judge") as judge:
            app.ask("in a rollout")
            with rollout(name="inner"):
                app.ask("in a rollout of a rollout")
        with rollout(name="late"):
            app.ask("asked before")
            get_current_trajectory().untrained = "broken environment"
        app.ask("outside")
    assert judge.untrained == "judge"
    assert stored_marks(app) == {
        "in a step": "plan",
        "in a rollout": "judge",
        "in a rollout of a rollout": "judge",
        "asked before": "broken environment",
        "outside": None,
    }
    assert all(not one.metadata for one in app.stored().values())


def test_a_rollout_in_a_block_that_is_in_none_is_marked(app):
    @rollout(name="agent")
    async def agent():
        await app.ask_later("one")
        return get_current_trajectory().calls

    async def run():
        with untrained("evaluation"):
            return await gather_trajectory(agent())

    gathered = asyncio.run(run())
    assert marks(gathered) == {"one": "evaluation"}
    assert [call.marked_untrained for call in gathered.result] == ["evaluation"]  # also while it runs
    assert app.stored()["agent"] == gathered


def test_a_block_that_never_ends_marks_its_calls(app):
    """As where the app is killed: the end of the span around the call is not recorded."""
    with rollout(name="agent"):
        block = untrained("judge")
        block.__enter__()
        app.ask("one")
        (trajectory,), _ = app.convert()
        block.__exit__(None, None, None)
    assert [call.marked_untrained for call in trajectory.calls] == ["judge"]


def test_one_object_is_entered_by_several_tasks(app):
    judging = untrained("judge")

    async def judge(number: int):
        async with judging:
            await app.ask_later(f"{number}")
        await app.ask_later(f"after {number}")

    async def run():
        with rollout(name="agent"), judging, judging:
            await asyncio.gather(*(judge(number) for number in range(3)))

        with rollout(name="plain"):
            await asyncio.gather(*(judge(number) for number in range(3, 6)))

    asyncio.run(run())
    found = app.stored()
    assert set(marks(found["agent"]).values()) == {"judge"}
    assert marks(found["plain"]) == {
        question: None if question.startswith("after") else "judge" for question in questions(found["plain"])
    }


def test_outside_of_every_rollout_it_does_no_harm(app):
    with untrained("judge"):
        app.ask("one")
    with untrained("judge"):
        pass
    assert stored_marks(app) == {"one": "judge"}
    assert baggage.get_all() == {}
    assert trace.get_current_span() is trace.INVALID_SPAN


@pytest.mark.usefixtures("nothing_set_up")
def test_without_set_up():
    @untrained("judge")
    def judge() -> dict:
        return dict(baggage.get_all())

    for block in (rollout(untrained="judge"), step(untrained="judge"), untrained("judge")):
        with block:
            assert judge() == {"art.untrained": "judge"}
    assert baggage.get_all() == {}


def test_an_error_passes_and_is_on_the_span(app):
    with rollout(name="agent"), pytest.raises(ValueError, match="bad"), untrained("judge"):
        raise ValueError("bad")
    assert app.stored()["agent"].status == "ok"


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: untrained(len),
        lambda: untrained(""),
        lambda: untrained("judge")(int),
        lambda: untrained("judge")(lambda: (yield)),
        lambda: rollout(untrained=True),
        lambda: step(untrained=""),
    ],
)
def test_what_cannot_be_marked_is_said(wrong):
    with pytest.raises(UsageError, match=r"untrained"):
        wrong()


def test_other_services_are_told_by_the_baggage(app):
    """An own rollout of a service knows nothing of spans of others."""
    sent = {}
    with untrained("user simulator"):
        inject(sent)
    token = context.attach(extract(sent))
    with rollout(name="service"):
        app.ask("one")
    context.detach(token)
    assert marks(app.stored()["service"]) == {"one": "user simulator"}
