"""Parts: the content parts of a message that are not text, in one spelling.

Invariant: an image is `{"type": "image", "url" | "data", "mime_type", …}` whether OpenAI's `image_url` or
`input_image`, GenAI's `uri`, `blob` or `file`, Anthropic's `source` or OpenInference's `message_content.image` recorded
it; likewise for audio, video and files. A part of an unknown type stays as it was.
"""

import base64
import re
from typing import Final

from art_otel.conventions.attributes import values
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
        *("text", "redacted_thinking", "redacted_reasoning", "compaction", "item_reference", "computer_screenshot"),
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
    return isinstance(kind, str) and (kind in _MODALITIES or kind in _OTHERS)


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
