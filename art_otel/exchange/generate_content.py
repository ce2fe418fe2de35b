"""Gemini's generateContent: translates a request to Chat Completions, and writes the answer, whole or as a stream.

    systemInstruction               a system message
    thoughts, text, functionCall    one message of the model, with reasoning, content and tool calls
    functionResponse                a tool's message each, before the rest of the user's turn
    generationConfig                the fields of the same meaning

Invariant: calls without ids get "call_0", "call_1" and so on; a functionResponse without an id answers the first
unanswered call of its name. A streamed function call is sent as a whole, as Gemini does.

Sources: https://ai.google.dev/api/generate-content, https://ai.google.dev/gemini-api/docs/function-calling
"""

import json
import re
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from art_otel.conventions import values
from art_otel.exchange.answer_shapes import AnswerFields, RequestFacts
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
    mapping_of,
    named,
    text_part,
    tool_call,
    tool_settings,
    without_nulls,
)
from art_otel.spans import Value

_SNAKE: Final = re.compile("(?<=[a-z])_([a-z])")
_ENCODE: Final = msgspec.json.Encoder().encode
_NAMES: Final = {
    "temperature": "temperature",
    "topP": "top_p",
    "topK": "top_k",
    "maxOutputTokens": "max_tokens",
    "stopSequences": "stop",
    "candidateCount": "n",
    "presencePenalty": "presence_penalty",
    "frequencyPenalty": "frequency_penalty",
    "seed": "seed",
}
_READ: Final = ("contents", "systemInstruction", "tools", "toolConfig", "generationConfig", "model", "stream")
_OF_SERVICE: Final = ("safetySettings", "labels", "serviceTier")
_CONFIG_READ: Final = (
    *("responseMimeType", "responseSchema", "responseJsonSchema", "_responseJsonSchema", "thinkingConfig"),
    "responseModalities",
)
_MODES: Final = {"AUTO": "auto", "VALIDATED": "auto", "ANY": "required", "NONE": "none"}
_SCHEMAS: Final = ("items", "anyOf", "prefixItems", "additionalProperties", "defs", "$defs")
"""The fields of a schema, besides `properties`, that contain schemas."""

_LIMITS: Final = ("min", "max")
_FINISHES: Final = {"stop": "STOP", "tool_calls": "STOP", "length": "MAX_TOKENS", "content_filter": "SAFETY"}
"""Gemini's finish reasons. All others, such as vLLM's `abort`, become OTHER."""


def chat_request(request: Mapping[str, Value]) -> ChatRequest:
    """Translate a request to Chat Completions; `model` and `stream` have been added to it from its path.

    Raises UntranslatableError.
    """
    request = _in_json_names(request)
    if request.get("cachedContent"):
        raise UntranslatableError("cachedContent", "contents are not stored by this server")
    config = _in_json_names(mapping_of(request.get("generationConfig")))
    modalities = values.items(config.get("responseModalities")) or ["TEXT"]
    if modalities != ["TEXT"]:
        raise UntranslatableError("generationConfig.responseModalities", "the answer can only be text")
    chat = ChatMessages()
    system = mapping_of(request.get("systemInstruction"))
    if texts := [str(part.get("text")) for _, part in _parts_of(system, "systemInstruction")]:
        chat.add_system("\n".join(texts))
    ids = _CallIds()
    contents = request.get("contents")
    # Gemini accepts a single content without a list around it.
    for path, content in entries_of(contents if isinstance(contents, list) else [contents], "contents"):
        _add_content(chat, path, content, ids)
    body = {"model": request.get("model"), **named(config, _NAMES), "messages": chat.messages, **chat.continuation()}
    body |= without_nulls(_settings(request, config))
    if request.get("stream"):
        body |= STREAMED
    thinking = _in_json_names(mapping_of(config.get("thinkingConfig")))
    said = ("includeThoughts", "thinkingLevel", *(["thinkingBudget"] if thinking.get("thinkingBudget") == 0 else ()))
    unknown = [f"generationConfig.{name}" for name in left_out(config, (*_NAMES, *_CONFIG_READ))]
    unknown += [f"generationConfig.thinkingConfig.{name}" for name in left_out(thinking, said)]
    return ChatRequest(body, [*left_out(request, (*_READ, *_OF_SERVICE)), *unknown])


