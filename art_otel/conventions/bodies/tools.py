"""Tools: tool definitions in OpenAI's nested form.

Invariant: a function is `{"type": "function", "function": {"name", "description", "parameters", "strict"}}`, without
what is null, whether recorded nested (Chat Completions), flat (Responses, GenAI), with `input_schema` (Anthropic),
`parameters_json_schema` (Gemini) or as Bedrock's `toolSpec`.
Tools that are no functions stay as they were. Every call has definitions of its own, which its reader may change.
"""

from functools import lru_cache
from typing import Final

import msgspec

from art_otel.conventions.attributes import values
from art_otel.errors import ParseError
from art_otel.spans import Value

_DEFINITIONS: Final = msgspec.json.Decoder(tuple[dict[str, Value], ...])


def parse_tools(value: Value) -> tuple[Value, ...]:
    """Parse the tool definitions of a list or its JSON text. Raises ParseError when it is no list of objects."""
    return _DEFINITIONS.decode(_normalize(value)) if isinstance(value, str) else _parse_list(value)


@lru_cache(maxsize=256)
def _normalize(json_text: str) -> bytes:
    """Parse definitions and write them as JSON again: most calls repeat them, and decoding costs a tenth of parsing."""
    definitions, _ = values.decode(json_text)
    return msgspec.json.encode(_parse_list(definitions))


def _parse_list(value: Value) -> tuple[Value, ...]:
    definitions = values.items(value)
    if definitions is None:
        raise ParseError("", "is no list of tool definitions")
    return tuple(parse_tool(definition) for definition in definitions)


def parse_tool(value: Value) -> dict[str, Value]:
    """Parse one tool definition or its JSON text. Raises ParseError when it is no object."""
    if isinstance(value, str):
        value, _ = values.decode(value)
    definition = values.mapping(values.json_safe(value))
    if definition is None:
        raise ParseError("", "is no tool definition")
    definition = values.mapping(definition.get("toolSpec")) or definition
    kind = definition.get("type")
    if kind not in (None, "function") and "input_schema" not in definition:
        return definition
    function = values.mapping(definition.get("function")) or definition
    if "name" not in function:
        raise ParseError("", "is a function without a name")
    fields = {
        "name": function["name"],
        "description": function.get("description"),
        "parameters": _schema(function),
        "strict": function.get("strict"),
    }
    return {"type": "function", "function": {name: field for name, field in fields.items() if field is not None}}


def _schema(function: dict[str, Value]) -> Value:
    """The JSON schema of a function's parameters."""
    if "inputSchema" in function:
        return (values.mapping(function["inputSchema"]) or {}).get("json", function["inputSchema"])
    names = ("parameters", "input_schema", "parameters_json_schema", "parametersJsonSchema")
    return next((function[name] for name in names if function.get(name) is not None), None)
