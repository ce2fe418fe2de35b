"""What an agent did, as each recorder that may know token ids writes it: a dump, or the agent's own log."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from art_otel.calls import Logprobs, Message, TokenIds
from art_otel.conventions import genai_message
from art_otel.conventions.bodies.tokens import encode_ids, encode_logprobs
from art_otel.trajectories import chat_message
from tests.dumps import make_span, request_of, write_lines


class Exchange(NamedTuple):
    """A prompt and its answer; `prompt_ids` and `ids` are what the server said that they were.

    `finish` is None where the server gave no reason. `counted` are the tokens that it counted, None for those of `ids`.
    """

    prompt: Sequence[Message]
    answer: Message
    prompt_ids: list[int]
    ids: list[int]
    finish: str | None = "stop"
    error: bool = False
    stream: bool = False
    scrubbed: bool = False
    counted: int | None = None

    @property
    def logprobs(self) -> list[float]:
        return [-0.5] * len(self.ids)

    @property
    def usage(self) -> dict:
        counted = len(self.ids) if self.counted is None else self.counted
        return {"prompt_tokens": len(self.prompt_ids), "completion_tokens": counted}


Rollouts = Mapping[str, Sequence[Exchange]]
"""Exchanges by the id of their rollout."""

Write = Callable[[Path, Rollouts, bool], list[Path]]
"""Writes rollouts into a folder, with ids or without; returns the files."""


def _packed(one: Exchange) -> dict[str, object]:
    """The ids as the live half and the gateway write them."""
    return {
        "art.tokens.prompt": encode_ids(TokenIds.of(one.prompt_ids)),
        "art.tokens.completion.0": encode_ids(TokenIds.of(one.ids)),
        "art.logprobs.completion.0": encode_logprobs(Logprobs.of(one.logprobs)),
        "art.response.end": json.dumps({"usage": one.usage}),
    }


def _messages(one: Exchange) -> list[dict]:
    return [chat_message(message) for message in one.prompt]


def _request(one: Exchange) -> dict:
    return {"model": "policy", "messages": _messages(one), **({"stream": True} if one.stream else {})}


def _response(one: Exchange, at: int, *, with_ids: bool) -> dict:
    """A body of Chat Completions as vLLM gives it."""
    choice = {"index": 0, "message": chat_message(one.answer), "finish_reason": one.finish}
    body = {"id": f"r{at}", "object": "chat.completion", "model": "policy"}
    if with_ids:
        scored = [{"token": "x", "logprob": logprob, "top_logprobs": []} for logprob in one.logprobs]
        choice |= {"token_ids": one.ids, "logprobs": {"content": scored}}
        body["prompt_token_ids"] = one.prompt_ids
    return {**body, "choices": [choice], "usage": one.usage}


def _events(one: Exchange) -> list[dict]:
    """GenAI's former events, one a message, with our ids beside them."""
    fields = [(f"gen_ai.{message.role}.message", chat_message(message)) for message in one.prompt]
    choice = {"index": 0, "message": chat_message(one.answer), **({"finish_reason": one.finish} if one.finish else {})}
    fields.append(("gen_ai.choice", choice))
    return [
        {
            "name": name,
            "timeUnixNano": str(2_000_000 + at),
            "attributes": [{"key": "gen_ai.event.content", "value": {"stringValue": json.dumps(body)}}],
        }
        for at, (name, body) in enumerate(fields)
    ]


def _common(one: Exchange, at: int) -> dict[str, object]:
    return {
        "gen_ai.operation.name": "chat",
        "gen_ai.system": "openai",
        "gen_ai.request.model": "policy",
        "gen_ai.response.id": f"r{at}",
        **({"gen_ai.response.finish_reasons": [one.finish]} if one.finish else {}),
        **({"gen_ai.is_streaming": True} if one.stream else {}),
    }


def _genai(one: Exchange, at: int) -> dict[str, object]:
    answer = {**genai_message(one.answer), **({"finish_reason": one.finish} if one.finish else {})}
    return {
        **_common(one, at),
        "gen_ai.input.messages": json.dumps([genai_message(message) for message in one.prompt]),
        "gen_ai.output.messages": json.dumps([answer]),
    }


