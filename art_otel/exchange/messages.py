"""Anthropic's Messages: translates a request to Chat Completions, and writes the answer.

    system                          a system message
    tool_result in a user's turn    a tool's message each, before the rest of the user's turn
    thinking, text, tool_use        one message of the model, with reasoning, content and tool calls
    a last message of the model     the beginning that the model must continue
    stop_sequences, tools, …        the fields of the same meaning

Invariant: reasoning that the agent sends back reaches the model: it is taken from the thinking blocks themselves, and
their signatures are random.

Sources: https://docs.anthropic.com/en/api/messages, https://docs.anthropic.com/en/api/messages-streaming, answers of
vLLM 0.32 and 0.33, requests of Claude Code 2.1
"""

import json
from collections.abc import Mapping
from typing import Final
from uuid import uuid4

from art_otel.conventions import values
from art_otel.exchange.answer_shapes import AnswerFields, RequestFacts, event
from art_otel.exchange.chat_request import (
    STREAMED,
    ChatMessages,
    ChatRequest,
    UntranslatableError,
    data_url,
    entries_of,
    image_part,
    json_format,
    left_out,
    left_out_within,
    mapping_of,
    named,
    text_part,
    tool_call,
    tool_settings,
    without_nulls,
)
from art_otel.spans import Value

_NAMES: Final = {
    "model": "model",
    "max_tokens": "max_tokens",
    "temperature": "temperature",
    "top_p": "top_p",
    "top_k": "top_k",
    "stop_sequences": "stop",
    "chat_template_kwargs": "chat_template_kwargs",
}
_READ: Final = ("system", "messages", "tools", "tool_choice", "thinking", "output_config", "output_format", "stream")
_OF_SERVICE: Final = ("metadata", "service_tier", "inference_geo", "cache_control", "betas", "anthropic_version")
"""Fields for the service only, which do not change what the model reads; they are left out silently."""

_REFUSED: Final = ("container", "mcp_servers")
_BILLING: Final = "x-anthropic-billing-header"
"""The beginning of a system text of Claude Code for Anthropic's servers. It differs in each call, so it is left out:
else no prompt would continue the one before."""

_FAILED: Final = "The tool failed:"
"""The text put before a tool's result that is marked as an error."""

_INVALID: Final = "INVALID_JSON"
"""The key under which arguments that are no JSON stand in a tool's input, as Anthropic's documentation wraps them."""


def chat_request(request: Mapping[str, Value]) -> ChatRequest:
    """Translate a request to Chat Completions. Raises UntranslatableError."""
    for name in _REFUSED:
        if request.get(name):
            raise UntranslatableError(name, "only Anthropic's own servers run this")
    chat = ChatMessages()
    system = request.get("system")
    texts = [system] if isinstance(system, str) else [block.get("text") for _, block in entries_of(system, "system")]
    if text := "\n".join(str(text) for text in texts if text and not str(text).startswith(_BILLING)):
        chat.add_system(text)
    for path, message in entries_of(request.get("messages"), "messages"):
        _add_message(chat, path, message)
    for path, tool in entries_of(request.get("tools"), "tools"):
        # All other types are tools that Anthropic's servers run, such as web search.
        if tool.get("type") not in (None, "custom"):
            raise UntranslatableError(f"{path}.type", f"{tool['type']} is a tool of Anthropic's own servers")
    body = {**named(request, _NAMES), "messages": chat.messages, **without_nulls(chat_settings(request))}
    body |= chat.continuation(request.get("chat_template_kwargs"))
    output = mapping_of(request.get("output_format") or mapping_of(request.get("output_config")).get("format"))
    if output:
        body["response_format"] = json_format(output.get("schema"))
    if request.get("stream"):
        body |= STREAMED
    unsaid = left_out(request, (*_NAMES, *_READ, *_OF_SERVICE))
    unsaid += left_out_within(request, "thinking", ("type",))
    return ChatRequest(body, [*unsaid, *left_out_within(request, "output_config", ("effort", "format"))])


def chat_settings(request: Mapping[str, Value]) -> AnswerFields:
    """The tools of a request, which of them to call, and how much to reason, as vLLM reads them itself."""
    functions: list[AnswerFields] = [
        {
            "name": tool.get("name"),
            "description": tool.get("description"),
            "parameters": tool.get("input_schema"),
            **named(tool, {"strict": "strict"}),
        }
        for _, tool in entries_of(request.get("tools"), "tools")
    ]
    choice = mapping_of(request.get("tool_choice"))
    kind = str(choice.get("type", "auto"))
    made = tool_settings(functions, {"any": "required"}.get(kind, kind), choice.get("name") if kind == "tool" else None)
    if choice.get("disable_parallel_tool_use"):
        made["parallel_tool_calls"] = False
    is_quick = mapping_of(request.get("thinking")).get("type") == "disabled"
    effort = mapping_of(request.get("output_config")).get("effort") or ("none" if is_quick else None)
    return made if effort is None else {**made, "reasoning_effort": effort}


