"""Parts: the content parts of a message that are not text, in one spelling.

Invariant: an image is `{"type": "image", "url" | "data", "mime_type", …}` whether OpenAI's `image_url` or
`input_image`, GenAI's `uri`, `blob` or `file`, Anthropic's `source` or OpenInference's `message_content.image` recorded
it; likewise for audio, video and files. A part of an unknown type stays as it was. A block is a part that names its
type by a key: of Bedrock's Converse
(https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_ContentBlock.html, `{"toolUse": {…}}`) or Gemini's
(https://ai.google.dev/api/caching#Part, `{"functionCall": {…}}`, in Python `function_call`; text with `thought`);
`typed_block` writes it as the part with a `type` that means the same.
"""

import base64
import re
from collections.abc import Callable
from typing import Final, TypeAlias

from art_otel.conventions import values
from art_otel.spans import Value

_MODALITIES: Final = {
    "image": "image",
    "image_url": "image",
    "input_image": "image",
    "audio": "audio",
    "input_audio": "audio",
    "video": "video",
    "video_url": "video",
    "file": "file",
    "input_file": "file",
    "document": "file",
    "blob": "file",
    "uri": "file",
}
_OTHERS: Final = frozenset(
    {
        *("text", "redacted_thinking", "redacted_reasoning", "item_reference", "computer_screenshot"),
        *("server_tool_use", "server_tool_call", "server_tool_call_response", "mcp_tool_use", "mcp_tool_result"),
        *("web_search_tool_result", "web_fetch_tool_result", "code_execution_tool_result", "tool_search_tool_result"),
        *("bash_code_execution_tool_result", "text_editor_code_execution_tool_result", "container_upload"),
        *("web_search_call", "file_search_call", "code_interpreter_call", "image_generation_call", "computer_call"),
        *("computer_call_output", "local_shell_call", "local_shell_call_output", "shell_call", "shell_call_output"),
        *("apply_patch_call", "apply_patch_call_output", "mcp_call", "mcp_list_tools", "mcp_approval_request"),
        *("mcp_approval_response", "search_result", "executable_code", "code_execution_result", "guard_content"),
    }
)
"""Parts of servers that have no other spelling here: they stay as they were."""

_NESTED: Final = ("image_url", "image", "input_audio", "audio", "video_url", "file", "source")
_DATA_URL: Final = re.compile(r"data:([^;,]+)?(?:;[^,]*)?;base64,(.*)", re.DOTALL)


_KINDS: Final = {
    "image-url": "image",
    "audio-url": "audio",
    "video-url": "video",
    "document-url": "file",
    "binary": "blob",
}
"""What older pydantic-ai calls parts; it calls the others as everybody does."""


def of_kind(part: dict[str, Value]) -> dict[str, Value]:
    """Write a part of older pydantic-ai, which names its type `kind`, as GenAI does."""
    kind = values.text(part.get("kind")) or ""
    fields = {"data" if name == "binary_content" else name: value for name, value in part.items() if name != "kind"}
    return {"type": _KINDS.get(kind, kind), **fields}


def canonical(part: dict[str, Value]) -> dict[str, Value]:
    """Write a part that is no text, reasoning, tool call or answer in one spelling. Raises ParseError when too deep."""
    modality = _MODALITIES.get(str(part.get("type")))
    if modality is None:
        return {str(name): values.json_safe(value) for name, value in part.items()}
    fields = _flat(part)
    return {"type": values.text(part.get("modality")) or modality, **_location(fields), **_other_fields(fields)}


def is_known(part: dict[str, Value]) -> bool:
    """Whether a part, as `canonical` wrote it, is of a type that some API documents."""
    kind = part.get("type")
    return isinstance(kind, str) and (kind in _MODALITIES or kind in _OTHERS or is_compaction(part))


def is_compaction(part: dict[str, Value]) -> bool:
    """Whether a part stands for a history that the server compacted, or asks it to.

    `compaction` (OpenAI, Anthropic, GenAI), and OpenAI's `compaction_trigger`, `compaction_summary` and
    `context_compaction`. Also where its content is a readable summary: how the model was shown it is not known.
    """
    return "compaction" in str(part.get("type"))


def _flat(part: dict[str, Value]) -> dict[str, Value]:
    """Lift the object or URL that a part has below its own name into the part."""
    fields = dict(part)
    for name in _NESTED:
        inner = fields.pop(name, None)
        if isinstance(inner, str):
            fields["url"] = inner
        else:
            fields |= values.mapping(inner) or {}
    return fields


