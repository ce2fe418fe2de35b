"""Messages as HTML: what a notebook shows of a conversation.

Invariant: every text is escaped and cut, so that a page stays small and safe whatever was recorded.
"""

from collections.abc import Iterable
from html import escape
from typing import Final, Protocol

from art_otel.calls import ToolCall

_MAX_TEXT: Final = 500
_MAX_MESSAGES: Final = 50


class _Entry(Protocol):
    """A message of a history."""

    @property
    def role(self) -> str: ...
    @property
    def content(self) -> str | None: ...
    @property
    def tool_calls(self) -> tuple[ToolCall, ...]: ...
    @property
    def turn(self) -> int | None: ...


def messages_html(entries: Iterable[_Entry]) -> str:
    """A table of the messages; the sampled ones are marked."""
    listed = list(entries)
    rows = [_row(entry) for entry in listed[:_MAX_MESSAGES]]
    more = len(listed) - len(rows)
    rest = f"<p>… and {more} more messages</p>" if more else ""
    return f"<table>{''.join(rows)}</table>{rest}"


def cut(text: str) -> str:
    """The text, escaped, of a length that can be shown."""
    return escape(text if len(text) <= _MAX_TEXT else f"{text[:_MAX_TEXT]}…")


def _row(entry: _Entry) -> str:
    calls = [f"{call.name}({call.arguments})" for call in entry.tool_calls]
    text = cut("\n".join([*([entry.content] if entry.content else []), *calls]))
    role = escape(entry.role)
    role = f"<b>{role}</b>" if entry.turn is not None else role
    return f'<tr><td>{role}</td><td style="text-align:left;white-space:pre-wrap">{text}</td></tr>'