def _add_message(chat: ChatMessages, path: str, message: Mapping[str, Value]) -> None:
    """Add a message of a user or of the model, whose content is a text or blocks."""
    content = message.get("content")
    blocks = [(path, text_part(content))] if isinstance(content, str) else [*entries_of(content, f"{path}.content")]
    if message.get("role") == "assistant":
        for where, block in blocks:
            match block.get("type"):
                case "text":
                    chat.add_sampled(text=str(block.get("text")))
                case "thinking":
                    chat.add_sampled(reasoning=str(block.get("thinking")))
                case "redacted_thinking":  # encrypted: only Anthropic's servers can read it
                    pass
                case "tool_use":
                    chat.add_sampled(calls=[tool_call(block.get("id"), block.get("name"), _arguments(block))])
                case kind:
                    raise UntranslatableError(f"{where}.type", f"{kind} does not exist in Chat Completions")
        return
    if message.get("role") == "system":  # Claude Code's, in the middle of a conversation
        chat.add_system("\n".join(str(block.get("text")) for _, block in blocks))
        return
    parts: list[AnswerFields] = []
    for where, block in blocks:
        if block.get("type") == "tool_result":
            result = block.get("content")
            said = [(where, text_part(result))] if isinstance(result, str) else entries_of(result, f"{where}.content")
            inner = [_part(at, part) for at, part in said]
            if block.get("is_error"):  # Chat has no field for it
                inner.insert(0, text_part(_FAILED))
            parts += chat.add_result(str(block.get("tool_use_id")), inner)
        else:
            parts.append(_part(where, block))
    chat.add_user(parts)


def _part(path: str, block: Mapping[str, Value]) -> AnswerFields:
    """A block of a user's message, or of a tool's result, as a part of Chat Completions."""
    source = mapping_of(block.get("source"))
    match block.get("type"), source.get("type"):
        case "text", _:
            return text_part(block.get("text"))
        case "image", "base64":
            return image_part(data_url(source.get("media_type"), source.get("data")))
        case "image", "url":
            return image_part(source.get("url"))
        case "document", "text":
            return text_part(source.get("data"))
        case kind, of:
            raise UntranslatableError(
                f"{path}.type", f"{kind}{f' of {of}' if of else ''} does not exist in Chat Completions"
            )


def _arguments(block: Mapping[str, Value]) -> str:
    """The arguments of a tool call, as the model wrote them where they were no JSON."""
    given = mapping_of(block.get("input"))
    invalid = given.get(_INVALID) if len(given) == 1 else None
    return invalid if isinstance(invalid, str) else json.dumps(given, ensure_ascii=False)


