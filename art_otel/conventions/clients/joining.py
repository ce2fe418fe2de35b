"""Joining: objects that arrive in pieces.

Invariant: pieces are joined in the order they came, in time linear in their size, and nothing is made up.
"""

from typing import Final, cast

from art_otel.conventions.attributes import values
from art_otel.spans import Value

_TEXTS: Final = frozenset({"content", "text", "refusal", "reasoning", "reasoning_content", "arguments", "input"})
"""Fields whose pieces are joined; any other text replaces what came before."""

_CALLS: Final = "tool_calls"


class _Text:
    """The pieces of a text, joined once: a long completion has thousands."""

    __slots__ = ("pieces",)

    def __init__(self, first: Value) -> None:
        self.pieces: list[str] = [first] if isinstance(first, str) else []


class _Calls(dict[int, dict[str, Value]]):
    """The tool calls of a message by index."""


def join(joined: dict[str, Value], piece: dict[str, Value]) -> None:
    """Add a piece of an object to `joined`, which holds the pieces before it."""
    for name, value in piece.items():
        if isinstance(value, str):
            _join_text(joined, name, value)
        elif value is None:
            joined.setdefault(name, None)
        elif name == _CALLS:
            _join_calls(joined, values.items(value) or [])
        elif (fields := values.mapping(value)) is not None:
            if values.mapping(joined.get(name)) is None:
                joined[name] = {}
            join(joined[name], fields)
        elif (listed := values.items(value)) is not None and values.items(joined.get(name)) is not None:
            joined[name].extend(listed)
        else:
            joined[name] = value


def whole(value: Value) -> Value:
    """Return what was joined in JSON's own types."""
    if isinstance(value, _Text):
        return "".join(value.pieces)
    if isinstance(value, _Calls):
        return [whole(value[index]) for index in sorted(value)]
    fields = values.mapping(value)
    if fields is not None:
        return {name: whole(inner) for name, inner in fields.items()}
    listed = values.items(value)
    return value if listed is None else [whole(inner) for inner in listed]


def place_of(entry: dict[str, Value], position: int) -> int:
    """The index that an entry of a list names, else where it stands."""
    index = values.integer(entry.get("index"))
    return position if index is None or index < 0 else index


def _join_text(joined: dict[str, Value], name: str, piece: str) -> None:
    before = joined.get(name)
    if name in _TEXTS:
        if not isinstance(before, _Text):
            before = joined[name] = _Text(before)
        before.pieces.append(piece)
    elif piece or before is None:
        joined[name] = piece


def _join_calls(joined: dict[str, Value], pieces: list[Value]) -> None:
    calls = joined.get(_CALLS)
    if not isinstance(calls, _Calls):
        calls = joined[_CALLS] = _Calls()
    for position, piece in enumerate(pieces):
        fields = values.mapping(piece) or {}
        call = calls.setdefault(place_of(fields, position), {})
        join(call, {name: value for name, value in fields.items() if name != "index"})


def objects(joined: dict[str, Value], name: str) -> list[dict[str, Value]]:
    """Return the list of objects in a field; an empty one is put there first if there is none."""
    return cast(list[dict[str, Value]], joined.setdefault(name, []))
