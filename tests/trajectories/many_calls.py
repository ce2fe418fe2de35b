# ruff: noqa: ARG005 # what a shape varies, another ignores
"""Rollouts of n calls in the shapes in which a comparison of all with all would hide. Each has its number of calls."""

import json
from collections.abc import Callable, Sequence

import msgspec

from art_otel.attributes import HISTORY_EVENT
from art_otel.conventions import history_attributes
from art_otel.spans import Event, Scope, Span

OPENAI = "opentelemetry.instrumentation.openai.v1"
Make = Callable[[int], list[Span]]


def made(number: int, name: str, start: int, end: int, parent: int | None = 1, scope: str = "", **fields) -> Span:
    above = None if parent is None else f"{parent:016x}"
    place = {"trace_id": "1" * 32, "span_id": f"{number:016x}", "parent_span_id": above}
    return Span(**place, name=name, start_ns=10**9 + start, end_ns=10**9 + end, scope=Scope(name=scope), **fields)


def text(role: str, content: str) -> dict:
    return {"role": role, "parts": [{"type": "text", "content": content}]}


def calls_tool(call_id: str | None, argument: int, content: str | None = None) -> dict:
    part = {"type": "tool_call", "id": call_id, "name": "bash", "arguments": {"c": argument}}
    return {"role": "assistant", "parts": [*(text("", content)["parts"] if content else []), part]}


def chat(number: int, start: int, end: int, prompt: Sequence[dict], answer: dict | None, parent: int = 1, **fields):
    """A chat call; `response` is the id of its response."""
    attributes = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m", **fields.pop("known", {})}
    attributes["gen_ai.input.messages"] = json.dumps(prompt)
    if answer is not None:
        attributes["gen_ai.output.messages"] = json.dumps([{**answer, "finish_reason": "stop"}])
    if (response := fields.pop("response", None)) is not None:
        attributes["gen_ai.response.id"] = response
    return made(number, "chat m", start, end, parent, fields.pop("scope", OPENAI), attributes=attributes, **fields)


def rollout(n: int, *spans: Span) -> list[Span]:
    return [made(1, "rollout x", 0, 10_000 * n, None, attributes={"art.rollout.id": "r"}), *spans]


def asked(word: str) -> list[dict]:
    return [text("user", word)]


def answered(word: str) -> dict:
    return text("assistant", word)