class MessageShape:
    """Writes answers as Anthropic's Messages: blocks of thinking, text and tool calls, one after the other."""

    def __init__(self, facts: RequestFacts) -> None:
        self._facts = facts
        self._index = -1
        self._block: str | None = None
        self._call = -1
        self._arguments: list[str] = []
        self._text_behind: list[str] = []
        self._end: AnswerFields = {}

    def whole(self, completion: AnswerFields) -> AnswerFields:
        """The message of the first choice."""
        choice = completion["choices"][0]
        message: AnswerFields = choice["message"]
        calls: list[AnswerFields] = message.get("tool_calls") or []
        blocks: list[AnswerFields] = []
        if message.get("reasoning"):
            blocks.append({"type": "thinking", "thinking": message["reasoning"], "signature": uuid4().hex})
        if message.get("content"):
            blocks.append({"type": "text", "text": message["content"]})
        blocks += [
            {
                "type": "tool_use",
                "id": call["id"],
                "name": call["function"]["name"],
                "input": _input(call["function"]["arguments"]),
            }
            for call in calls
        ]
        reason, sequence = _stop_reason(choice, has_calls=bool(calls), are_whole=bool(calls))
        said = {"stop_reason": reason, "stop_sequence": sequence}
        if not self._facts.is_translated:  # vLLM leaves out what is null, Anthropic does not
            said = {name: value for name, value in said.items() if value is not None}
        return {
            **self._message(),
            "content": blocks or [{"type": "text", "text": ""}],
            **said,
            "usage": _anthropic_usage(values.mapping(completion.get("usage")) or {}),
        }

    def begin(self) -> bytes:
        """The event `message_start`: the message without content."""
        start = {"prompt_tokens": len(self._facts.prompt_ids), "completion_tokens": 0}
        none = {"stop_reason": None, "stop_sequence": None}
        message: AnswerFields = {**self._message(), "content": [], **none, "usage": _anthropic_usage(start)}
        return event({"type": "message_start", "message": message})

    def piece(self, choice: AnswerFields) -> bytes:
        """The events for a delta."""
        if choice.get("finish_reason") is not None:
            self._end = choice
        delta = values.mapping(choice.get("delta")) or {}
        events = b""
        if delta.get("reasoning"):
            events += self._within("thinking", {"thinking": ""})
            events += self._delta({"type": "thinking_delta", "thinking": delta["reasoning"]})
        if delta.get("content"):
            if self._block == "tool_use":  # it waits until the call has ended
                self._text_behind.append(delta["content"])
            else:
                events += self._within("text", {"text": ""})
                events += self._delta({"type": "text_delta", "text": delta["content"]})
        for call in delta.get("tool_calls") or ():
            events += self._of_call(call)
        return events

    def end(self, usage: AnswerFields) -> bytes:
        """The events with the stop reason, the usage and the end."""
        events = self._close()
        has_calls = self._call >= 0
        reason, sequence = _stop_reason(self._end, has_calls=has_calls, are_whole=has_calls and self._is_whole())
        delta = {"stop_reason": reason, "stop_sequence": sequence}
        events += event({"type": "message_delta", "delta": delta, "usage": _anthropic_usage(usage)})
        return events + event({"type": "message_stop"})

    def failed(self, error: AnswerFields) -> bytes:
        """The error event, after which nothing comes."""
        kind = "api_error" if self._facts.is_translated else "internal_error"  # Anthropic's word, and vLLM's
        return event({"type": "error", "error": {"type": kind, "message": error["message"]}})

    def _message(self) -> AnswerFields:
        facts = self._facts
        return {"id": facts.answer_id, "type": "message", "role": "assistant", "model": facts.model}

    def _of_call(self, call: AnswerFields) -> bytes:
        function = values.mapping(call.get("function")) or {}
        events = b""
        if call.get("id") is not None and function.get("name") is not None:
            events += self._close()
            self._call, self._arguments = call.get("index", 0), []
            events += self._open("tool_use", {"id": call["id"], "name": function["name"], "input": {}})
        if function.get("arguments") and self._block == "tool_use" and call.get("index", 0) == self._call:
            self._arguments.append(function["arguments"])
            events += self._delta({"type": "input_json_delta", "partial_json": function["arguments"]})
        return events

    def _within(self, block: str, fields: AnswerFields) -> bytes:
        return b"" if self._block == block else self._close() + self._open(block, fields)

    def _open(self, block: str, fields: AnswerFields) -> bytes:
        self._index += 1
        self._block = block
        block_of = {"type": block, **fields}
        return event({"type": "content_block_start", "content_block": block_of, "index": self._index})

    def _delta(self, delta: AnswerFields) -> bytes:
        return event({"type": "content_block_delta", "delta": delta, "index": self._index})

    def _close(self) -> bytes:
        if self._block is None:
            return b""
        events = b""
        if self._block == "thinking":
            events += self._delta({"type": "signature_delta", "signature": uuid4().hex})
        events += event({"type": "content_block_stop", "index": self._index})
        self._block = None
        if self._text_behind:
            events += self._open("text", {"text": ""})
            events += self._delta({"type": "text_delta", "text": "".join(self._text_behind)})
            self._text_behind = []
            events += self._close()
        return events

    def _is_whole(self) -> bool:
        try:
            json.loads("".join(self._arguments))
        except ValueError:
            return False
        return True


def _stop_reason(choice: AnswerFields, *, has_calls: bool, are_whole: bool) -> tuple[str | None, str | None]:
    """Anthropic's reason to stop, and the text that stopped."""
    finish, stop = choice.get("finish_reason"), choice.get("stop_reason")
    if finish == "length":
        return "max_tokens", None
    if finish == "content_filter":
        return "refusal", None
    if finish not in ("stop", "tool_calls"):
        return None, None
    if are_whole:
        return "tool_use", None
    if isinstance(stop, str):
        return "stop_sequence", stop
    return "tool_use" if finish == "tool_calls" or has_calls else "end_turn", None


def _anthropic_usage(usage: Mapping[str, Value]) -> AnswerFields:
    prompt, completion = usage.get("prompt_tokens") or 0, usage.get("completion_tokens") or 0
    cached = (values.mapping(usage.get("prompt_tokens_details")) or {}).get("cached_tokens")
    if cached is None:
        return {"input_tokens": prompt, "output_tokens": completion}
    return {"input_tokens": prompt - cached, "output_tokens": completion, "cache_read_input_tokens": cached}


def _input(arguments: str) -> Value:
    """The input of a tool call, which must be an object; other arguments are wrapped in one under `INVALID_JSON`."""
    try:
        given = values.mapping(json.loads(arguments or "{}"))
    except ValueError:
        given = None
    return {_INVALID: arguments} if given is None else given


_ERRORS: Final = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    422: "invalid_request_error",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
    529: "overloaded_error",
}


def error_body(status: int, message: str, _said: Value = None, _field: Value = None) -> AnswerFields:
    """An error as Anthropic's servers send it."""
    return {"type": "error", "error": {"type": _ERRORS.get(status, "api_error"), "message": message}}
