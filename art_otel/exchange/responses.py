"""The Responses API: translates a request to Chat Completions. `response_shape` writes the answer.

    instructions, developer                 system messages
    reasoning, message, function_call       one message of the model, if no other item stands between them
    function_call_output                    a tool's message
    text.format, max_output_tokens, …       the fields of the same meaning

Invariant: the whole conversation must be in the request. A field that refers to something stored at the server is
refused by its name.

Sources: https://platform.openai.com/docs/api-reference/responses, vLLM 0.32 and 0.33, requests of Codex 0.169
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from art_otel.conventions import values
from art_otel.exchange.answer_shapes import AnswerFields
from art_otel.exchange.chat_request import (
    STREAMED,
    ChatMessages,
    ChatRequest,
    UntranslatableError,
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
    "max_output_tokens": "max_tokens",
    "temperature": "temperature",
    "top_p": "top_p",
    "presence_penalty": "presence_penalty",
    "frequency_penalty": "frequency_penalty",
    "chat_template_kwargs": "chat_template_kwargs",
}
_READ: Final = ("input", "instructions", "tools", "tool_choice", "parallel_tool_calls", "reasoning", "text", "stream")
_OF_SERVICE: Final = (
    *(
        "store",
        "metadata",
        "user",
        "service_tier",
        "safety_identifier",
        "truncation",
        "stream_options",
        "client_metadata",
    ),
    *("prompt_cache_key", "prompt_cache_options", "prompt_cache_retention"),
)
"""Fields for the service only, which do not change what the model reads; they are left out silently."""

_REFUSED: Final[Mapping[str, str]] = {
    "previous_response_id": "this server does not store responses; send the conversation in input",
    "conversation": "this server does not store conversations; send the conversation in input",
    "prompt": "this server does not store prompt templates",
    "background": "a response is answered while its client waits",
}
_NAMESPACE: Final = "__"
"""vLLM's separator between a namespace and the name of a function in it."""

_CUSTOM_PARAMETERS: Final[Mapping[str, Value]] = {
    "type": "object",
    "properties": {"input": {"type": "string", "description": "The freeform text payload for this tool."}},
    "required": ["input"],
    "additionalProperties": False,
}
"""The parameters that vLLM shows the model for a custom tool."""


def chat_request(request: Mapping[str, Value]) -> ChatRequest:
    """Translate a request to Chat Completions. Raises UntranslatableError."""
    for name, why in _REFUSED.items():
        if request.get(name):
            raise UntranslatableError(name, why)
    chat, said = ChatMessages(), request.get("input")
    if request.get("instructions"):
        chat.add_system(str(request["instructions"]))
    if isinstance(said, str):
        chat.add_user([text_part(said)])
    shown: list[AnswerFields] = []
    for path, item in entries_of(said, "input") if not isinstance(said, str) else ():
        if item.get("type") in _RESULTS:
            shown += _add_result(chat, path, item)
        else:
            chat.add_user(shown)
            shown = []
            _add_item(chat, path, item)
    chat.add_user(shown)
    body = {**named(request, _NAMES), "messages": chat.messages, **without_nulls(chat_settings(request))}
    kind = mapping_of(mapping_of(request.get("text")).get("format"))
    if kind.get("type") in ("json_object", "json_schema"):
        body["response_format"] = json_format(kind.get("schema"), kind.get("name"), strict=kind.get("strict"))
    if request.get("stream"):
        body |= STREAMED
    unsaid = left_out(request, (*_NAMES, *_READ, *_OF_SERVICE))
    unsaid += left_out_within(request, "reasoning", ("effort",))
    unsaid += left_out_within(request, "text", ("format",))
    if (kind := mapping_of(request.get("tool_choice")).get("type", "function")) not in ("function", "custom"):
        unsaid.append(f"tool_choice: {kind}")
    return ChatRequest(body, [*unsaid, *_tools_left_out(request)])


def _tools_left_out(request: Mapping[str, Value]) -> Iterator[str]:
    """The tools that only the API's own servers run. The model does not see them; vLLM hides them, too."""
    for path, tool in entries_of(request.get("tools"), "tools"):
        if tool.get("type") not in ("function", "custom", "namespace"):
            yield f"{path}: {tool.get('type')}"


def _add_item(chat: ChatMessages, path: str, item: Mapping[str, Value]) -> None:
    """Add an item of the input."""
    match item.get("type", "message"):
        case "message":
            _add_message(chat, path, item)
        case "reasoning":
            content = values.items(item.get("content")) or values.items(item.get("summary")) or ()
            chat.add_sampled(reasoning="".join(str(mapping_of(part).get("text")) for part in content))
        case "function_call":
            chat.add_sampled(calls=[tool_call(item.get("call_id"), _full_name(item), str(item.get("arguments")))])
        case "custom_tool_call":
            given = json.dumps({"input": item.get("input")}, ensure_ascii=False)
            chat.add_sampled(calls=[tool_call(item.get("call_id"), _full_name(item), given)])
        case kind:
            raise UntranslatableError(f"{path}.type", f"{kind} does not exist in Chat Completions")


