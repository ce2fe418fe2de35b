"""Wire: completions in the JSON of OpenAI's chat completions, completions and responses, whole or as stream chunks.

Invariant: a stream's chunks joined are the whole answer. Token ids and log-probabilities stand where vLLM puts them,
and only when the request asked (`return_token_ids`, `logprobs`).

Source of the format: https://platform.openai.com/docs/api-reference and vLLM's OpenAI-compatible server.
"""

import json
from collections.abc import Iterator

from tests.tracing import policy
from tests.tracing.policy import Completion

CREATED = 1_750_000_000


def chat(body: dict, response_id: str) -> dict:
    """A whole chat completion."""
    completions, prompt = _chat_completions(body)
    choices = [
        _with_tokens(
            {"index": index, "message": one.message(), "finish_reason": one.finish_reason, "logprobs": None},
            body,
            one.token_ids,
            one.logprobs,
        )
        for index, one in enumerate(completions)
    ]
    weights = policy.directions(body["messages"]).get("weights")
    if weights and body.get("return_weight_versions"):  # as vLLM from 0.33 on
        for choice, one in zip(choices, completions, strict=True):
            choice["weight_versions"] = [{"version": weights, "start": 0, "end": len(one.token_ids)}]
    answer = {**_head(body, response_id, "chat.completion"), "choices": choices, "usage": _usage(prompt, completions)}
    return {**answer, "prompt_token_ids": prompt} if body.get("return_token_ids") else answer


def chat_chunks(body: dict, response_id: str) -> Iterator[dict]:
    """The same as chunks; the choices take turns."""
    completions, prompt = _chat_completions(body)
    head = _head(body, response_id, "chat.completion.chunk")
    first: dict = {"prompt_token_ids": prompt} if body.get("return_token_ids") else {}
    streams = [list(_deltas(body, index, one)) for index, one in enumerate(completions)]
    if policy.directions(body["messages"]).get("order") == "reversed":
        streams.reverse()
    for at in range(max(map(len, streams))):
        for stream in streams:
            if at < len(stream):
                yield {**head, "choices": [stream[at]], **first}
                first = {}
    if (body.get("stream_options") or {}).get("include_usage"):
        yield {**head, "choices": [], "usage": _usage(prompt, completions)}


def text(body: dict, response_id: str) -> dict:
    """A whole completion of a text prompt, or of each of several."""
    prompts = [body["prompt"]] if isinstance(body["prompt"], str) else body["prompt"]
    asked = [(prompt, index) for prompt in prompts for index in range(body.get("n") or 1)]
    completions = [policy.sample([{"role": "user", "content": prompt}], None, index) for prompt, index in asked]
    choices: list[dict] = []
    for index, ((text_prompt, _), one) in enumerate(zip(asked, completions, strict=True)):
        prompt = policy.tokens(text_prompt)
        choice: dict = {"index": index, "text": one.text, "finish_reason": one.finish_reason, "logprobs": None}
        if body.get("logprobs") is not None and body.get("logprobs") is not False:
            choice["logprobs"] = {
                "tokens": [f"token_id:{number}" for number in one.token_ids],
                "token_logprobs": list(one.logprobs),
                "top_logprobs": None,
                "text_offset": [0] * len(one.token_ids),
            }
        if body.get("return_token_ids"):
            choice |= {"token_ids": list(one.token_ids), "prompt_token_ids": prompt}
        choices.append(choice)
    return {
        **_head(body, response_id, "text_completion"),
        "choices": choices,
        "usage": _usage([number for prompt in prompts for number in policy.tokens(prompt)], completions),
    }


def text_chunks(body: dict, response_id: str) -> Iterator[dict]:
    """The same as chunks."""
    whole = text(body, response_id)
    for choice in whole["choices"]:
        said = policy.pieces(choice["text"])
        for at, piece in enumerate(said):
            last = at == len(said) - 1
            span = slice(at, None if last else at + 1)
            chunk = {**choice, "text": piece, "finish_reason": choice["finish_reason"] if last else None}
            if choice["logprobs"]:
                chunk["logprobs"] = {name: value and value[span] for name, value in choice["logprobs"].items()}
            if "token_ids" in choice:
                chunk["token_ids"] = choice["token_ids"][span]
            if at:
                chunk.pop("prompt_token_ids", None)
            yield {**{name: whole[name] for name in whole if name != "usage"}, "choices": [chunk]}
    if (body.get("stream_options") or {}).get("include_usage"):
        yield {**whole, "choices": []}


