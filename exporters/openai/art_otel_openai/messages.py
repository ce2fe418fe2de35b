"""Messages: a chat message as OpenAI's fine-tuning takes it.

Invariant: only fields and parts that OpenAI's schema has for the role; what cannot be said so raises FormatError.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

from art_otel.exporting import ExportStats, FormatError, Value, is_function

JsonObject: TypeAlias = dict[str, Any]

_FIELDS: Final[Mapping[str, tuple[str, ...]]] = {
    "system": ("name",),
    "developer": ("name",),
    "user": ("name",),
    "assistant": ("name", "refusal", "tool_calls"),
    "tool": ("tool_call_id",),
}
_PARTS: Final[Mapping[str, tuple[str, ...]]] = {
    "user": ("text", "image_url", "input_audio", "file"),
    "assistant": ("text", "refusal"),
}

NO_REASONING: Final = "reasoning left out of messages"
NO_NAME: Final = "name left out of tool messages"
EMPTY: Final = "messages without content given empty text"


def openai_message(message: Mapping[str, Any], stats: ExportStats) -> JsonObject:
    """The message in fields that OpenAI takes. Raises FormatError."""
    role = message["role"]
    if role not in _FIELDS:
        raise FormatError(f"a message of a role that OpenAI does not have: {role!r:.40}")
    fields: JsonObject = {"role": role, "content": _content(message["content"], role)}
    fields |= {name: message[name] for name in _FIELDS[role] if name in message}
    if role == "tool" and "tool_call_id" not in fields:
        raise FormatError("a tool message without a tool_call_id")
    if any("id" not in call for call in fields.get("tool_calls", ())):
        raise FormatError("a tool call without an id")
    if "reasoning_content" in message:
        stats.changed[NO_REASONING] += 1
    if role == "tool" and "name" in message:
        stats.changed[NO_NAME] += 1
    if fields["content"] is None and not ("tool_calls" in fields or "refusal" in fields):
        stats.changed[EMPTY] += 1
        fields["content"] = ""
    return fields


def openai_tools(tools: Sequence[Value]) -> list[JsonObject]:
    """The tools, which have to be functions. Raises FormatError."""
    functions: list[JsonObject] = []
    for tool in tools:
        if not is_function(tool):
            raise FormatError("a tool that is no function")
        functions.append(tool)
    return functions


def _content(content: str | Sequence[JsonObject] | None, role: str) -> Any:  # noqa: ANN401 # text or parts
    if content is not None and not isinstance(content, str):
        for part in content:
            if part.get("type") not in _PARTS.get(role, ("text",)):
                raise FormatError(f"content that OpenAI does not take in {role} messages: {part.get('type')!r:.40}")
    return content