def _verbatim(one: Exchange, at: int) -> dict[str, object]:
    (choice,) = _response(one, at, with_ids=False)["choices"]
    return {
        **_common(one, at),
        "art.request.parameters": json.dumps({"model": "policy", **({"stream": True} if one.stream else {})}),
        "art.request.messages": json.dumps(_messages(one)),
        "art.response.choices": json.dumps([choice]),
    }


def _openinference(one: Exchange, at: int) -> dict[str, object]:
    """OpenInference's flattened attributes, as its instrumentors of frameworks write them alone."""
    attributes: dict[str, object] = {"openinference.span.kind": "LLM", "llm.model_name": "policy"}
    if one.stream:
        attributes["llm.invocation_parameters"] = json.dumps({"model": "policy", "stream": True})
    attributes |= _flattened(one.prompt, "llm.input_messages.{}.message", "{}.tool_call", "function.")
    attributes |= _flattened([one.answer], "llm.output_messages.{}.message", "{}.tool_call", "function.")
    return {**_common(one, at), **attributes}


def _openllmetry(one: Exchange, at: int) -> dict[str, object]:
    """The flattened attributes of OpenLLMetry, and of AgentOps."""
    attributes: dict[str, object] = {"llm.request.type": "chat", "gen_ai.response.model": "policy"}
    attributes |= _flattened(one.prompt, "gen_ai.prompt.{}") | _flattened([one.answer], "gen_ai.completion.{}")
    if one.finish:
        attributes["gen_ai.completion.0.finish_reason"] = one.finish
    return {**_common(one, at), **attributes}


def _flattened(messages: Sequence[Message], start: str, call: str = "{}", function: str = "") -> dict[str, object]:
    """An attribute a value, named by `start` of the message's number, and `call` of the tool call's."""
    attributes: dict[str, object] = {}
    for number, message in enumerate(messages):
        place = start.format(number)
        fields = {"role": message.role, "content": message.content, "tool_call_id": message.tool_call_id}
        for at, tool in enumerate(message.tool_calls):
            called = f"tool_calls.{call.format(at)}"
            fields[f"{called}.id"] = tool.id
            fields |= {f"{called}.{function}name": tool.name, f"{called}.{function}arguments": tool.arguments}
        attributes |= {f"{place}.{name}": value for name, value in fields.items() if value is not None}
    return attributes


def _agentlightning(one: Exchange) -> dict[str, object]:
    scored = [{"token": "x", "bytes": None, "logprob": logprob, "top_logprobs": []} for logprob in one.logprobs]
    return {
        "prompt_token_ids": one.prompt_ids,
        "response_token_ids": one.ids,
        "logprobs.content": json.dumps(scored),
        "gen_ai.usage.completion_tokens": one.usage["completion_tokens"],
    }


def _bodies(asked: str, answered: str, **more: object) -> Callable[[Exchange, int, bool], dict[str, object]]:
    """A tracer that writes the request and the response as JSON."""

    def attributes(one: Exchange, at: int, with_ids: bool) -> dict[str, object]:
        request, response = _request(one), _response(one, at, with_ids=with_ids)
        return {**more, asked: json.dumps(request), answered: json.dumps(response)}

    return attributes


def _with(
    content: Callable[[Exchange, int], dict[str, object]], ids: Callable[..., dict[str, object]] = _packed
) -> Callable[[Exchange, int, bool], dict[str, object]]:
    """Attributes of an instrumentor, and beside them those with the ids."""

    def attributes(one: Exchange, at: int, with_ids: bool) -> dict[str, object]:
        return {**content(one, at), **(ids(one) if with_ids else {})}

    return attributes


