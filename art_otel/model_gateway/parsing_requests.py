"""Parsing requests: what the server's parsers are told of a request, as Chat Completions has it.

Invariant: they get its tools and settings in every dialect as vLLM makes them itself, and no messages.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from art_otel.conventions import values
from art_otel.exchange.assembly import WireDialect
from art_otel.model_gateway.answer_shapes import AnswerFields
from art_otel.spans import Value

_NAMESPACE: Final = "__"
"""What vLLM puts between a namespace and the name of a function in it."""

_CUSTOM_PARAMETERS: Final[Mapping[str, Value]] = {
    "type": "object",
    "properties": {"input": {"type": "string", "description": "The freeform text payload for this tool."}},
    "required": ["input"],
    "additionalProperties": False,
}
"""What vLLM shows the model of a custom tool."""


def parsing_request(request: Mapping[str, Value], dialect: WireDialect) -> AnswerFields:
    """The chat request that tells the server's parsers what they need: tools and settings, but no messages."""
    if dialect == "chat":
        left = {"messages", "stream", "stream_options", "n", "prompt_logprobs", "stop"}
        made = {name: value for name, value in request.items() if name not in left}
    else:
        made = _of_messages(request) if dialect == "messages" else _of_responses(request)
        made |= {
            name: request[name]
            for name in ("model", "chat_template_kwargs", "include_reasoning")
            if request.get(name) is not None
        }
    return {**made, "messages": [{"role": "user", "content": ""}]}


class ResponsesFunction(NamedTuple):
    """A function that a Responses request offers: its own name, and the namespace around it.

    A custom tool is a function of one text, `input`, to the model.
    """

    name: str
    namespace: str | None
    definition: Mapping[str, Value]
    is_custom: bool = False


def responses_functions(request: Mapping[str, Value]) -> Mapping[str, ResponsesFunction]:
    """The functions of a Responses request, by the names that the model reads, as vLLM makes them.

    Tools of other types are not among them: the model is not shown what only the API's own servers can run.
    """
    functions: dict[str, ResponsesFunction] = {}
    for tool in map(_fields, values.items(request.get("tools")) or ()):
        name, is_namespace = str(tool.get("name")), tool.get("type") == "namespace"
        for inner in map(_fields, values.items(tool.get("tools")) or ()) if is_namespace else (tool,):
            if inner.get("type") == "function":
                own = str(inner.get("name"))
                full, namespace = (f"{name}{_NAMESPACE}{own}", name) if is_namespace else (own, None)
                functions[full] = ResponsesFunction(own, namespace, inner)
        if tool.get("type") == "custom":
            definition = {"description": tool.get("description"), "parameters": _CUSTOM_PARAMETERS}
            functions[name] = ResponsesFunction(name, None, definition, is_custom=True)
    return functions


def _of_messages(request: Mapping[str, Value]) -> AnswerFields:
    """The settings of Anthropic's Messages as Chat Completions has them."""
    functions = [
        {"name": tool.get("name"), "description": tool.get("description"), "parameters": tool.get("input_schema")}
        for tool in map(_fields, values.items(request.get("tools")) or ())
    ]
    choice = _fields(request.get("tool_choice"))
    kind = str(choice.get("type", "auto"))
    name = choice.get("name") if kind == "tool" else None
    made = _tools(functions, {"any": "required"}.get(kind, kind), name)
    if choice.get("disable_parallel_tool_use"):
        made["parallel_tool_calls"] = False
    is_quick = _fields(request.get("thinking")).get("type") == "disabled"
    effort = _fields(request.get("output_config")).get("effort") or ("none" if is_quick else None)
    return made if effort is None else {**made, "reasoning_effort": effort}


def _of_responses(request: Mapping[str, Value]) -> AnswerFields:
    """The settings of the Responses API, and of Completions, which has none of them."""
    functions = responses_functions(request)
    choice = request.get("tool_choice") or "auto"
    named = _fields(choice)
    name = named.get("name") if named.get("type") in ("function", "custom") else None
    if name is not None and name not in functions:  # its name within a namespace
        name = next((full for full, function in functions.items() if function.name == name), name)
    definitions: list[AnswerFields] = [
        {"name": full, **{field: function.definition.get(field) for field in ("description", "parameters", "strict")}}
        for full, function in functions.items()
    ]
    made = _tools(definitions, "auto" if named else choice, name)
    if request.get("parallel_tool_calls") is not None:
        made["parallel_tool_calls"] = request["parallel_tool_calls"]
    effort = _fields(request.get("reasoning")).get("effort")
    return made if effort is None else {**made, "reasoning_effort": effort}


def _tools(functions: list[AnswerFields], choice: Value, name: Value) -> AnswerFields:
    """Tools, and which of them is to be called, if `name` is one."""
    if not functions:
        return {}
    chosen = choice if name is None else {"type": "function", "function": {"name": name}}
    return {"tools": [{"type": "function", "function": function} for function in functions], "tool_choice": chosen}


def _fields(value: Value) -> Mapping[str, Value]:
    return values.mapping(value) or {}
