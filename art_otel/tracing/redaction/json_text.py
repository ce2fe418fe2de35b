"""JSON text: rewritten string by string, so that every other byte of it stays.

Invariant: valid JSON stays valid JSON of the same shape, whatever the strings become.
"""

import json
import re
from collections.abc import Iterator, Sequence
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

    def secret_kind(self, key: str) -> str | None:
        """The kind of secret that stands under this key."""
        ...

    def secret(self, value: str, kind: str) -> str:
        """A value that is such a secret."""
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


def rewrite(text: str, positions: Sequence[int] | None, change: Change) -> str:
    """JSON text with its strings changed: those in which a position lies, or all of them."""
    return "".join(_pieces(text, positions, change))


def _pieces(text: str, positions: Sequence[int] | None, change: Change) -> Iterator[str]:
    done, following = 0, 0
    secret: str | None = None
    for token in _TOKEN.finditer(text):
        start, end = token.span()
        if positions is not None:
            while following < len(positions) and positions[following] < start:
                following += 1
        is_meant = positions is None or (following < len(positions) and positions[following] < end)
        is_secret = secret is not None and not text[done:start].strip() and token["number"] is None
        if is_meant or is_secret:
            yield text[done:start]
            yield _changed(token, change, secret if is_secret else None)
        else:
            yield text[done:end]
        done = end
        secret = change.secret_kind(_decoded(token)) if token["colon"] is not None and is_meant else None
    yield text[done:]


def _changed(token: re.Match[str], change: Change, secret: str | None) -> str:
    if token["number"] is not None:
        number = change.number(token["number"])
        return number if number == token["number"] else json.dumps(number)
    value = _decoded(token)
    if secret is not None:
        changed = change.secret(value, secret)
    else:
        changed = change.string(value) if token["colon"] is None else change.key(value)
    return token[0] if changed == value else json.dumps(changed) + (token["colon"] or "")


def _decoded(token: re.Match[str]) -> str:
    written = token["string"]
    return written if "\\" not in written else json.loads(f'"{written}"')