def _dump(
    attributes: Callable[[Exchange, int, bool], dict[str, object]],
    events: Callable[[Exchange], list[dict]] = lambda _one: [],
    **fields: object,
) -> Write:
    """An OTLP dump with one span a call."""

    def spans_of(trace: int, exchanges: Sequence[Exchange], with_ids: bool) -> Iterator[dict]:
        for at, one in enumerate(exchanges):
            named = {"name": "chat policy", "kind": 3, "events": events(one), **fields}
            told = {**attributes(one, at, with_ids), **_told(one)}
            yield make_span(at + 2, 1, trace=trace, attributes=told, **_status(one), **_times(at), **named)

    return _written(spans_of)


_Spans = Callable[[int, Sequence[Exchange], bool], Iterator[dict]]


def _written(spans_of: _Spans, scope: str = "test") -> Write:
    """Write a trace a rollout: its own span, and those of its calls."""

    def write(folder: Path, rollouts: Rollouts, with_ids: bool) -> list[Path]:
        requests = []
        for trace, (rollout_id, exchanges) in enumerate(rollouts.items(), 1):
            root = make_span(1, trace=trace, name="rollout x", attributes={"art.rollout.id": rollout_id})
            spans = [{**root, "endTimeUnixNano": "9000000"}, *spans_of(trace, exchanges, with_ids)]
            requests.append(request_of(*spans, scope=scope))
        return [write_lines(folder / "dump.jsonl", requests)]

    return write


def _told(one: Exchange) -> dict[str, object]:
    return {"art.scrubbed": 1, "art.scrubbed.content": True} if one.scrubbed else {}


def _status(one: Exchange) -> dict[str, object]:
    return {"status": {"code": 2, "message": "broken"} if one.error else {}}


def _times(at: int) -> dict[str, str]:
    return {"startTimeUnixNano": str(2_000_000 + 10 * at), "endTimeUnixNano": str(2_000_005 + 10 * at)}


def _litellm(trace: int, exchanges: Sequence[Exchange], with_ids: bool) -> Iterator[dict]:
    """LiteLLM's proxy: the request's span, and its child with the server's response as Python prints it."""
    for at, one in enumerate(exchanges):
        response = _response(one, at, with_ids=with_ids)
        written = {name: value if isinstance(value, str) else str(value) for name, value in response.items()}
        raw = {f"llm.hosted_vllm.{name}": value for name, value in written.items()} | _told(one)
        outer = {**_genai(one, at), **_told(one)}
        fields = {"trace": trace, **_times(at)}
        yield make_span(100 + at, 1, name="litellm_request", attributes=outer, **_status(one), **fields)
        yield make_span(200 + at, 100 + at, name="raw_gen_ai_request", attributes=raw, **fields)


def _verifiers(folder: Path, rollouts: Rollouts, with_ids: bool) -> list[Path]:
    """Traces of verifiers, one a line."""
    path = folder / "verifiers.jsonl"
    traces = [json.dumps(_trace_of(name, exchanges, with_ids)) + "\n" for name, exchanges in rollouts.items()]
    path.write_text("".join(traces), encoding="utf-8")
    return [path]


def _trace_of(rollout_id: str, exchanges: Sequence[Exchange], with_ids: bool) -> dict:
    """A trace of verifiers: a node a message, each below the one before it. Agents here go on with what they had."""
    nodes: list[dict] = []
    calls: list[dict] = []
    known, seen = 0, 0  # messages and ids of the path so far
    for at, one in enumerate(exchanges):
        for message in (*one.prompt[known:], one.answer):
            is_answer = message is one.answer
            is_last = message is one.prompt[-1]  # the template's ids stand at the last message that was given
            ids = one.ids if is_answer else one.prompt_ids[seen:] if is_last else []
            nodes.append(
                {
                    **({"parent": len(nodes) - 1} if nodes else {}),
                    "message": chat_message(message),
                    "sampled": is_answer,
                    "timestamp": 1_795_425_000.0 + at,
                    "token_ids": ids if with_ids else [],
                    "mask": [is_answer] * len(ids) if with_ids else [],
                    "logprobs": one.logprobs if is_answer and with_ids else [],
                }
            )
        known, seen = len(one.prompt) + 1, len(one.prompt_ids) + len(one.ids)
        time = {"start": 1_795_424_999.5 + at, "end": 1_795_425_000.0 + at}
        told = {"model": "policy", "finish_reason": one.finish, "usage": one.usage}
        calls.append({"node": len(nodes) - 1, "time": time, **told})
    return {
        "version": 1, "id": rollout_id, "verifiers": {"version": "0.4.0"}, "task": {}, "agent": {"name": "solver"},
        "nodes": nodes, "calls": calls, "ok": True, "errors": [], "rewards": {}, "metrics": {}, "info": {},
        "timing": {"start": 1_795_424_999.0},
    }  # fmt: skip


