"""Asks: the ways in which agents ask a model server. Each function is an agent with a conversation of its own.

    python asks.py http://server/rollout/{}        runs them all; {} becomes the name of each

It knows nothing of art-otel, and needs the clients `openai` and `anthropic` alone.
"""

import sys
import time
from collections.abc import Callable
from typing import Any

Client = Any
Messages = list[dict[str, Any]]
MODEL = "tiny"
LOOK = {
    "name": "weather",
    "description": "Weather of a city",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
TOOLS = [{"type": "function", "function": LOOK}]
NAMED = {"type": "function", "function": {"name": LOOK["name"]}}
CALL = r'<tool_call>\n\{"name": "weather", "arguments": \{"city": "[A-Z][a-z]{2,8}"\}\}\n</tool_call>'
PLAIN = {"chat_template_kwargs": {"enable_thinking": False}}
"""A server with a parser of reasoning holds a grammar against what comes behind reasoning alone."""

BRIEF = {"model": MODEL, "max_tokens": 12}
END = {"logit_bias": {"2": 8.0}}
ONLY_END = {"logit_bias": {"2": 100.0}}
SCHEMA = {"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"], "additionalProperties": False}

CHAT: dict[str, dict[str, Any]] = {
    "plain": {},
    "two": {"n": 2},
    "three": {"n": 3},
    "warm": {"temperature": 0.5, "top_p": 0.9},
    "greedy": {"temperature": 0},
    "own_logprobs": {"logprobs": True, "top_logprobs": 3},
    "no_logprobs": {"logprobs": False},
    "cut": {"max_tokens": 1},
    "ended": {"max_tokens": 40, **END},
    "empty": {"max_tokens": 40, **ONLY_END},
    "stopped": {"max_tokens": 60, "stop": ["e", "a", "on"]},
    "reasons": {"max_tokens": 40, "logit_bias": {"1505": 5.0}},  # </think>
    "forced": {"tools": TOOLS, "tool_choice": NAMED, "max_tokens": 60, "extra_body": PLAIN},
    "required": {"tools": TOOLS, "tool_choice": "required", "max_tokens": 120, "temperature": 0.3, "extra_body": PLAIN},
    "schema": {
        "response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA}},
        "max_tokens": 60,
        "extra_body": PLAIN,
    },
}  # fmt: skip
COMPLETIONS: dict[str, dict[str, Any]] = {
    "plain": {"prompt": "Hello world"},
    "two": {"prompt": "Hello world", "n": 2},
    "ids": {"prompt": [42, 71, 280, 81]},
    "stopped": {"prompt": "Hello", "max_tokens": 60, "stop": ["e", "a"]},
    "prompts": {"prompt": ["Hello world", "Another prompt"]},
    "echo": {"prompt": "Hello world", "echo": True},
}
RESPONSES: dict[str, dict[str, Any]] = {
    "plain": {},
    "instructed": {"instructions": "Be brief."},
    "forced": {"tools": [{"type": "function", **LOOK}], "tool_choice": "required", "max_output_tokens": 120},
    "cut": {"max_output_tokens": 1},
}
ANTHROPIC: dict[str, dict[str, Any]] = {
    "plain": {},
    "cut": {"max_tokens": 1},
    "stopped": {"max_tokens": 60, "stop_sequences": ["e", "a", "on"]},
    "system": {"system": "Be brief."},
}


def user(text: str) -> Messages:
    """A message of the user."""
    return [{"role": "user", "content": text}]


def chat(client: Client, stream: bool, **ask: Any) -> dict[str, Any]:
    """One chat completion: the first message that was answered, as the next request has it."""
    ask = {**BRIEF, **ask}
    texts: list[str] = []
    calls: dict[int, dict[str, Any]] = {}
    if stream:
        deltas = [
            choice.delta
            for chunk in client.chat.completions.create(**ask, stream=True)
            for choice in chunk.choices
            if choice.index == 0
        ]
    else:
        deltas = [client.chat.completions.create(**ask).choices[0].message]
    for delta in deltas:
        texts.append(delta.content or "")
        for number, piece in enumerate(delta.tool_calls or []):
            call = calls.setdefault(getattr(piece, "index", number), {"name": "", "arguments": ""})
            call["id"] = piece.id or call["id"]
            call["name"] += piece.function.name or ""
            call["arguments"] += piece.function.arguments or ""
    message: dict[str, Any] = {"role": "assistant", "content": "".join(texts)}
    if calls:
        message["tool_calls"] = [
            {"id": call.pop("id"), "type": "function", "function": call} for call in calls.values()
        ]
    return message


def talk(client: Client, stream: bool, *, tools: bool = False, rounds: int = 4, branch: bool = False) -> None:
    """Several turns, each of which continues the last; with `branch` two go on from the second."""
    messages = [{"role": "system", "content": "Use tools."}, *user("How is the weather?")] if tools else user("Tell me")
    at_branch: Messages = []
    for number in range(rounds):
        if number == 1:
            at_branch = messages
        ask: dict[str, Any] = {"tools": TOOLS} if tools else {}
        if tools and number < rounds - 1:  # a text of a call, parsed by the server as any other
            ask |= {"extra_body": {**PLAIN, "structured_outputs": {"regex": CALL}}, "max_tokens": 80}
        spoken = chat(client, stream, messages=messages, **ask)
        results = [
            {"role": "tool", "tool_call_id": call["id"], "content": '{"sky": "clear"}'}
            for call in spoken.get("tool_calls", ())
        ]
        messages = [*messages, spoken, *(results or user("more"))]
    if branch:
        chat(client, stream, messages=[*at_branch[:-1], *user("something else")])


