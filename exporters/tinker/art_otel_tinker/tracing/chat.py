"""Chat: tinker-cookbook's messages as OpenAI's chat messages.

Invariant: what comes out shares nothing with what went in, so that what an environment does to its history later
changes nothing. Arguments of tool calls stay the text they are.

Source: `Message`, `ToolCall` and `ContentPart` of `tinker_cookbook.renderers.base` 0.6.1. A renderer's own
`to_openai_message` is not used: it refuses images, and some parse arguments or put reasoning into the text.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias, cast

JsonObject: TypeAlias = dict[str, Any]

_PLAIN: Final = ("tool_call_id", "name")


def chat_messages(messages: Sequence[Mapping[str, Any]]) -> list[JsonObject]:
    """Convert the messages of a conversation."""
    return [chat_message(message) for message in messages]


def chat_message(message: Mapping[str, Any]) -> JsonObject:
    """Convert one message. Tool calls that the renderer could not parse are left out."""
    converted: JsonObject = {"role": message["role"], "content": _content(message.get("content"))}
    converted |= {name: message[name] for name in _PLAIN if message.get(name) is not None}
    calls = [_tool_call(call) for call in message.get("tool_calls") or ()]
    return converted | ({"tool_calls": calls} if calls else {})


def unparsed_tool_calls(message: Mapping[str, Any]) -> list[JsonObject]:
    """The tool calls that the renderer could not parse: their text and what is wrong with it."""
    return [{"raw_text": call.raw_text, "error": call.error} for call in message.get("unparsed_tool_calls") or ()]


def chat_tools(owner: object) -> list[JsonObject] | None:
    """Return the tools of an environment, or of the message environment in it; None if neither lists any."""
    for holder in (owner, getattr(owner, "message_env", None)):
        tools: object = getattr(holder, "tools", None)
        if isinstance(tools, (list, tuple)):
            return [{"type": "function", "function": dict(tool.to_spec())} for tool in cast(list[Any], tools)]
    return None


def _content(content: Any) -> str | list[JsonObject] | None:  # noqa: ANN401 # text or parts
    return content if content is None or isinstance(content, str) else [_part(part) for part in content]


def _part(part: Mapping[str, Any]) -> JsonObject:
    kind = part["type"]
    if kind == "image":
        return {"type": "image_url", "image_url": {"url": _reference(part["image"])}}
    if kind == "audio":
        return {"type": "audio", "audio": _reference(part["audio"])}
    return {name: value for name, value in part.items() if isinstance(value, (str, int, float, bool))}


def _reference(media: object) -> str:
    """Where the picture or sound is; of one in memory only what it is."""
    return media if isinstance(media, str) else f"<{type(media).__name__}>"


def _tool_call(call: Any) -> JsonObject:  # noqa: ANN401 # ToolCall
    function = {"name": call.function.name, "arguments": call.function.arguments}
    return {"id": call.id, "type": "function", "function": function}