def _parts_of(content: Mapping[str, Value], path: str) -> Iterator[tuple[str, Mapping[str, Value]]]:
    """The parts of a content; Gemini accepts a single part without a list around it."""
    parts = content.get("parts")
    return entries_of([parts] if isinstance(parts, dict) else parts, f"{path}.parts")


def _in_json_names(fields: Mapping[str, Value]) -> dict[str, Value]:
    """An object's fields under their names in JSON: Gemini accepts `system_instruction` for `systemInstruction`."""
    return {_SNAKE.sub(lambda match: match[1].upper(), name): value for name, value in fields.items()}


class _CallIds:
    """The ids of function calls: those in the request, else "call_0", "call_1" and so on."""

    def __init__(self) -> None:
        self._count = 0
        self._waiting: dict[str, deque[str]] = {}

    def of_call(self, call: Mapping[str, Value]) -> str:
        """The id of a call; a later response of the same name may answer it."""
        call_id = str(call.get("id") or f"call_{self._count}")
        self._count += 1
        self._waiting.setdefault(str(call.get("name")), deque()).append(call_id)
        return call_id

    def of_response(self, response: Mapping[str, Value]) -> str:
        """The id of the call that a response answers."""
        waiting = self._waiting.get(str(response.get("name"))) or deque()
        first = waiting.popleft() if waiting else f"call_{self._count}"
        return str(response.get("id") or first)


def _add_content(chat: ChatMessages, path: str, content: Mapping[str, Value], ids: _CallIds) -> None:
    """Add the messages for one content of the user or of the model."""
    is_sampled = content.get("role") == "model"
    parts: list[AnswerFields] = []
    for where, given in _parts_of(content, path):
        part = _in_json_names(given)
        call, response = mapping_of(part.get("functionCall")), mapping_of(part.get("functionResponse"))
        if is_sampled and "text" in part:
            text, is_thought = str(part["text"]), bool(part.get("thought"))
            chat.add_sampled(text="" if is_thought else text, reasoning=text if is_thought else "")
        elif is_sampled and call:
            arguments = json.dumps(mapping_of(call.get("args")), ensure_ascii=False)
            chat.add_sampled(calls=[tool_call(ids.of_call(call), call.get("name"), arguments)])
        elif response:
            inner = [_part(at, _in_json_names(one)) for at, one in entries_of(response.get("parts"), f"{where}.parts")]
            result = text_part(json.dumps(response.get("response"), ensure_ascii=False))
            parts += chat.add_result(ids.of_response(response), [result, *inner])
        # A part with nothing but a signature has no content; only Google's servers can read it.
        elif not (is_sampled and "thoughtSignature" in part and len(part) == 1):
            parts.append(_part(where, part))
    if is_sampled and parts:
        raise UntranslatableError(f"{path}.parts", "the model's own messages cannot have images")
    chat.add_user(parts)


def _part(path: str, part: Mapping[str, Value]) -> AnswerFields:
    """A text or an image as a part of Chat Completions. Raises UntranslatableError for other media."""
    inline, file = _in_json_names(mapping_of(part.get("inlineData"))), _in_json_names(mapping_of(part.get("fileData")))
    media = str((inline or file).get("mimeType", ""))
    if "text" in part:
        return text_part(part["text"])
    if inline and media.startswith("image/"):
        return image_part(data_url(media, inline.get("data")))
    if file and media.startswith("image/"):
        return image_part(file.get("fileUri"))
    kind = next((name for name in part if name not in ("thought", "thoughtSignature")), "nothing")
    raise UntranslatableError(f"{path}.{kind}", f"{media or kind} does not exist in Chat Completions")


