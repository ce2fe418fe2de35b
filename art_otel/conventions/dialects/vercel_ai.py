"""Vercel AI SDK: `ai.*`, of versions 3 to 6 and the legacy mode of 7; opencode writes them, too.

https://ai-sdk.dev/docs/ai-sdk-core/telemetry: one span a request (`ai.generateText.doGenerate`,
`ai.streamText.doStream`, …), below one of the whole run (`ai.generateText`), which repeats its first prompt and its
last answer and is no call. Invariant: `ai.prompt.messages` is what was sent; arguments of tool calls are exact where
`input` or `args` is a text.
"""

from typing import Final, Literal, TypeAlias

import msgspec

from art_otel.calls import Choice, Message, Usage
from art_otel.conventions import values
from art_otel.conventions.attributes import AttributeReader, SpanRecording
from art_otel.conventions.bodies.messages import SERVER_RUNS, messages_of, parse
from art_otel.conventions.bodies.openai_body import parse_tool
from art_otel.conventions.dialects.dialect import Dialect, Role, ToolAttributes
from art_otel.conventions.facts import CallFacts
from art_otel.conventions.vocabulary import finish_reason, is_gemini
from art_otel.errors import ParseError
from art_otel.spans import Span, Value

CONVENTION: Final = "vercel_ai"

_OPERATION: Final = "ai.operationId"
_MESSAGES: Final = "ai.prompt.messages"
_TOOLS: Final = "ai.prompt.tools"
_TEXTS: Final = ("ai.response.text", "ai.response.object", "ai.result.text", "ai.result.object")
_TOOL_CALLS: Final = ("ai.response.toolCalls", "ai.result.toolCalls")
_ROLES: Final[dict[str, Role]] = {"doGenerate": "inference", "doStream": "inference", "doEmbed": "embeddings"}
_APPROVAL: Final = "tool-approval-"
_DENIED: Final = "Tool call execution denied."
"""What is sent of a tool call that the user denied without a reason, since spring 2026."""
_TOOL_SPAN: Final = "ai.toolCall"
_PREFIX: Final = "ai."

_ResultForm: TypeAlias = Literal["chat", "blocks", "gemini", "other"]
"""How a provider's API takes results of tools: as texts, as blocks (Claude's), as values, or in another way."""


def _result_form(provider: str) -> _ResultForm:
    """The form for a provider, which the SDK names `openai.chat`, `anthropic.messages`, `google.generative-ai`, …."""
    if "anthropic" in provider or provider == "amazon-bedrock":
        return "blocks"
    if is_gemini(provider, "chat"):
        return "gemini"
    return "chat" if provider.endswith(".chat") else "other"


def role(span: Span) -> Role | None:
    """The role by the operation: of the spans around the requests none."""
    named = values.text(span.attributes.get(_OPERATION))
    if named is None:
        return None
    return "tool" if named == _TOOL_SPAN else _ROLES.get(named.rpartition(".")[2], "other")


def read(recording: SpanRecording, _trusted_facts: CallFacts) -> CallFacts | None:
    """Read the attributes; None on other spans."""
    if _OPERATION not in recording.families:
        return None
    reader = recording.reader()
    choice = _schema(reader)
    return msgspec.structs.replace(
        CallFacts(
            conventions=(CONVENTION,),
            operation_name="chat",
            response_id=reader.text("ai.response.id"),
            provider=reader.text("ai.model.provider"),
            request_model=reader.text("ai.model.id"),
            response_model=reader.text("ai.response.model"),
            parameters={**choice, **_parameters(reader)},
            tools=_tools(reader),
            choices=_choices(reader),
            usage=_usage(reader),
            stream=(reader.text(_OPERATION) or "").endswith(".doStream"),
        ),
        input_messages=_input_messages(reader),
        gaps=reader.gaps,
    )