def _location(fields: dict[str, Value]) -> dict[str, Value]:
    """Where the bytes are: a URL, or base64 data with its MIME type."""
    url = _first(fields, "url", "uri", "file_url")
    data = _first(fields, "data", "content", "file_data")
    mime_type = _first(fields, "mime_type", "media_type", "mimeType")
    if mime_type is None and (audio_format := _first(fields, "format")) is not None:
        mime_type = f"audio/{audio_format}"
    inline = next((match for text in (url, data) if text and (match := _DATA_URL.fullmatch(text))), None)
    if inline is not None:
        url, data, mime_type = None, inline[2], inline[1] or mime_type
    location = {"url": url, "data": data, "mime_type": mime_type}
    return {name: value for name, value in location.items() if value is not None}


def _other_fields(fields: dict[str, Value]) -> dict[str, Value]:
    names = ("id", "file_id", "filename", "detail", "transcript")
    return {name: text for name in names if (text := values.text(fields.get(name))) is not None}


def _first(fields: dict[str, Value], *names: str) -> str | None:
    for name in names:
        value = fields.get(name)
        if isinstance(value, bytes):
            return base64.b64encode(value).decode()
        if isinstance(value, str) and value:
            return value
    return None


_PartFields: TypeAlias = dict[str, Value]

NOTHING: Final[_PartFields] = {"type": "text", "text": ""}
"""What a block that only marks a place is written as."""


def typed_block(fields: _PartFields) -> _PartFields | None:
    """Write a block as a part with a `type`; Strands has the block's name as type and its value as content."""
    kind = values.text(fields.get("type"))
    name = next((key for key in fields if key in _WRITERS), None) if kind is None else kind
    if name is None or (kind is not None and kind not in _AS_TYPE):
        return None
    inner = values.mapping(fields.get(name, fields.get("content")))
    return None if inner is None else _WRITERS[name](inner)


def is_block(fields: _PartFields) -> bool:
    """Whether an object is a block: a text alone, or one that its key names."""
    if list(fields) == ["text"]:
        return True
    return "type" not in fields and any(key in _WRITERS and isinstance(fields[key], dict) for key in fields)


_AS_TYPE: Final = frozenset(
    {"toolUse", "toolResult", "reasoningContent", "cachePoint", "guardContent", "citationsContent"}
)
"""Blocks whose names are also written as a type."""


def _tool_use(inner: _PartFields) -> _PartFields:
    return {"type": "tool_use", "id": inner.get("toolUseId"), "name": inner.get("name"), "input": inner.get("input")}


def _tool_result(inner: _PartFields) -> _PartFields:
    content = [_shown(values.mapping(entry) or {}) for entry in values.items(inner.get("content")) or ()]
    return {"type": "tool_result", "tool_use_id": inner.get("toolUseId"), "content": content}


def _shown(entry: _PartFields) -> _PartFields:
    """Write an object that a tool gave as the JSON that the model is shown."""
    return {"type": "text", "text": values.spaced_json(entry["json"])} if "json" in entry else entry


def _reasoning(inner: _PartFields) -> _PartFields:
    text = values.mapping(inner.get("reasoningText"))
    if text is None:
        return {"type": "redacted_thinking", **inner}
    return {"type": "reasoning", "content": text.get("text")}


def _function_call(inner: _PartFields) -> _PartFields:
    return {"type": "tool_call", "id": inner.get("id"), "name": inner.get("name"), "arguments": inner.get("args") or {}}


def _function_response(inner: _PartFields) -> _PartFields:
    return {"type": "tool_call_response", "id": inner.get("id"), "response": inner.get("response")}


def _inline_data(inner: _PartFields) -> _PartFields:
    mime_type = values.text(inner.get("mimeType")) or values.text(inner.get("mime_type"))
    modality = (mime_type or "").partition("/")[0]
    kind = modality if modality in ("image", "audio", "video") else "file"
    return {"type": kind, "data": inner.get("data"), "mime_type": mime_type}


def _file_data(inner: _PartFields) -> _PartFields:
    uri = values.text(inner.get("fileUri")) or values.text(inner.get("file_uri"))
    return {**_inline_data(inner), "data": None, "url": uri}


def _media(modality: str) -> Callable[[_PartFields], _PartFields]:
    def write(inner: _PartFields) -> _PartFields:
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


def _guarded(inner: _PartFields) -> _PartFields:
    return {"type": "text", "text": (values.mapping(inner.get("text")) or {}).get("text")}


def _cited(inner: _PartFields) -> _PartFields:
    texts = [(values.mapping(entry) or {}).get("text") for entry in values.items(inner.get("content")) or ()]
    return {"type": "text", "text": "".join(text for text in texts if isinstance(text, str))}


def _nothing(_: _PartFields) -> _PartFields:
    return NOTHING


_WRITERS: Final[dict[str, Callable[[_PartFields], _PartFields]]] = {
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