def _settings(request: Mapping[str, Value], config: Mapping[str, Value]) -> AnswerFields:
    """The settings for tools, the format of the answer, and the reasoning."""
    functions: list[AnswerFields] = []
    for path, given in entries_of(request.get("tools"), "tools"):
        tool = _in_json_names(given)
        for kind in tool:
            if kind != "functionDeclarations":
                raise UntranslatableError(f"{path}.{kind}", "only Google's own servers run this")
        for _, declared in entries_of(tool.get("functionDeclarations"), path):
            function = _in_json_names(declared)
            schema = function.get("parametersJsonSchema") or _json_schema(function.get("parameters"))
            functions.append(
                {
                    "name": function.get("name"),
                    "description": function.get("description"),
                    "parameters": schema or {"type": "object", "properties": {}},
                }
            )
    calling = _in_json_names(
        mapping_of(_in_json_names(mapping_of(request.get("toolConfig"))).get("functionCallingConfig"))
    )
    allowed = values.items(calling.get("allowedFunctionNames")) or []
    if allowed:  # Chat Completions can force one function, but has no list of allowed ones: show the model only these
        functions = [function for function in functions if function["name"] in allowed]
    mode = _MODES.get(str(calling.get("mode")), "auto")
    made = tool_settings(functions, mode, allowed[0] if mode == "required" and len(allowed) == 1 else None)
    schema = config.get("responseJsonSchema") or config.get("_responseJsonSchema")
    # JSON Schema comes first: Gemini's own kind is a subset of OpenAPI, and must be converted.
    schema = schema or _json_schema(config.get("responseSchema"))
    if schema or config.get("responseMimeType") == "application/json":
        made["response_format"] = json_format(schema)
    thinking = _in_json_names(mapping_of(config.get("thinkingConfig")))
    if thinking.get("thinkingLevel"):
        made["reasoning_effort"] = str(thinking["thinkingLevel"]).lower()
    # A budget of 0 turns the thinking off. Other budgets have no counterpart, and are reported as left out.
    elif thinking.get("thinkingBudget") == 0:
        made["reasoning_effort"] = "none"
    return made


def _json_schema(schema: Value) -> Value:
    """Turn a schema in the style of OpenAPI into JSON Schema.

    {"type": "STRING", "nullable": true, "maxLength": "9"}      {"type": ["string", "null"], "maxLength": 9}
    """
    entries = values.items(schema)
    if entries is not None:
        return [_json_schema(entry) for entry in entries]
    fields = values.mapping(schema)
    if fields is None:
        return schema
    made: AnswerFields = {}
    for name, value in _in_json_names(fields).items():
        if name == "properties":
            made[name] = {key: _json_schema(inner) for key, inner in mapping_of(value).items()}
        elif name == "type":
            kinds = values.items(value)
            made[name] = str(value).lower() if kinds is None else [str(kind).lower() for kind in kinds]
        elif name in _SCHEMAS:
            made[name] = _json_schema(value)
        elif name.startswith(_LIMITS) and isinstance(value, str) and value.isdecimal():  # int64 is a text in JSON
            made[name] = int(value)
        elif name not in ("propertyOrdering", "nullable"):
            made[name] = value
    if fields.get("nullable"):
        kinds = made.get("type", [])
        if kinds:
            made["type"] = [*([kinds] if isinstance(kinds, str) else kinds), "null"]
        elif "anyOf" in made:
            made["anyOf"] = [*made["anyOf"], {"type": "null"}]
        if "enum" in made:
            made["enum"] = [*made["enum"], None]
    return made