def _input_messages(reader: AttributeReader) -> tuple[Message, ...] | None:
    entries = values.items(reader.structured(_MESSAGES))
    form = _result_form(reader.text("ai.model.provider") or "")
    sent = None if entries is None else [_openai_message(values.mapping(entry) or {}, form) for entry in entries]
    return reader.parsed(_MESSAGES, parse, sent)


def _openai_message(message: dict[str, Value], form: _ResultForm) -> dict[str, Value]:
    """Write a message of the SDK with parts that OpenAI and GenAI have, too; what is for the app alone is not sent."""
    parts = values.items(message.get("content"))
    part_fields = [values.mapping(part) or {} for part in parts or ()]
    sent = [_part(part, form) for part in part_fields if not str(part.get("type")).startswith(_APPROVAL)]
    if message.get("role") == "assistant":  # which has the results of tools that the server ran
        sent = [{**part, SERVER_RUNS: True} if part.get("type") == "tool-result" else part for part in sent]
    content = message.get("content") if parts is None else sent
    return {"role": message.get("role"), "content": content}


def _part(part: dict[str, Value], form: _ResultForm) -> dict[str, Value]:
    if part.get("type") != "tool-result":
        return _content_part(part)
    kept = {name: field for name, field in part.items() if name not in ("result", "content")}
    return {**kept, "output": _result(part, form)}


def _content_part(part: dict[str, Value]) -> dict[str, Value]:
    kind = part.get("type")
    if kind in ("file", "image"):
        data = part.get("data", part.get("image"))
        is_url = isinstance(data, str) and "://" in data[:16]
        mime_type = part.get("mediaType", part.get("mimeType"))
        modality = "image" if kind == "image" or str(mime_type).startswith("image/") else "file"
        fields = {"url" if is_url else "data": data, "mime_type": mime_type, "filename": part.get("filename")}
        return {"type": modality, **{name: field for name, field in fields.items() if field is not None}}
    if kind in ("text", "reasoning", "tool-call"):
        return {name: field for name, field in part.items() if name != "providerOptions"}
    return part


def _result(part: dict[str, Value], form: _ResultForm) -> Value:
    """Write the result of a tool as the SDK sends it: a text, the JSON text of a value, or content parts."""
    if "output" not in part:  # before version 5
        parts = values.items(part.get("content")) if form == "blocks" else None
        return _json_text(part.get("result"), form) if parts is None else _content(parts)
    output = values.mapping(part["output"]) or {"value": part["output"]}
    kind, value = output.get("type"), output.get("value", output)
    if kind == "execution-denied":
        reason = output.get("reason")
        return reason if isinstance(reason, str) else _DENIED
    if kind == "content" and form != "chat" and (parts := values.items(value)) is not None:
        return _content(parts)
    is_text = isinstance(value, str) and kind not in ("json", "error-json")
    return value if is_text else _json_text(value, form)


def _content(parts: list[Value]) -> Value:
    return [_content_part(values.mapping(part) or {}) for part in parts]


def _json_text(value: Value, form: _ResultForm) -> str:
    """The JSON of a value, also of a text; Gemini's API takes values themselves, of which a text is one."""
    if form == "gemini" and isinstance(value, str):
        return value
    return msgspec.json.encode(values.json_safe(value)).decode()


def _tools(reader: AttributeReader) -> tuple[Value, ...] | None:
    recorded = reader.structured(_TOOLS)
    if recorded is None:
        return () if _MESSAGES in reader.attributes else None
    return reader.parsed(_TOOLS, lambda value: tuple(map(_tool, values.items(value) or ())), recorded)


def _tool(recorded: Value) -> Value:
    decoded = values.decode(recorded)[0] if isinstance(recorded, str) else recorded
    fields = values.mapping(decoded) or {}
    if fields.get("type") != "function":
        return values.json_safe(decoded)
    return parse_tool({"parameters": fields.get("inputSchema"), **fields})


