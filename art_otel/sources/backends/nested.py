"""Nested attributes flattened to dotted names, as an instrumentor wrote them before a store nested them.

Invariant: a list that holds objects is spread by index (`llm.input_messages.0.message.role`), any other list is a
value, and null is absent: a store that merges the objects of all its rows fills the gaps with null. What is made of an
object grows no faster than the object.

Source of the format: `unflatten` in Phoenix's `phoenix/trace/attributes.py`.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from art_otel.sources.json_text.values import is_list, is_object
from art_otel.sources.refusals import Refused, attribute_path
from art_otel.spans import Value

MAX_PARTS: Final = 64
"""How many objects and lists may stand inside each other; each is a part of a name, and real names have about ten."""

MAX_PREFIX: Final = 512
"""Characters of a name that others go on from, each of which repeats it; real ones have less than a hundred."""

_JSON_TEXTS: Final = ("metadata", "llm.prompt_template.variables", "tool.parameters")
_JSON_TEXT_ENDING: Final = ".document.metadata"


def flatten(nested: Mapping[str, Value]) -> dict[str, Value]:
    """Name every leaf by its path; what Phoenix parsed from JSON text is JSON text again. Raises Refused."""
    flat: dict[str, Value] = {}
    _spread(nested, "", flat, 0)
    return flat


def _spread(value: Value, name: str, flat: dict[str, Value], depth: int) -> None:
    if depth > MAX_PARTS:
        raise Refused("nested too deep", attribute_path(("", name)), f"a name of more than {MAX_PARTS} parts")
    if is_object(value) and (name in _JSON_TEXTS or name.endswith(_JSON_TEXT_ENDING)):
        flat[name] = msgspec.json.encode(_without_nulls(value, name, depth)).decode()
    elif is_object(value):
        _check_prefix(name)
        for key, item in value.items():
            _spread(item, f"{name}.{key}" if name and key else name or key, flat, depth + 1)
    elif is_list(value) and any(map(is_object, value)):
        _check_prefix(name)
        for index, item in enumerate(value):
            _spread(item, f"{name}.{index}", flat, depth + 1)
    elif value is not None:
        flat[name] = value


def _check_prefix(name: str) -> None:
    if len(name) > MAX_PREFIX:
        raise Refused("bad field", attribute_path(("", name)), f"an object whose name has over {MAX_PREFIX} characters")


def _without_nulls(value: Value, name: str, depth: int) -> Value:
    if depth > MAX_PARTS:
        raise Refused("nested too deep", attribute_path(("", name)), f"JSON more than {MAX_PARTS} objects deep")
    if not is_object(value):
        return value
    return {key: _without_nulls(item, name, depth + 1) for key, item in value.items() if item is not None}
