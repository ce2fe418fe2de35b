"""Chat rows: what several formats of conversations ask for, with the reason where a conversation cannot be a row.

Invariant: a record is what its format takes, or there is none and the reason is counted.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias, TypeGuard, TypeVar, cast

from art_otel.exporting.exporter import ExportStats
from art_otel.spans import Value
from art_otel.trajectories import ChatMessage

LaterMessages: TypeAlias = str
"""What becomes of messages behind the first of a pair's side: "keep", "truncate" or "drop" (the pair)."""

REFUSAL: Final = "refusals given as content"
MORE_THAN_TEXT: Final = "content that is more than text"
NO_ASSISTANT: Final = "a sampled message is not the assistant's"
NO_PROMPT: Final = "no prompt"
SAME: Final = "both answers are the same"
CUT: Final = "messages behind the first answer cut"

_ItemT = TypeVar("_ItemT")
_RecordT = TypeVar("_RecordT")


class FormatError(Exception):
    """The format has no words for it; the text is the reason, of a few for all."""


def encode_each(
    items: Iterable[_ItemT], encode: Callable[[_ItemT], _RecordT], stats: ExportStats
) -> Iterator[_RecordT]:
    """A record for each item, or its FormatError counted."""
    for item in items:
        try:
            yield encode(item)
        except FormatError as error:
            stats.skipped[str(error)] += 1


def text_message(message: Mapping[str, Any], stats: ExportStats) -> ChatMessage:
    """The message as chat templates take it: content is text, a refusal is content. Raises FormatError."""
    plain = {name: value for name, value in message.items() if name != "refusal"}
    if not isinstance(plain["content"], str | None):
        raise FormatError(MORE_THAN_TEXT)
    if not plain["content"] and "refusal" in message:
        stats.changed[REFUSAL] += 1
        plain["content"] = message["refusal"]
    plain["content"] = plain["content"] or ""
    return plain


def answers(side: Sequence[ChatMessage], later_messages: LaterMessages, stats: ExportStats) -> Sequence[ChatMessage]:
    """The messages of one side of a pair that are compared; the first is the assistant's. Raises FormatError."""
    if len(side) > 1 and later_messages == "drop":
        raise FormatError("more than one message a side")
    if len(side) > 1 and later_messages == "truncate":
        stats.changed[CUT] += 1
        side = side[:1]
    if side[0]["role"] != "assistant":
        raise FormatError(NO_ASSISTANT)
    return side


def is_function(tool: object) -> TypeGuard[dict[str, Value]]:
    """Whether a tool is a function with a name, as OpenAI defines one."""
    if not isinstance(tool, dict):
        return False
    definition = cast(dict[str, Any], tool)
    function: object = definition.get("function")
    if definition.get("type") != "function" or not isinstance(function, dict):
        return False
    return isinstance(cast(dict[str, Any], function).get("name"), str)