def two_recorders(response_id=lambda i, scope: None, answer=lambda i: "yes", question=lambda i: "q", apart=0) -> Make:
    """Each call by a framework and its client, side by side; all at once, or one after another."""

    def make(n: int) -> list[Span]:
        spans: list[Span] = []
        for i in range(n):
            for order, scope in enumerate(("framework", "client")):
                start = (apart or 1) * i + 10 + order
                end = start + (apart // 2 or 10 * n) - 2 * order
                known = {"scope": scope, "response": response_id(i, scope)}
                spans.append(chat(10 + 2 * i + order, start, end, asked(question(i)), answered(answer(i)), **known))
        return rollout(n, *spans)

    return make


def agents_at_once(n: int) -> list[Span]:
    """Equal calls of a framework whose spans are not current, below an agent each."""
    spans: list[Span] = []
    for i in range(n):
        at = 10 + 4 * i
        spans += [made(at, "work", 5 + i, 20 * n), made(at + 1, "chain", 6 + i, 20 * n, at, "framework")]
        spans.append(chat(at + 2, 10 + i, 10 * n + i, asked("q"), answered("yes"), at + 1, scope="framework"))
        spans.append(chat(at + 3, 11 + i, 10 * n + i - 5, asked("q"), answered("yes"), at, scope="client"))
    return rollout(n, *spans)


def tools(id_of, argument_of, name: str = "bash") -> Make:
    """Calls of a tool each, and their executions afterwards."""

    def make(n: int) -> list[Span]:
        spans: list[Span] = []
        for i in range(n):
            spans.append(chat(10 + 2 * i, 10 + i, 12 + i, asked(f"q{i}"), calls_tool(id_of(i), argument_of(i))))
            known = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": name}
            known |= {"gen_ai.tool.call.arguments": json.dumps({"c": argument_of(i)})}
            known |= {} if id_of(i) is None else {"gen_ai.tool.call.id": id_of(i)}
            spans.append(made(11 + 2 * i, "execute_tool bash", 10 * n + i, 10 * n + i + 1, attributes=known))
        return rollout(n, *spans)

    return make


def repeated(answer: Callable[[int], dict], repeat: Callable[[int], dict], **known: str) -> Make:
    """Samples of one prompt, and prompts that go on from each, perhaps in other words."""

    def make(n: int) -> list[Span]:
        spans: list[Span] = []
        for i in range(n // 2):
            spans.append(chat(10 + 2 * i, 10 + i, 12 + i, asked("p"), answer(i), known=known))
            again = [*asked("p"), repeat(i), *asked(f"go on {i}")]
            spans.append(chat(11 + 2 * i, 10 * n + i, 10 * n + i + 2, again, answered("x")))
        return rollout(n, *spans)

    return make


def nested(scopes: Sequence[str], word: Callable[[int], str], response: str | None = None) -> Make:
    def make(n: int) -> list[Span]:
        return rollout(
            n,
            *(
                chat(
                    *(10 + i, 10 + i, 10 * n - i),
                    *(asked(word(i)), answered(word(i)), 9 + i if i else 1),
                    scope=scopes[i % len(scopes)],
                    response=response,
                )
                for i in range(n)
            ),
        )

    return make


def streams_on_two_spans(n: int) -> list[Span]:
    """Requests that Logfire ends when their stream begins, and the answers afterwards."""
    requests = [chat(10 + 2 * i, 10 + i, 11 + i, asked(f"q{i}"), None, scope="logfire") for i in range(n)]
    streamed = {"scope": "logfire", "known": {"logfire.span_type": "log"}}
    answers = [
        chat(11 + 2 * i, 10 * n + i, 10 * n + i + 1, asked(f"q{i}"), answered(f"a{i}"), **streamed) for i in range(n)
    ]
    return rollout(n, *requests, *answers)


def unsurrounded(n: int) -> list[Span]:
    """Requests that art-otel recorded, beside spans of them that were made afterwards and know no answer."""
    spans: list[Span] = []
    for i in range(n):
        spans.append(chat(10 + 2 * i, 10 + i, 20 * n, asked(f"q{i}"), None))
        own = {"scope": "art_otel", "response": f"r{i}"}
        spans.append(chat(11 + 2 * i, 10 + n + i, 10 * n, asked(f"q{i}"), answered("yes"), **own))
    return rollout(n, *spans)


def late_streams(n: int) -> list[Span]:
    spans: list[Span] = []
    for i in range(n):
        late = chat(10 + 2 * i, 10 + i, 11 + i, asked("q"), answered("yes"), scope="llamaindex")
        first_token = Event(name="first token", time_ns=10**9 + 50 * n + i)
        spans.append(msgspec.structs.replace(late, events=(first_token,)))
        spans.append(chat(11 + 2 * i, 11 + i, 100 * n, asked("q"), answered("yes"), scope="client"))
    return rollout(n, *spans)


def added_messages(n: int) -> list[Span]:
    """Calls, and a message that the app put behind each completion."""
    spans = [chat(10 + i, 10 + i, 12 + i, asked("q"), answered("yes"), response=f"r{i}") for i in range(n)]
    root, *_ = rollout(n)
    message = {"role": "user", "content": "a"}
    events = [
        Event(name=HISTORY_EVENT, time_ns=10**9 + i, attributes=history_attributes(f"r{i}", 0, message))
        for i in range(n)
    ]
    return [msgspec.structs.replace(root, events=tuple(events)), *spans]


def flattened(prompt: Sequence[str]) -> dict[str, str]:
    """Messages in turns of a user and an assistant, one attribute for each of their fields."""
    fields: dict[str, str] = {}
    for at, content in enumerate(prompt):
        message = f"llm.input_messages.{at}.message"
        fields |= {f"{message}.role": ("user", "assistant")[at % 2], f"{message}.content": content}
    return fields


def flattened_call(number: int, start: int, prompt: Sequence[str], answer: str) -> Span:
    """A call as OpenInference records one without bodies."""
    known = {"openinference.span.kind": "LLM", "llm.model_name": "m", **flattened(prompt)}
    known |= {"llm.output_messages.0.message.role": "assistant", "llm.output_messages.0.message.content": answer}
    return made(number, "ChatCompletion", start, start + 1, scope="openinference.instrumentation", attributes=known)


def flattened_prompts(n: int) -> list[Span]:
    """Calls with prompts of many attributes, in four conversations at a time."""
    calls: list[Span] = []
    for i in range(n):
        earlier = i // 4 % 12
        prompt = [f"q{i % 4} of {i // 48}", *(f"{at} of {i // 48}" for at in range(2 * earlier))]
        calls.append(flattened_call(10 + i, 10 + 2 * i, prompt, f"{2 * earlier} of {i // 48}"))
    return rollout(n, *calls)


def long_flattened_prompt(n: int) -> list[Span]:
    """Two calls, of which the second goes on from n messages."""
    prompt = [f"m{at}" for at in range(2 * (n // 2) + 1)]
    return rollout(n, flattened_call(10, 10, prompt, "a"), flattened_call(11, 20, [*prompt, "a", "q"], "b"))


SHAPES: dict[str, Make] = {
    "a tool id each": tools(lambda i: f"c{i}", lambda i: i),
    "one tool id": tools(lambda i: "c", lambda i: i),
    "one tool id, of another tool": tools(lambda i: "c", lambda i: i, "other"),
    "no tool ids": tools(lambda i: None, lambda i: i),
    "no tool ids, equal arguments": tools(lambda i: None, lambda i: 0),
    "equal calls by two recorders": two_recorders(),
    "equal calls, one after another": two_recorders(apart=100),
    "one recorder knows the ids": two_recorders(lambda i, scope: f"r{i}" if scope == "client" else None),
    "two recorders, other ids": two_recorders(lambda i, scope: f"{scope}{i}"),
    "one response id": two_recorders(lambda i, scope: "r"),
    "one response id, other answers": two_recorders(lambda i, scope: "r", answer=lambda i: f"a{i}"),
    "one answer to other prompts": two_recorders(question=lambda i: f"q{i}"),
    "equal calls of agents": agents_at_once,
    "edited answers": repeated(lambda i: answered(f"a{i}"), lambda i: answered(f"edited {i}")),
    "lost tool calls": repeated(lambda i: answered("so"), lambda i: calls_tool(f"c{i}", i, "so")),
    "lost texts": repeated(lambda i: calls_tool("c", i), lambda i: calls_tool("c", -1 - i, "so")),
    "lost ids": repeated(lambda i: calls_tool(None, i), lambda i: calls_tool(f"c{i}", i)),
    "equal samples": repeated(lambda i: answered("yes"), lambda i: answered("yes")),
    "equal samples with tokens": repeated(
        lambda i: answered("yes"), lambda i: answered("yes"), **{"art.tokens.prompt": "i4:1:AQAAAA=="}
    ),
    "nested": nested([OPENAI], lambda i: f"q{i}"),
    "nested, two recorders": nested(["framework", "client"], lambda i: "q"),
    "nested, one response": nested(["framework", "client"], lambda i: "q", "r"),
    "written again and again": lambda n: rollout(
        n, *(chat(10 + i, 10, 20, asked("q"), answered("yes"), response="r") for i in range(n))
    ),
    "streams on two spans": streams_on_two_spans,
    "unsurrounded": unsurrounded,
    "late streams": late_streams,
    "added messages": added_messages,
    "flattened prompts": flattened_prompts,
    "one long flattened prompt": long_flattened_prompt,
}