def respond(client: Client, stream: bool, **ask: Any) -> Any:
    """One response."""
    ask = {"model": MODEL, "max_output_tokens": 12, "input": "Tell me", **ask}
    if not stream:
        return client.responses.create(**ask)
    (last,) = [event.response for event in client.responses.create(**ask, stream=True) if event.type in _LAST]
    return last


_LAST = ("response.completed", "response.incomplete")


def respond_on(client: Client, stream: bool) -> None:
    """Several turns, whose history the agent keeps."""
    items = user("Tell me")
    for _ in range(3):
        items = [*items, *user(respond(client, stream, input=items).output_text or "-"), *user("more")]
        items[-2]["role"] = "assistant"


def message(client: Client, stream: bool, **ask: Any) -> Any:
    """One Anthropic message."""
    ask = {**BRIEF, "messages": user("Tell me"), **ask}
    if not stream:
        return client.messages.create(**ask)
    with client.messages.stream(**ask) as events:
        return events.get_final_message()


def message_on(client: Client, stream: bool) -> None:
    """Several turns of messages, with a tool on offer."""
    messages = user("Tell me")
    tool = {"name": LOOK["name"], "description": LOOK["description"], "input_schema": LOOK["parameters"]}
    for _ in range(3):
        blocks = message(client, stream, messages=messages, tools=[tool]).content
        said = [block.model_dump(include={"type", "text", "id", "name", "input"}) for block in blocks]
        messages = [*messages, {"role": "assistant", "content": said or "-"}, *user("more")]


def openai_asks() -> dict[str, Callable[[Client], object]]:
    """The asks of a client of OpenAI's, by name."""
    asks: dict[str, Callable[[Client], object]] = {}
    for stream in (False, True):
        end = "-stream" if stream else ""
        for name, ask in CHAT.items():
            asks[f"chat-{name}{end}"] = lambda client, s=stream, a=ask, n=name: chat(client, s, messages=user(n), **a)
        asks[f"chat-turns{end}"] = lambda client, s=stream: talk(client, s)
        asks[f"chat-branches{end}"] = lambda client, s=stream: talk(client, s, branch=True)
        asks[f"chat-tools{end}"] = lambda client, s=stream: talk(client, s, tools=True)
        for name, ask in COMPLETIONS.items():
            asks[f"completions-{name}{end}"] = lambda client, s=stream, a=ask: list(
                client.completions.create(**{**BRIEF, **a}, stream=s)
            )
        for name, ask in RESPONSES.items():
            asks[f"responses-{name}{end}"] = lambda client, s=stream, a=ask: respond(client, s, **a)
        asks[f"responses-turns{end}"] = lambda client, s=stream: respond_on(client, s)
    return asks


def anthropic_asks() -> dict[str, Callable[[Client], object]]:
    """The asks of a client of Anthropic's, by name."""
    asks: dict[str, Callable[[Client], object]] = {}
    for stream in (False, True):
        end = "-stream" if stream else ""
        for name, ask in ANTHROPIC.items():
            asks[f"messages-{name}{end}"] = lambda client, s=stream, a=ask: message(client, s, **a)
        asks[f"messages-turns{end}"] = lambda client, s=stream: message_on(client, s)
    return asks


def long_talk(address: str, rounds: int) -> None:
    """One long conversation, and what a call took, in milliseconds, at the median."""
    import openai  # noqa: PLC0415 # as below

    client = openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0, timeout=300)
    messages, took = user("Tell me"), []
    for _ in range(rounds):
        began = time.perf_counter()
        answer = chat(client, False, messages=messages, max_tokens=6, extra_body=PLAIN)
        took.append((time.perf_counter() - began) * 1000)
        messages = [*messages, answer, *user("go")]
    print(sorted(took)[len(took) // 2])


def main(address: str, *chosen: str) -> None:
    """Run the asks of these names, or all; `long ROUNDS` is one long conversation."""
    if chosen[:1] == ("long",):
        long_talk(address.format("long"), int(chosen[1]))
        return
    import anthropic  # noqa: PLC0415 # only the server's environment has both
    import openai  # noqa: PLC0415

    failed: list[str] = []
    for asks, connect in (
        (openai_asks(), lambda url: openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=300)),
        (anthropic_asks(), lambda url: anthropic.Anthropic(base_url=url, api_key="none", max_retries=0, timeout=300)),
    ):
        for name, ask in asks.items():
            if not chosen or name in chosen:
                try:
                    ask(connect(address.format(name)))
                except (openai.OpenAIError, anthropic.AnthropicError) as error:
                    failed.append(f"{name}: {type(error).__name__}: {error}")
    if failed:
        sys.exit("\n".join(failed))


if __name__ == "__main__":
    main(*sys.argv[1:])