def responses(body: dict, response_id: str) -> dict:
    """A whole answer of the Responses API."""
    messages = _input_messages(body)
    tools = [{"function": tool} for tool in body.get("tools") or ()] or None
    one = policy.sample(messages, tools, 0)
    prompt = policy.prompt_ids(messages, tools)
    count = len(one.token_ids)
    status = policy.directions(messages).get("status", "completed")
    asked = body.get("enable_response_messages")
    return {
        "input_messages": [{"type": "raw_message_tokens", "message": "", "tokens": prompt}] if asked else None,
        "output_messages": [{"type": "raw_message_tokens", "message": "", "tokens": [*one.token_ids]}]
        if asked
        else None,
        "id": response_id.replace("chatcmpl", "resp"),
        "object": "response",
        "created_at": CREATED,
        "status": status,
        "model": body["model"],
        "output": [] if status in ("queued", "failed") else _output(one, response_id),
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": body.get("tools") or [],
        "previous_response_id": body.get("previous_response_id"),
        "instructions": body.get("instructions"),
        "error": {"code": "server_error", "message": "m"} if status == "failed" else None,
        "incomplete_details": {"reason": "max_output_tokens"} if status == "incomplete" else None,
        "metadata": {},
        "usage": {
            "input_tokens": len(prompt),
            "output_tokens": count,
            "total_tokens": len(prompt) + count,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens_details": {"reasoning_tokens": 0},
        },
    }


def responses_events(body: dict, response_id: str) -> Iterator[dict]:
    """The same as events."""
    whole = responses(body, response_id)
    begun = {**whole, "status": "in_progress", "output": [], "usage": None}
    for number, event in enumerate(
        [
            {"type": "response.created", "response": begun},
            *(event for at, item in enumerate(whole["output"]) for event in _item_events(at, item)),
            {"type": f"response.{whole['status']}", "response": whole},
        ]
    ):
        yield {**event, "sequence_number": number}


def _item_events(at: int, item: dict) -> Iterator[dict]:
    where = {"output_index": at, "item_id": item["id"]}
    if item["type"] == "function_call":
        yield {"type": "response.output_item.added", **where, "item": {**item, "arguments": ""}}
        yield {"type": "response.function_call_arguments.delta", **where, "delta": item["arguments"]}
        yield {"type": "response.function_call_arguments.done", **where, "arguments": item["arguments"]}
    elif item["type"] == "reasoning":
        part = item["content"][0]
        where_part = {**where, "content_index": 0}
        yield {"type": "response.output_item.added", **where, "item": {**item, "content": None}}
        yield {"type": "response.content_part.added", **where_part, "part": {**part, "text": ""}}
        for piece in policy.pieces(part["text"]):
            yield {"type": "response.reasoning_text.delta", **where_part, "delta": piece}
        yield {"type": "response.reasoning_text.done", **where_part, "text": part["text"]}
        yield {"type": "response.content_part.done", **where_part, "part": part}
    else:
        part = item["content"][0]
        where_part = {**where, "content_index": 0}
        yield {"type": "response.output_item.added", **where, "item": {**item, "content": []}}
        yield {"type": "response.content_part.added", **where_part, "part": {**part, "text": ""}}
        for piece in policy.pieces(part["text"]):
            yield {"type": "response.output_text.delta", **where_part, "delta": piece, "logprobs": []}
        yield {"type": "response.output_text.done", **where_part, "text": part["text"], "logprobs": []}
        yield {"type": "response.content_part.done", **where_part, "part": part}
    yield {"type": "response.output_item.done", **where, "item": item}


