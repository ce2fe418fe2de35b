"""Gemini: contents, tools and responses of the Gemini API, in JSON's names or in Python's.

Source of the format: https://ai.google.dev/api/generate-content. Invariant: a part is what its one field says (`text`,
`functionCall`, `function_call`, …), never its position; a function's response stays the JSON object that was sent.
"""

from typing import Final

from art_otel.calls import Choice, Message, ToolCall, Usage, canonical_arguments
from art_otel.conventions import values
from art_otel.conventions.attributes import AttributeReader
from art_otel.conventions.bodies.messages import messages_of
from art_otel.conventions.bodies.openai_body import note_server_side, parse_tool
from art_otel.conventions.facts import UNKNOWN_MESSAGE, CallFacts
from art_otel.conventions.vocabulary import completed_reason, finish_reason
from art_otel.errors import ParseError
from art_otel.spans import Value

_MODEL: Final = "model"
_ROLES: Final = {_MODEL: "assistant", "function": "tool"}
_TEXTS: Final = ("text", "reasoning")
_NO_PARAMETERS: Final = frozenset({"system_instruction", "tools", "http_options", "labels"})
_REQUEST: Final = ("system_instruction", "tools", "tool_config", "safety_settings", "cached_content")
"""Fields of a request in JSON, beside its contents and `generationConfig`."""

_CALLED: Final = "automatic_function_calling_history"
"""What google-genai adds to a response if it called functions itself: all contents before the last answer."""

_ARGUMENTS_IN_PIECES: Final = frozenset({"partialArgs", "partial_args", "willContinue", "will_continue"})
_OPENAI_NAMES: Final = {
    "max_output_tokens": "max_tokens",
    "stop_sequences": "stop",
    "candidate_count": "n",
}


def contents_of(value: Value, role: str = "user") -> tuple[Message, ...]:
    """Parse contents: a text, a content, or a list of them. Raises ParseError when they are none."""
    entries = values.items(value)
    contents = [value] if entries is None else entries
    return tuple(message for content in contents for message in _messages(content, role))


def _messages(value: Value, role: str) -> tuple[Message, ...]:
    if isinstance(value, str):
        return (Message(role=role, content=value),)
    content = values.mapping(value)
    if content is None:
        raise ParseError("", "is no content of Gemini")
    named = values.text(content.get("role")) or role
    parts = [_part(part) for part in values.items(content.get("parts", [content])) or ()]
    parts = _join_pieces(parts) if named == _MODEL else parts
    return messages_of({"role": _ROLES.get(named, named), "content": parts})


def _join_pieces(parts: list[Value]) -> list[Value]:
    """Join texts in a row, and thoughts: agents keep what the model said as the pieces of a stream."""
    joined: list[Value] = []
    for part in parts:
        piece, last = values.mapping(part) or {}, values.mapping(joined[-1]) or {} if joined else {}
        if piece.get("type") == last.get("type") in _TEXTS:
            joined[-1] = {**last, "content": f"{last['content']}{piece['content']}"}
        else:
            joined.append(part)
    return joined


def _part(value: Value) -> Value:
    """Write a part as GenAI does. Raises ParseError when it is neither a text nor an object."""
    fields = values.mapping(value)
    if fields is None:
        return value
    part = {_python_name(name): inner for name, inner in fields.items() if inner is not None}
    if "text" in part:
        return {"type": "reasoning" if values.flag(part.get("thought")) else "text", "content": part["text"]}
    if (call := values.mapping(part.get("function_call"))) is not None and _ARGUMENTS_IN_PIECES.isdisjoint(call):
        return {
            "type": "tool_call",
            "id": call.get("id"),
            "name": call.get("name"),
            "arguments": call.get("args") or {},
        }
    if (answer := values.mapping(part.get("function_response"))) is not None:
        return {"type": "tool_call_response", "id": answer.get("id"), "response": answer.get("response")}
    if (inline := values.mapping(part.get("inline_data"))) is not None:
        return {"type": "blob", **{_python_name(name): inner for name, inner in inline.items()}}
    if (file := values.mapping(part.get("file_data"))) is not None:
        return {"type": "uri", **{"uri" if "ri" in name[-3:] else _python_name(name): file[name] for name in file}}
    return {"type": next(iter(part), "empty"), **part}


def _python_name(name: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)


def tools_of(value: Value) -> tuple[Value, ...]:
    """Parse the tools of a request: functions one by one, others as they were. Raises ParseError."""
    tools: list[Value] = []
    for entry in values.items(value) or ():
        tool = {_python_name(name): inner for name, inner in (values.mapping(entry) or {}).items()}
        functions = values.items(tool.get("function_declarations"))
        if functions is None:
            tools.append(values.json_safe(entry))
            continue
        for function in functions:
            fields = {_python_name(name): inner for name, inner in (values.mapping(function) or {}).items()}
            tools.append(parse_tool({"parameters": fields.get("parameters_json_schema"), **fields}))
    return tuple(tools)


