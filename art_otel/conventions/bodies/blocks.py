"""Blocks: content parts that name their type by a key: Bedrock's Converse blocks and Gemini's parts.

https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_ContentBlock.html (`{"toolUse": {…}}`) and
https://ai.google.dev/api/caching#Part (`{"functionCall": {…}}`, in Python `function_call`; text with `thought`).
Invariant: `typed` writes a block as the part with a `type` that means the same, and None for what is no block.
"""

from collections.abc import Callable
from typing import Final, TypeAlias

from art_otel.conventions.attributes import values
from art_otel.spans import Value

_Fields: TypeAlias = dict[str, Value]

NOTHING: Final[_Fields] = {"type": "text", "text": ""}
"""What a block that only marks a place is written as."""


def typed(fields: _Fields) -> _Fields | None:
    """Write a block as a part with a `type`; Strands has the block's name as type and its value as content."""
    kind = values.text(fields.get("type"))
    name = next((key for key in fields if key in _WRITERS), None) if kind is None else kind
    if name is None or (kind is not None and kind not in _AS_TYPE):
        return None
    inner = values.mapping(fields.get(name, fields.get("content")))
    return None if inner is None else _WRITERS[name](inner)


def is_block(fields: _Fields) -> bool:
    """Whether an object is a block: a text alone, or one that its key names."""
    if list(fields) == ["text"]:
        return True
    return "type" not in fields and any(key in _WRITERS and isinstance(fields[key], dict) for key in fields)


_AS_TYPE: Final = frozenset(
    {"toolUse", "toolResult", "reasoningContent", "cachePoint", "guardContent", "citationsContent"}
)
"""Blocks whose names are also written as a type."""


def _tool_use(inner: _Fields) -> _Fields:
    return {"type": "tool_use", "id": inner.get("toolUseId"), "name": inner.get("name"), "input": inner.get("input")}


def _tool_result(inner: _Fields) -> _Fields:
    content = [_shown(values.mapping(entry) or {}) for entry in values.items(inner.get("content")) or ()]
    return {"type": "tool_result", "tool_use_id": inner.get("toolUseId"), "content": content}


def _shown(entry: _Fields) -> _Fields:
    """Write an object that a tool gave as the JSON that the model is shown."""
    return {"type": "text", "text": values.write_json(entry["json"])} if "json" in entry else entry


def _reasoning(inner: _Fields) -> _Fields:
    text = values.mapping(inner.get("reasoningText"))
    if text is None:
        return {"type": "redacted_thinking", **inner}
    return {"type": "reasoning", "content": text.get("text")}


def _function_call(inner: _Fields) -> _Fields:
    return {"type": "tool_call", "id": inner.get("id"), "name": inner.get("name"), "arguments": inner.get("args") or {}}


def _function_response(inner: _Fields) -> _Fields:
    return {"type": "tool_call_response", "id": inner.get("id"), "response": inner.get("response")}


def _inline_data(inner: _Fields) -> _Fields:
    mime_type = values.text(inner.get("mimeType")) or values.text(inner.get("mime_type"))
    modality = (mime_type or "").partition("/")[0]
    kind = modality if modality in ("image", "audio", "video") else "file"
    return {"type": kind, "data": inner.get("data"), "mime_type": mime_type}


def _file_data(inner: _Fields) -> _Fields:
    uri = values.text(inner.get("fileUri")) or values.text(inner.get("file_uri"))
    return {**_inline_data(inner), "data": None, "url": uri}


def _media(modality: str) -> Callable[[_Fields], _Fields]:
    def write(inner: _Fields) -> _Fields:
        source = values.mapping(inner.get("source")) or {}
        location = values.mapping(source.get("s3Location")) or {}
        extension = values.text(inner.get("format"))
        mime_type = f"{modality}/{extension}" if extension and modality != "file" else extension
        return {
            "type": modality,
            "data": source.get("bytes"),
            "url": location.get("uri"),
            "mime_type": mime_type,
            "filename": inner.get("name"),
        }

    return write


def _guarded(inner: _Fields) -> _Fields:
    return {"type": "text", "text": (values.mapping(inner.get("text")) or {}).get("text")}


def _cited(inner: _Fields) -> _Fields:
    texts = [(values.mapping(entry) or {}).get("text") for entry in values.items(inner.get("content")) or ()]
    return {"type": "text", "text": "".join(text for text in texts if isinstance(text, str))}


def _nothing(_: _Fields) -> _Fields:
    return NOTHING


_WRITERS: Final[dict[str, Callable[[_Fields], _Fields]]] = {
    "toolUse": _tool_use,
    "toolResult": _tool_result,
    "reasoningContent": _reasoning,
    "cachePoint": _nothing,
    "guardContent": _guarded,
    "citationsContent": _cited,
    "image": _media("image"),
    "video": _media("video"),
    "audio": _media("audio"),
    "document": _media("file"),
    "functionCall": _function_call,
    "function_call": _function_call,
    "functionResponse": _function_response,
    "function_response": _function_response,
    "inlineData": _inline_data,
    "inline_data": _inline_data,
    "fileData": _file_data,
    "file_data": _file_data,
}
