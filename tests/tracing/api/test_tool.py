"""tool(): what a rollout's tools did."""

import asyncio
import inspect
import json

import pytest

from art_otel import gather_trajectory, rollout, tool
from art_otel.errors import UsageError


def asks_for(app, name, arguments):
    """A call whose answer calls a tool."""
    call = {"type": "tool_call", "id": "c", "name": name, "arguments": arguments}
    with app.recorded("ask", "", "r") as span:
        pass
    with app.instrumentor.start_as_current_span("openai.chat") as span:
        span.set_attribute("gen_ai.operation.name", "chat")
        text = {"type": "text", "content": "q"}
        span.set_attribute("gen_ai.input.messages", json.dumps([{"role": "user", "parts": [text]}]))
        span.set_attribute("gen_ai.output.messages", json.dumps([{"role": "assistant", "parts": [call]}]))


def test_executions_are_in_the_trajectory(app):
    @tool
    def add(first: int, second: int = 0) -> int:
        """Add."""
        return first + second

    class Place:
        @tool(name="lookup")
        async def look(self, name: str, **options: object) -> dict:  # noqa: ARG002 # recorded
            await app.ask_later("inside")
            return {"name": name, "at": {1, 2}}

    @tool
    def broken():
        raise KeyError("gone")

    @rollout(name="agent")
    async def agent():
        asks_for(app, "add", {"first": 1})
        assert add(1) == 1
        assert await Place().look("x", deep=[None]) == {"name": "x", "at": {1, 2}}
        with pytest.raises(KeyError):
            broken()

    found = asyncio.run(gather_trajectory(agent()))
    assert [(run.name, run.arguments, run.result, run.error, run.turn) for run in found.tool_calls] == [
        ("add", {"first": 1}, 1, None, 1),
        ("lookup", {"name": "x", "deep": [None]}, {"name": "x", "at": "{1, 2}"}, None, None),
        ("broken", {}, None, "KeyError: 'gone'", None),
    ]
    assert all(run.end_ns >= run.start_ns for run in found.tool_calls)
    assert (len(found.calls), found.complete) == (3, True)
    assert app.stored()["agent"] == found
    assert (add.__doc__, list(inspect.signature(add).parameters)) == ("Add.", ["first", "second"])
    assert inspect.iscoroutinefunction(Place.look)


@pytest.mark.usefixtures("nothing_set_up")
def test_without_set_up_a_tool_is_the_function():
    @tool
    def add(first, second):
        return first + second

    assert add(1, second=2) == 3
    with pytest.raises(TypeError, match="second"):
        add(1)


def test_what_is_no_tool_is_refused():
    for wrong in (type("Agent", (), {}), (lambda: (yield)), 3):
        with pytest.raises(UsageError, match="returns its result"):
            tool(wrong)