def _choices(reader: AttributeReader) -> tuple[Choice, ...] | None:
    """Read the one answer: its text, or the JSON text of an object, its reasoning and its tool calls."""
    text, calls = reader.text(*_TEXTS), _tool_calls(reader)
    reason = finish_reason(reader.text("ai.response.finishReason", "ai.finishReason"))
    calls = None if calls is None else _with_server_tools(calls, reader, reason)
    if calls is None or (text is None and not calls and not _answered_nothing(reader)):
        return None
    try:
        (message,) = messages_of(
            {
                "role": "assistant",
                "content": text,
                "reasoning": reader.text("ai.response.reasoning", "ai.result.reasoning"),
                "tool_calls": calls,
            }
        )
    except ParseError:
        reader.mark_invalid(_TOOL_CALLS[0])
        return None
    return (Choice(index=0, message=message, finish_reason=reason),)


def _answered_nothing(reader: AttributeReader) -> bool:
    """Whether the answer is there and says nothing, as none does where content was not recorded."""
    return any(reader.attributes.get(name) == "" for name in _TEXTS)


def _tool_calls(reader: AttributeReader) -> list[Value] | None:
    """The tool calls; none where the attribute is absent, None where it cannot be read."""
    name = next((name for name in _TOOL_CALLS if reader.attributes.get(name) is not None), None)
    if name is None:
        return []
    calls = values.items(reader.structured(name))
    if calls is None:
        reader.mark_invalid(name)
    return calls


_PROVIDER_TOOLS: Final = ("provider", "provider-defined")
_APP_RUNS: Final = ("call_", "toolu_")
"""How the ids of calls begin that an app runs; those of the provider's tools are `ws_…`, `srvtoolu_…`, …."""


def _with_server_tools(calls: list[Value], reader: AttributeReader, reason: str | None) -> list[Value]:
    """Mark the calls of tools that the provider ran, which only streams say.

    It ran its own tools (`openai.web_search`) where the answer goes on to its end. Some of these the app runs
    (`anthropic.bash_20250124`).
    """
    recorded = values.items(reader.structured(_TOOLS)) or ()
    tools = [values.mapping(values.json_value(tool)) or {} for tool in recorded]
    of_provider = {tool.get("name") for tool in tools if tool.get("type") in _PROVIDER_TOOLS}
    marked: list[Value] = []
    for call in calls:
        fields = values.mapping(call) or {}
        is_own = not str(fields.get("toolCallId")).startswith(_APP_RUNS) or reason != "tool_calls"
        is_run = fields.get("toolName") in of_provider and is_own
        marked.append({**fields, SERVER_RUNS: True} if is_run else call)
    return marked


def _usage(reader: AttributeReader) -> Usage | None:
    usage = Usage(
        input_tokens=reader.integer("ai.usage.inputTokens", "ai.usage.promptTokens"),
        output_tokens=reader.integer("ai.usage.outputTokens", "ai.usage.completionTokens"),
        total_tokens=reader.integer("ai.usage.totalTokens"),
        cached_tokens=reader.integer("ai.usage.cachedInputTokens", "ai.usage.inputTokenDetails.cacheReadTokens"),
        reasoning_tokens=reader.integer("ai.usage.reasoningTokens", "ai.usage.outputTokenDetails.reasoningTokens"),
    )
    return None if usage == Usage() else usage


def _parameters(reader: AttributeReader) -> dict[str, Value]:
    tool_choice = reader.json_safe("ai.prompt.toolChoice")
    return {} if tool_choice is None else {"tool_choice": tool_choice}


def _schema(reader: AttributeReader) -> dict[str, Value]:
    """The schema of a structured answer, as OpenAI has it."""
    schema = reader.json_safe("ai.schema")
    return {} if schema is None else {"response_format": {"type": "json_schema", "json_schema": {"schema": schema}}}


DIALECT: Final = Dialect(
    convention=CONVENTION,
    known="parsed attributes",
    read=read,
    shown_by=(_OPERATION,),
    role=role,
    prefixes=(_PREFIX,),
    tools=ToolAttributes(
        name="ai.toolCall.name",
        call_id="ai.toolCall.id",
        arguments="ai.toolCall.args",
        result="ai.toolCall.result",
    ),
)