def read_request(reader: AttributeReader, name: str, body: dict[str, Value]) -> CallFacts | None:
    """Read the request that attribute `name` holds; None when it has no contents."""
    if "contents" not in body:
        return None
    config = _config(body)
    note_server_side(reader, name, config)
    instruction = config.get("system_instruction")
    try:
        system = () if not instruction else contents_of(_without_role(instruction), role="system")
        messages: tuple[Message, ...] | None = system + contents_of(body["contents"])
        tools = tools_of(config["tools"]) if config.get("tools") is not None else ()
    except ParseError:
        reader.mark_invalid(name)
        messages, tools = None, None
    parameters = {
        _OPENAI_NAMES.get(key, key): reader.make_safe(name, value)
        for key, value in config.items()
        if key not in _NO_PARAMETERS and value is not None
    }
    return CallFacts(
        operation_name="generate_content",
        request_model=values.text(body.get("model")),
        parameters=parameters,
        tools=tools,
        input_messages=messages,
        stream=values.flag(body.get("stream")),
    )


def _config(body: dict[str, Value]) -> dict[str, Value]:
    """What a request says beside its contents: one object in Python; in JSON, sampling is an object of its own."""
    config = values.mapping(body.get("config"))
    if config is not None:
        return {_python_name(key): value for key, value in config.items()}
    fields = {_python_name(key): value for key, value in body.items()}
    sampling = values.mapping(fields.get("generation_config")) or {}
    kept = {key: fields[key] for key in _REQUEST if key in fields}
    return {**kept, **{_python_name(key): value for key, value in sampling.items()}}


def _without_role(instruction: Value) -> Value:
    """A system instruction may name the user as its role."""
    fields = values.mapping(instruction)
    return instruction if fields is None or "parts" not in fields else {"parts": fields["parts"]}


def read_response(reader: AttributeReader, name: str, body: dict[str, Value]) -> CallFacts | None:
    """Read the response that attribute `name` holds, also of Google's ADK, whose one candidate is the body itself."""
    fields = {_python_name(key): value for key, value in body.items()}
    candidates = values.items(fields.get("candidates")) or ([body] if "content" in fields else [])
    if not candidates:
        return None
    try:
        choices = tuple(_choice(index, values.mapping(entry) or {}) for index, entry in enumerate(candidates))
    except ParseError:
        reader.mark_invalid(name)
        choices = None
    if called := values.items(fields.get(_CALLED)):
        _note_functions_called(reader, name, called, choices or ())
    return CallFacts(
        response_id=values.text(fields.get("response_id")),
        response_model=values.text(fields.get("model_version")),
        choices=choices,
        usage=_usage(values.mapping(fields.get("usage_metadata")) or {}),
    )


def _note_functions_called(
    reader: AttributeReader, name: str, called: list[Value], choices: tuple[Choice, ...]
) -> None:
    """Note that one method made several requests, of which a recorder around it has the first prompt and last answer.

    Of a stream the answers of all of them were joined: [user] -> call of a function; [user, call, result] -> "12",
    recorded as [user] -> call of a function and "12".
    """
    try:
        sampled_before = [message for message in contents_of(called) if message.tool_calls][-1:]
    except ParseError:
        sampled_before = []
    answered = {_without_id(call) for choice in choices for call in choice.message.tool_calls}
    is_joined = any(_without_id(call) in answered for message in sampled_before for call in message.tool_calls)
    evidence = f"{name}: {_CALLED}"
    reader.gap("lossy recorder", evidence, field="call" if is_joined else "prompt")


def _without_id(call: ToolCall) -> tuple[str, str]:
    return call.name, canonical_arguments(call.arguments)


def _choice(index: int, candidate: dict[str, Value]) -> Choice:
    fields = {_python_name(key): value for key, value in candidate.items()}
    reason = finish_reason(fields.get("finish_reason"))
    if fields.get("content") is None and reason is not None:
        # All was thought, or the server does not show what was said.
        message = Message(role="assistant", content="") if reason in ("stop", "length") else UNKNOWN_MESSAGE
    else:
        message = sampled(fields.get("content"))
    return Choice(
        index=index,
        message=message,
        finish_reason=completed_reason(tool_calls=bool(message.tool_calls)) if reason == "stop" else reason,
    )


def sampled(content: Value) -> Message:
    """Parse what the model said. Raises ParseError when it is no content."""
    fields = values.mapping(content)
    if fields is None:
        raise ParseError("", "is no content of Gemini")
    return contents_of({"role": "model", **fields, "parts": fields.get("parts") or []})[-1]


def _usage(counts: dict[str, Value]) -> Usage | None:
    fields = {_python_name(name): values.integer(count) for name, count in counts.items()}
    answered, thought = fields.get("candidates_token_count"), fields.get("thoughts_token_count")
    usage = Usage(
        input_tokens=fields.get("prompt_token_count"),
        output_tokens=answered,
        total_tokens=fields.get("total_token_count"),
        cached_tokens=fields.get("cached_content_token_count"),
        reasoning_tokens=thought,
    )
    return None if usage == Usage() else usage
