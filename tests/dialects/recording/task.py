"""Task: what every recording is about, and what the model says to it.

Invariant: the answer follows from the request alone. Thoughts go out only where the API shows them.
"""

import json
from dataclasses import dataclass
from typing import Final

THOUGHTS: Final = ("Two cities, so two calls.", "Both results are there.")
PREAMBLE: Final = "Let me look."
ANSWER: Final = "Paris is sunny, Tokyo is rainy."

LOOK: Final = "Let me look \u2603:\n"
QUERY: Final = 'na\u00efve "quote" \\\\ / \n\ttab \u2603 \U0001d11e'
SEARCH: Final = {"query": QUERY, "limit": 3, "ratio": 1.0, "nested": {"a": [1, 2.5, True, None], "b": ""}}
FINALS: Final = ("  The answer is 42.\n\n", '{"answer": [1, 2.0, "x"]}', "null")
"""What the harder conversation is answered with, a text a turn."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """A request in no API's words, as truth files have it."""

    messages: list[dict]
    tools: list[dict]


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """What the model says. `thought` is None where the API does not show it."""

    number: int
    text: str | None
    thought: str | None
    calls: tuple[tuple[str, str, dict], ...]
    input_tokens: int

    @property
    def output_tokens(self) -> int:
        """Words stand for tokens."""
        return len(f"{self.thought} {self.text or ''}".split()) + 7 * len(self.calls)

    def as_truth(self) -> dict:
        """The answer as truth files have it."""
        calls = [[call_id, name, json.dumps(arguments)] for call_id, name, arguments in self.calls]
        finish = "tool_calls" if self.calls else "stop"
        return {"content": self.text, "reasoning": self.thought, "tool_calls": calls, "finish": finish}


def answer(asked: Asked, number: int, *, thinks: bool) -> Answer:
    """Answer the harder conversation where there is a tool to look up, else the one of the weather."""
    if any("lookup" in tool["name"].lower() for tool in asked.tools):
        return _harder_answer(asked, number, thinks=thinks)
    return _weather_answer(asked, number, thinks=thinks)


def _harder_answer(asked: Asked, number: int, *, thinks: bool) -> Answer:
    """Say a text with two calls, then call without a text, then answer each turn of the user."""
    words = len(json.dumps([asked.messages, asked.tools]).split())
    names = [tool["name"] for tool in asked.tools]
    turns = sum(message["role"] == "user" for message in asked.messages)
    steps = sum(message["role"] == "assistant" for message in asked.messages)
    lookup = next(name for name in names if "lookup" in name.lower())
    text: str | None = FINALS[(turns - 1) % len(FINALS)]
    calls: list[tuple[str, str, dict]] = []
    if turns <= 1 and steps == 0:
        text = LOOK
        others = [name for name in names if "now" in name.lower()]
        calls = [(f"call_a{number}", lookup, SEARCH), *((f"call_b{number}", name, {}) for name in others)]
    elif turns <= 1 and steps == 1:
        text, calls = None, [(f"call_c{number}", lookup, {"query": "second"})]
    elif final := [name for name in names if name == "final_answer"]:
        text, calls = None, [(f"call_f{number}", final[0], {"answer": text})]
    thought = ("First look.\nThen say." if calls else "Done.") if thinks else None
    return Answer(number=number, text=text, thought=thought, calls=tuple(calls), input_tokens=words)


def _weather_answer(asked: Asked, number: int, *, thinks: bool) -> Answer:
    """Call the first tool that knows of weather for two cities, then answer."""
    last_user = max((at for at, message in enumerate(asked.messages) if message["role"] == "user"), default=0)
    has_results = any(message["role"] == "tool" for message in asked.messages[last_user:])
    tool = next((tool for tool in asked.tools if "weather" in tool["name"].lower()), None)
    words = len(json.dumps([asked.messages, asked.tools]).split())
    if tool is None or has_results:
        thought = THOUGHTS[1] if thinks else None
        return Answer(number=number, text=ANSWER, thought=thought, calls=(), input_tokens=words)
    parameter = next(iter((tool["parameters"] or {}).get("properties") or {}), "city")
    calls = tuple((f"call_{city.lower()}_{number}", tool["name"], {parameter: city}) for city in ("Paris", "Tokyo"))
    thought = THOUGHTS[0] if thinks else None
    return Answer(number=number, text=PREAMBLE, thought=thought, calls=calls, input_tokens=words)


def text_of(content: str | list[dict] | None) -> str | None:
    """The text of a message, whether one string or parts."""
    if content is None or isinstance(content, str):
        return content
    return "".join(part["text"] if "text" in part else json.dumps(part.get("json")) for part in content)


def message(role: str, content: str | None, calls: list[list], thought: str | None = None) -> dict:
    """A message as truth files have it; what it does not have is not named."""
    given = {"role": role, "content": content, "reasoning": thought, "tool_calls": calls}
    return {name: value for name, value in given.items() if value or name in ("role", "content")}


def pieces(text: str) -> list[str]:
    """Cut a text as a stream does: before each space."""
    first, *others = text.split(" ")
    return [first, *(f" {word}" for word in others)]