class ContentShape:
    """Writes answers as generateContent. Finish reasons wait for the usage: Gemini's last response has both."""

    def __init__(self, facts: RequestFacts) -> None:
        self._facts = facts
        config = _in_json_names(mapping_of(_in_json_names(facts.request).get("generationConfig")))
        thinking = _in_json_names(mapping_of(config.get("thinkingConfig")))
        self._shows_thoughts = bool(thinking.get("includeThoughts"))
        self._calls: dict[int, list[AnswerFields]] = {}
        self._finishes: dict[int, Value] = {}

    def whole(self, completion: AnswerFields) -> AnswerFields:
        """The response with a candidate for each choice."""
        candidates: list[AnswerFields] = []
        for choice in completion["choices"]:
            message: AnswerFields = choice["message"]
            calls = [_call_part(call["id"], call["function"]) for call in message.get("tool_calls") or ()]
            parts = [*self._texts(message), *calls]
            candidates.append(_candidate(choice["index"], parts, choice.get("finish_reason")))
        return self._response(candidates, mapping_of(completion.get("usage")))

    def begin(self) -> bytes:
        """Nothing comes before the first text."""
        return b""

    def piece(self, choice: AnswerFields) -> bytes:
        """The response for a delta with a text, or for the end of a call; else b""."""
        index, delta = choice["index"], mapping_of(choice.get("delta"))
        parts = self._texts(delta)
        calls = self._calls.setdefault(index, [])
        for call in delta.get("tool_calls") or ():
            function = mapping_of(call.get("function"))
            if call.get("id") is not None and function.get("name") is not None:
                parts += self._ended_call(index)
                calls.append({"id": call["id"], "name": function["name"], "arguments": ""})
            if calls:
                calls[-1]["arguments"] += function.get("arguments") or ""
        if choice.get("finish_reason") is not None:
            parts += self._ended_call(index)
            self._finishes[index] = choice["finish_reason"]
        return self._event([_candidate(index, parts, None)]) if parts else b""

    def end(self, usage: AnswerFields) -> bytes:
        """The response with the finish reasons and the usage."""
        ends = [_candidate(index, [{"text": ""}], finish) for index, finish in sorted(self._finishes.items())]
        return self._event(ends, usage)

    def failed(self, error: AnswerFields) -> bytes:
        """The error."""
        return b"data: " + _ENCODE(error_body(500, str(error["message"]))) + b"\r\n\r\n"

    def _ended_call(self, index: int) -> list[AnswerFields]:
        """The function call that is whole now, as the next call or the end has come; [] where none is open."""
        calls = self._calls.get(index)
        if not calls:
            return []
        call = calls.pop()
        return [_call_part(call["id"], call)]

    def _texts(self, message: Mapping[str, Value]) -> list[AnswerFields]:
        thought, text = message.get("reasoning"), message.get("content")
        shown = [{"text": thought, "thought": True}] if thought and self._shows_thoughts else []
        return [*shown, *([{"text": text}] if text else [])]

    def _event(self, candidates: Sequence[AnswerFields], usage: Mapping[str, Value] | None = None) -> bytes:
        return b"data: " + _ENCODE(self._response(candidates, usage)) + b"\r\n\r\n"

    def _response(self, candidates: Sequence[AnswerFields], usage: Mapping[str, Value] | None) -> AnswerFields:
        facts = self._facts
        counted = {} if usage is None else {"usageMetadata": _usage(usage)}
        about = {"modelVersion": facts.model, "responseId": facts.answer_id}
        return {"candidates": [*candidates], **counted, **about}


def _call_part(call_id: Value, function: Mapping[str, Value]) -> AnswerFields:
    """A function call. Its arguments must be an object; other ones are wrapped in one under `INVALID_JSON`."""
    arguments = str(function.get("arguments") or "{}")
    try:
        given = values.mapping(json.loads(arguments))
    except ValueError:
        given = None
    args = {"INVALID_JSON": arguments} if given is None else given
    return {"functionCall": {"id": call_id, "name": function.get("name"), "args": args}}


def _candidate(index: int, parts: Sequence[AnswerFields], finish: Value) -> AnswerFields:
    reason = {} if finish is None else {"finishReason": _FINISHES.get(finish, "OTHER")}
    return {"content": {"parts": [*parts], "role": "model"}, **reason, "index": index}


def _usage(usage: Mapping[str, Value]) -> AnswerFields:
    """The usage in Gemini's fields: it counts thoughts apart from the answer, Chat Completions within it."""
    prompt, completion = usage.get("prompt_tokens") or 0, usage.get("completion_tokens") or 0
    cached = mapping_of(usage.get("prompt_tokens_details")).get("cached_tokens")
    thought = mapping_of(usage.get("completion_tokens_details")).get("reasoning_tokens")
    return {
        "promptTokenCount": prompt,
        "candidatesTokenCount": completion - (thought or 0),
        "totalTokenCount": prompt + completion,
        **({"cachedContentTokenCount": cached} if cached else {}),
        **({"thoughtsTokenCount": thought} if thought else {}),
    }


_STATUSES: Final = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    409: "ABORTED",
    413: "INVALID_ARGUMENT",
    422: "INVALID_ARGUMENT",
    429: "RESOURCE_EXHAUSTED",
    501: "UNIMPLEMENTED",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
    529: "UNAVAILABLE",
}


def error_body(status: int, message: str, _said: Value = None, _field: Value = None) -> AnswerFields:
    """An error as Google's servers send it."""
    return {"error": {"code": status, "message": message, "status": _STATUSES.get(status, "INTERNAL")}}
