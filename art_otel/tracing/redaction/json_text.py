"""JSON text: rewritten string by string, so that every other byte of it stays.

Invariant: valid JSON stays valid JSON of the same shape, whatever the strings become.
"""

import json
import re
from functools import partial
from typing import Final, Protocol

_BEGINS: Final = re.compile(r'\s*+[{\["]')
_TOKEN: Final = re.compile(
    r'"(?P<string>[^"\\]*+(?:\\.[^"\\]*+)*+)"(?P<colon>\s*+:)?|(?P<number>-?[0-9][0-9.eE+-]*+)', re.DOTALL
)


class Change(Protocol):
    """What becomes of the strings."""

    def string(self, value: str) -> str:
        """A value."""
        ...

    def key(self, value: str) -> str:
        """A key."""
        ...

    def number(self, value: str) -> str:
        """A number, as it is written; another text than that becomes a string."""
        ...


def is_json(text: str) -> bool:
    """Whether a text is a JSON object, list or string."""
    if _BEGINS.match(text) is None:
        return False
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def rewrite(text: str, change: Change) -> str:
    """JSON text with its strings and numbers changed."""
    return _TOKEN.sub(partial(_changed, change), text)


def _changed(change: Change, token: re.Match[str]) -> str:
    if token["number"] is not None:
        number = change.number(token["number"])
        return number if number == token["number"] else json.dumps(number)
    value = _decoded(token)
    changed = change.string(value) if token["colon"] is None else change.key(value)
    return token[0] if changed == value else json.dumps(changed) + (token["colon"] or "")


def _decoded(token: re.Match[str]) -> str:
    written = token["string"]
    return written if "\\" not in written else json.loads(f'"{written}"')
