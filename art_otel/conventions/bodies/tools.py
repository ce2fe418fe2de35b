"""Tools: tool definitions in OpenAI's nested form.

Invariant: a function is `{"type": "function", "function": {"name", "description", "parameters", "strict"}}`, without
what is null, whether recorded nested (Chat Completions), flat (Responses, GenAI) or with `input_schema` (Anthropic).
Tools that are no functions stay as they were.
"""

from functools import lru_cache

from art_otel.conventions.attributes import values
from art_otel.errors import ParseError
from art_otel.spans import Value


def parse_tools(value: Value) -> tuple[Value, ...]:
    """The tool definitions of a list or its JSON text. Raises ParseError when it is no list of objects."""
    return _from_json(value) if isinstance(value, str) else _parsed(value)


def _parsed(value: Value) -> tuple[Value, ...]:
    definitions = values.items(value)
    if definitions is None:
        raise ParseError("", "is no list of tool definitions")
    return tuple(parse_tool(definition) for definition in definitions)


@lru_cache(maxsize=256)
def _from_json(json_text: str) -> tuple[Value, ...]:
    """As `parse_tools`; most calls of a rollout offer the same tools."""
    definitions, _ = values.decode(json_text)
    return _parsed(definitions)


def parse_tool(value: Value) -> dict[str, Value]:
    """One tool definition or its JSON text. Raises ParseError when it is no object."""
    if isinstance(value, str):
        value, _ = values.decode(value)
    definition = values.mapping(values.json_safe(value))
    if definition is None:
        raise ParseError("", "is no tool definition")
    kind = definition.get("type")
    if kind not in (None, "function") and "input_schema" not in definition:
        return definition
    function = values.mapping(definition.get("function")) or definition
    if "name" not in function:
        raise ParseError("", "is a function without a name")
    found = {
        "name": function["name"],
        "description": function.get("description"),
        "parameters": function.get("parameters", function.get("input_schema")),
        "strict": function.get("strict"),
    }
    return {"type": "function", "function": {name: kept for name, kept in found.items() if kept is not None}}
