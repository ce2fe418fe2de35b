"""rollout() of generators, plain and async: the rollout lasts while somebody reads."""

import asyncio
import inspect

import pytest
from opentelemetry import trace

from art_otel import get_current_trajectory, rollout
from art_otel.tracing.api.context import running_trajectory
from tests.tracing.api.app import questions


def test_a_generator_that_a_plain_function_gives_is_the_app_s(app, caplog):
    shared = (number for number in range(3))

    @rollout(name="agent")
    def agent():
        app.ask("one")
        return shared

    assert agent() is shared
    assert next(shared) == 0
    assert questions(app.stored()["agent"]) == ["one"]
    assert "rollout agent gives a generator" in caplog.text


def test_a_generator(app):
    @rollout(name="agent")
    def agent(count):
        for number in range(count):
            answer = yield number
            app.ask(f"{answer}")
        return "done"

    def reader():
        return (yield from agent(2))

    reading = reader()
    assert next(reading) == 0
    assert running_trajectory() is None
    assert not trace.get_current_span().get_span_context().is_valid
    assert reading.send("x") == 1
    with pytest.raises(StopIteration) as stop:
        reading.send("y")
    assert stop.value.value == "done"
    found = app.stored()["agent"]
    assert (questions(found), found.status, found.complete) == (["x", "y"], "ok", True)
    assert inspect.isgeneratorfunction(agent)


def test_a_generator_that_nobody_reads_on(app):
    closed = []

    @rollout(name="agent")
    def agent():
        try:
            app.ask("one")
            yield 1
        finally:
            closed.append(get_current_trajectory().name)

    for _ in agent():
        break
    agent()  # never begun: no rollout
    found = app.stored()
    assert closed == ["agent"]
    assert (found["agent"].status, list(found)) == ("ok", ["agent"])


def test_what_is_thrown_into_a_generator_is_its_own(app):
    @rollout(name="agent")
    def agent():
        try:
            yield 1
        except KeyError:
            app.ask("after")
            yield 2
        raise ValueError("at the end")

    reading = agent()
    assert next(reading) == 1
    assert reading.throw(KeyError("k")) == 2
    with pytest.raises(ValueError, match="at the end"):
        next(reading)
    found = app.stored()["agent"]
    assert (questions(found), found.status, found.error) == (["after"], "error", "ValueError: at the end")


def test_spans_around_a_yield_stay_the_bodys(app):
    @rollout(name="agent")
    def agent(prefix):
        with app.app.start_as_current_span(f"turn of {prefix}") as span:
            yield prefix
            assert trace.get_current_span() is span
            app.ask(f"{prefix} inside")
            yield prefix
        app.ask(f"{prefix} outside")

    pairs = list(zip(agent("a"), agent("b"), strict=True))
    assert pairs == [("a", "b"), ("a", "b")]
    assert not trace.get_current_span().get_span_context().is_valid
    found, _ = app.convert()
    asked = sorted(questions(trajectory) for trajectory in found)
    assert asked == [["a inside", "a outside"], ["b inside", "b outside"]]


def test_an_async_generator(app):
    @rollout(name="agent")
    async def agent():
        while True:
            got = yield "go"
            if got is None:
                return
            await app.ask_later(got)

    async def read():
        reading = agent()
        assert await reading.__anext__() == "go"
        assert running_trajectory() is None
        assert await reading.asend("one") == "go"
        with pytest.raises(StopAsyncIteration):
            await reading.asend(None)

    asyncio.run(read())
    found = app.stored()["agent"]
    assert (questions(found), found.status) == (["one"], "ok")
    assert inspect.isasyncgenfunction(agent)


def test_an_async_generator_closed_and_thrown_into(app):
    inside = []

    @rollout(name="closed")
    async def closed():
        try:
            yield await app.ask_later("one")
        finally:
            inside.append(get_current_trajectory().name)

    @rollout(name="thrown")
    async def thrown():
        try:
            yield 1
        except KeyError:
            yield 2

    async def read():
        reading = closed()
        assert await reading.__anext__() == "a"
        await reading.aclose()
        reading = thrown()
        await reading.__anext__()
        assert await reading.athrow(KeyError("k")) == 2
        with pytest.raises(ValueError, match="v"):
            await reading.athrow(ValueError("v"))

    asyncio.run(read())
    found = app.stored()
    assert inside == ["closed"]
    assert (found["closed"].status, found["thrown"].status, found["thrown"].error) == ("ok", "error", "ValueError: v")