def _output(one: Completion, response_id: str) -> list[dict]:
    """The items of an answer. Its reasoning is as vLLM 0.32 has it: `content` is null until a part of it comes."""
    reasoning: list[dict] = []
    if one.reasoning:
        thought = [{"type": "reasoning_text", "text": one.reasoning}]
        reasoning.append({"type": "reasoning", "id": f"rs_{response_id}", "summary": [], "content": thought})
    if one.tool_calls:
        return reasoning + [
            {
                "type": "function_call",
                "id": f"fc_{call['id']}",
                "call_id": call["id"],
                "name": call["function"]["name"],
                "arguments": call["function"]["arguments"],
                "status": "completed",
            }
            for call in one.tool_calls
        ]
    content = [{"type": "output_text", "text": one.text, "annotations": [], "logprobs": []}]
    return [
        *reasoning,
        {"type": "message", "id": f"msg_{response_id}", "role": "assistant", "status": "completed", "content": content},
    ]


def _input_messages(body: dict) -> list[dict]:
    given = body["input"]
    items = [{"role": "user", "content": given}] if isinstance(given, str) else given
    messages = [{"role": "system", "content": body["instructions"]}] if body.get("instructions") else []
    for item in items:
        if item.get("type") == "function_call":
            function = {"name": item["name"], "arguments": item["arguments"]}
            messages.append({"role": "assistant", "tool_calls": [{"id": item["call_id"], "function": function}]})
        elif item.get("type") == "function_call_output":
            messages.append({"role": "tool", "tool_call_id": item["call_id"], "content": item["output"]})
        else:
            messages.append({"role": item["role"], "content": item["content"]})
    return messages


def _chat_completions(body: dict) -> tuple[list[Completion], list[int]]:
    messages, tools = body["messages"], body.get("tools")
    completions = [policy.sample(messages, tools, index, body.get("functions")) for index in range(body.get("n") or 1)]
    return completions, policy.prompt_ids(messages, tools)


def _deltas(body: dict, index: int, one: Completion) -> Iterator[dict]:
    """One choice as chunk choices: its role, then a token a chunk; the last has the finish reason and what is left."""
    deltas: list[dict] = [{"reasoning_content": one.reasoning}] if one.reasoning else []
    deltas += [{"content": piece} for piece in policy.pieces(one.text or "")]
    deltas += [{"refusal": piece} for piece in policy.pieces(one.refusal or "")]
    if one.function_call:
        deltas.append({"function_call": {**one.function_call, "arguments": ""}})
        deltas += [{"function_call": {"arguments": piece}} for piece in policy.pieces(one.function_call["arguments"])]
    for at, call in enumerate(one.tool_calls):
        function = call["function"]
        deltas.append({"tool_calls": [{**call, "index": at, "function": {**function, "arguments": ""}}]})
        deltas += [
            {"tool_calls": [{"index": at, "function": {"arguments": piece}}]}
            for piece in policy.pieces(function["arguments"])
        ]
    deltas.append({})
    begin = {"index": index, "delta": {"role": "assistant", "content": ""}, "logprobs": None, "finish_reason": None}
    yield begin
    for at, delta in enumerate(deltas):
        last = at == len(deltas) - 1
        span = slice(at, None if last else at + 1)
        choice = {**begin, "delta": delta, "finish_reason": one.finish_reason if last else None}
        yield _with_tokens(choice, body, one.token_ids[span], one.logprobs[span])


def _with_tokens(choice: dict, body: dict, ids: tuple[int, ...], logprobs: tuple[float, ...]) -> dict:
    added: dict = {}
    if body.get("logprobs"):
        entries = [
            {"token": f"token_id:{number}", "logprob": logprob, "bytes": None, "top_logprobs": []}
            for number, logprob in zip(ids, logprobs, strict=True)
        ]
        added["logprobs"] = {"content": entries, "refusal": None}
    if body.get("return_token_ids"):
        added["token_ids"] = list(ids)
    return {**choice, **added}


def _head(body: dict, response_id: str, kind: str) -> dict:
    return {"id": response_id, "object": kind, "created": CREATED, "model": body["model"], "system_fingerprint": None}


def _usage(prompt: list[int], completions: list[Completion]) -> dict:
    count = sum(len(one.token_ids) for one in completions)
    return {"prompt_tokens": len(prompt), "completion_tokens": count, "total_tokens": len(prompt) + count}


def as_event(chunk: dict) -> bytes:
    """A chunk as a server-sent event; those of the Responses API are named."""
    name = f"event: {chunk['type']}\n" if "type" in chunk else ""
    return f"{name}data: {json.dumps(chunk)}\n\n".encode()
