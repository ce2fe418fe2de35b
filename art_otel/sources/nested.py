"""Nested attributes flattened to dotted names, as an instrumentor wrote them before a store nested them.

Invariant: a list that holds objects is spread by index (`llm.input_messages.0.message.role`); any other list is a value.
Null is absent: a store that merges the objects of all its rows fills the gaps with null.

Source of the format: `unflatten` in Phoenix's `phoenix/trace/attributes.py`.
"""

from collections.abc import Iterator, Mapping
from typing import Final, cast

import msgspec

from art_otel.spans import Value

_JSON_TEXTS: Final = ("metadata", "llm.prompt_template.variables", "tool.parameters")
_JSON_TEXT_ENDING: Final = ".document.metadata"
_PLAIN: Final = (str, int, float)


def flatten(nested: Mapping[str, Value], prefix: str = "") -> dict[str, Value]:
    """Every leaf by its dotted name. Attributes that Phoenix has parsed from JSON text are JSON text again."""
    return dict(_leaves(prefix, nested))


def _leaves(name: str, value: Value) -> Iterator[tuple[str, Value]]:
    """Without recursion in the names: depth is bounded by what the decoder took."""
    if isinstance(value, _PLAIN):
        yield name, value
    elif isinstance(value, dict):
        fields = cast(dict[str, Value], value)
        if name in _JSON_TEXTS or name.endswith(_JSON_TEXT_ENDING):
            yield name, msgspec.json.encode(_without_nulls(fields)).decode()
            return
        for key, item in fields.items():
            yield from _leaves(f"{name}.{key}" if name and key else name or key, item)
    elif isinstance(value, list):
        items = cast(list[Value], value)
        if not any(isinstance(item, dict) for item in items):
            yield name, items
            return
        for index, item in enumerate(items):
            yield from _leaves(f"{name}.{index}", item)


def _without_nulls(value: Value) -> Value:
    if isinstance(value, dict):
        fields = cast(dict[str, Value], value)
        return {key: _without_nulls(item) for key, item in fields.items() if item is not None}
    return value
