"""What every program asks of its agent: the weather of two cities or, with `TASK=harder`, what recorders get wrong.

The harder conversation has three turns: a text with two calls, one without arguments; a call without a text; an empty
and a failing result; answers that begin with spaces, are JSON, and are `null`.
"""

import json
import os


def get_weather(city: str) -> str:
    """The weather of a city."""
    return {"Paris": "sunny", "Tokyo": "rainy"}[city]


def lookup(query: str, limit: int = 5, ratio: float = 0.5, nested: dict | None = None) -> str:  # noqa: ARG001 # the model gives them
    """Looks something up."""
    if query == "second":
        return "Error: nothing found"
    return json.dumps({"rows": [{"id": 1, "name": "Zoë", "score": 2.0}], "ok": True}, ensure_ascii=False)


def now() -> str:
    """The time."""
    return ""


def _parameters(required: tuple[str, ...], **types: str) -> dict:
    return {
        "type": "object",
        "properties": {name: {"type": kind} for name, kind in types.items()},
        "required": list(required),
    }


if os.environ.get("TASK") == "harder":
    SYSTEM = "You are a tester.\n\nBe short; say «yes»."
    QUESTIONS = ["Find the thing ☃ 😀 please.", "As JSON?", "And what is null?"]
    FUNCTIONS = {
        lookup: _parameters(("query",), query="string", limit="integer", ratio="number", nested="object"),
        now: _parameters(()),
    }
else:
    SYSTEM = "You are a weather agent."
    QUESTIONS = ["Weather in Paris and Tokyo?"]
    FUNCTIONS = {get_weather: _parameters(("city",), city="string")}

TOOLS = [
    {"name": function.__name__, "description": function.__doc__, "parameters": parameters}
    for function, parameters in FUNCTIONS.items()
]


def result_of(name: str, arguments: dict) -> str:
    """What a tool says, if its model calls it."""
    return next(function for function in FUNCTIONS if function.__name__ == name)(**arguments)