def _atif(folder: Path, rollouts: Rollouts, with_ids: bool) -> list[Path]:
    """Documents as Harbor writes them, one a file."""
    paths = [folder / f"trajectory-{number}.json" for number in range(len(rollouts))]
    for path, (rollout_id, exchanges) in zip(paths, rollouts.items(), strict=True):
        path.write_text(json.dumps(_document_of(rollout_id, exchanges, with_ids)), encoding="utf-8")
    return paths


def _document_of(rollout_id: str, exchanges: Sequence[Exchange], with_ids: bool) -> dict:
    """A document: no finish reasons, results of tools in the step that asked for them."""
    asked = {len(one.prompt): one for one in exchanges}
    steps: list[dict] = []
    for at, message in enumerate([*exchanges[-1].prompt, exchanges[-1].answer]):
        if message.role == "tool":
            given = {"source_call_id": message.tool_call_id, "content": message.content}
            steps[-1].setdefault("observation", {"results": []})["results"].append(given)
            continue
        step = {"step_id": at + 1, "source": message.role, "message": message.content or ""}
        if message.role == "assistant":
            one = asked[at]
            ids = {"prompt_token_ids": one.prompt_ids, "completion_token_ids": one.ids, "logprobs": one.logprobs}
            step |= {"source": "agent", "metrics": {**one.usage, **(ids if with_ids else {})}}
            if one.finish in ("abort", "length"):
                step["extra"] = {"finish_reason": one.finish}
        if message.tool_calls:
            step["tool_calls"] = [
                {"tool_call_id": tool.id, "function_name": tool.name, "arguments": json.loads(tool.arguments)}
                for tool in message.tool_calls
            ]
        steps.append(step)
    agent = {"name": "solver", "version": "1", "model_name": "policy", "tool_definitions": []}
    return {"schema_version": "ATIF-v1.6", "session_id": rollout_id, "agent": agent, "steps": steps}


RECORDERS: dict[str, Write] = {
    "live, GenAI": _dump(_with(_genai)),
    "live, events": _dump(_with(_common), _events),
    "live, OpenInference flattened": _dump(_with(_openinference)),
    "live, OpenLLMetry": _dump(_with(_openllmetry)),
    "live, OpenInference body": _dump(
        lambda one, at, with_ids: {
            **_bodies("input.value", "output.value", **{"openinference.span.kind": "LLM"})(one, at, False),
            **(_packed(one) if with_ids else {}),
        }
    ),
    "gateway": _dump(_with(_verbatim)),
    "OpenInference": _dump(_bodies("input.value", "output.value", **{"openinference.span.kind": "LLM"})),
    "Langfuse": _dump(
        _bodies(
            "langfuse.observation.input", "langfuse.observation.output", **{"langfuse.observation.type": "generation"}
        )
    ),
    "MLflow": _dump(_bodies("mlflow.spanInputs", "mlflow.spanOutputs", **{"mlflow.spanType": '"CHAT_MODEL"'})),
    "LangSmith": _dump(
        _bodies(
            "gen_ai.prompt",
            "gen_ai.completion",
            **{"langsmith.span.kind": "llm", "gen_ai.operation.name": "chat", "gen_ai.system": "openai"},
        )
    ),
    "Agent Lightning": _dump(_with(_openllmetry, _agentlightning), name="openai.chat.completion"),
    "LiteLLM": _written(_litellm, scope="litellm"),
    "verifiers": _verifiers,
    "ATIF": _atif,
}
"""Every recorder that can have the ids of what a model sampled."""
