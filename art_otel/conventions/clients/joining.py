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


def join(known: dict[str, Value], piece: dict[str, Value]) -> None:
    """Add a piece of an object to what is known of it."""
    for name, value in piece.items():
        if isinstance(value, str):
            _join_text(known, name, value)
        elif value is None:
            known.setdefault(name, None)
        elif name == _CALLS:
            _join_calls(known, values.items(value) or [])
        elif (fields := values.mapping(value)) is not None:
            if values.mapping(known.get(name)) is None:
                known[name] = {}
            join(known[name], fields)
        elif (listed := values.items(value)) is not None and values.items(known.get(name)) is not None:
            known[name].extend(listed)
        else:
            known[name] = value


def whole(value: Value) -> Value:
    """What was joined, in JSON's own types."""
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


def _join_text(known: dict[str, Value], name: str, piece: str) -> None:
    before = known.get(name)
    if name in _TEXTS:
        if not isinstance(before, _Text):
            before = known[name] = _Text(before)
        before.pieces.append(piece)
    elif piece or before is None:
        known[name] = piece


def _join_calls(known: dict[str, Value], pieces: list[Value]) -> None:
    calls = known.get(_CALLS)
    if not isinstance(calls, _Calls):
        calls = known[_CALLS] = _Calls()
    for position, piece in enumerate(pieces):
        fields = values.mapping(piece) or {}
        call = calls.setdefault(place_of(fields, position), {})
        join(call, {name: value for name, value in fields.items() if name != "index"})


def objects(known: dict[str, Value], name: str) -> list[dict[str, Value]]:
    """The list of objects in a field, empty at first."""
    return cast(list[dict[str, Value]], known.setdefault(name, []))