_RESULTS: Final = ("function_call_output", "custom_tool_call_output")


def _add_result(chat: ChatMessages, path: str, item: Mapping[str, Value]) -> Sequence[AnswerFields]:
    """Add what a tool gave, and return its images, which have to stand behind the results of all parallel calls."""
    output = item.get("output")
    parts = [text_part(output)] if isinstance(output, str) else _parts(output, f"{path}.output")
    return chat.add_result(str(item.get("call_id")), parts)


def _add_message(chat: ChatMessages, path: str, item: Mapping[str, Value]) -> None:
    content, role = item.get("content"), item.get("role")
    parts = [text_part(content)] if isinstance(content, str) else _parts(content, f"{path}.content")
    if role == "user":
        chat.add_user(parts)
        return
    if any(part["type"] != "text" for part in parts):
        raise UntranslatableError(f"{path}.content", f"a message of role {role} has no images")
    text = "".join(part["text"] for part in parts)
    if role == "assistant":
        chat.add_sampled(text=text)
    else:
        chat.add_system(text)


def _parts(content: Value, path: str) -> list[AnswerFields]:
    """The parts of a content: texts and images. Raises UntranslatableError for others."""
    parts: list[AnswerFields] = []
    for where, part in entries_of(content, path):
        match part.get("type"):
            case "input_text" | "output_text" | "text":
                parts.append(text_part(part.get("text")))
            case "refusal":
                parts.append(text_part(part.get("refusal")))
            case "input_image" if part.get("image_url"):
                parts.append(image_part(part["image_url"], part.get("detail")))
            case kind:
                raise UntranslatableError(
                    f"{where}.type", f"{kind} does not exist in Chat Completions, or is a stored file"
                )
    return parts


def _full_name(item: Mapping[str, Value]) -> str:
    """The name of a function as the model reads it: with its namespace, if it has one."""
    namespace = item.get("namespace")
    return f"{namespace}{_NAMESPACE}{item.get('name')}" if namespace else str(item.get("name"))


class ResponsesFunction(NamedTuple):
    """A function that a Responses request offers, with its own name and its namespace.

    To the model, a custom tool is a function with one text parameter, `input`.
    """

    name: str
    namespace: str | None
    definition: Mapping[str, Value]
    is_custom: bool = False


def responses_functions(request: Mapping[str, Value]) -> Mapping[str, ResponsesFunction]:
    """The functions of a Responses request, by the names that the model reads (as vLLM makes these names).

    Tools of other types are left out: only the API's own servers can run them.
    """
    functions: dict[str, ResponsesFunction] = {}
    for tool in map(mapping_of, values.items(request.get("tools")) or ()):
        name, is_namespace = str(tool.get("name")), tool.get("type") == "namespace"
        for inner in map(mapping_of, values.items(tool.get("tools")) or ()) if is_namespace else (tool,):
            if inner.get("type") == "function":
                own = str(inner.get("name"))
                full, namespace = (f"{name}{_NAMESPACE}{own}", name) if is_namespace else (own, None)
                functions[full] = ResponsesFunction(own, namespace, inner)
        if tool.get("type") == "custom":
            definition = {"description": tool.get("description"), "parameters": _CUSTOM_PARAMETERS}
            functions[name] = ResponsesFunction(name, None, definition, is_custom=True)
    return functions


def chat_settings(request: Mapping[str, Value]) -> AnswerFields:
    """The settings for tools and reasoning of a Responses request; {} where it has none.

    This is the default in the rows of `API_DIALECTS`: a request of Completions has no such settings.
    """
    functions = responses_functions(request)
    choice = request.get("tool_choice") or "auto"
    chosen = mapping_of(choice)
    name = values.text(chosen.get("name")) if chosen.get("type") in ("function", "custom") else None
    if name is not None and name not in functions:  # its name within a namespace
        name = next((full for full, function in functions.items() if function.name == name), name)
    definitions: list[AnswerFields] = [
        {"name": full, **{field: function.definition.get(field) for field in ("description", "parameters", "strict")}}
        for full, function in functions.items()
    ]
    # A choice among several tools cannot be expressed: it is sent as "auto", and reported as left out.
    made = tool_settings(definitions, "auto" if chosen else choice, name)
    if request.get("parallel_tool_calls") is not None:
        made["parallel_tool_calls"] = request["parallel_tool_calls"]
    effort = mapping_of(request.get("reasoning")).get("effort")
    return made if effort is None else {**made, "reasoning_effort": effort}
