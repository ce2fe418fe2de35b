"""Content: what a message says, as text or as ATIF's content parts.

Invariant: ATIF knows text, and images and audio of some MIME types that lie at a URL or in a file. Recording bytes
become files beside the document; a part that ATIF has no words for is handed back and never dropped.

Source: `harbor.models.trajectories.content` of Harbor 0.25.0.
"""

import base64
import binascii
import hashlib
import mimetypes
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias
from urllib.parse import urlsplit

import msgspec

from art_otel.calls import Message
from art_otel.trajectories import is_text

JsonObject: TypeAlias = dict[str, Any]

_SUFFIXES: Final = {
    "image/jpeg": "jpg",
    "image/png": "png",
    "image/gif": "gif",
    "image/webp": "webp",
    "audio/wav": "wav",
    "audio/mpeg": "mp3",
    "audio/mp4": "m4a",
    "audio/aac": "aac",
    "audio/ogg": "ogg",
    "audio/flac": "flac",
    "audio/webm": "webm",
    "audio/aiff": "aiff",
}
_OTHER_NAMES: Final = {
    "image/jpg": "image/jpeg",
    "audio/mp3": "audio/mpeg",
    "audio/x-wav": "audio/wav",
    "audio/wave": "audio/wav",
    "audio/m4a": "audio/mp4",
    "audio/x-m4a": "audio/mp4",
    "audio/x-flac": "audio/flac",
    "audio/x-aiff": "audio/aiff",
}
_PARTS: Final = msgspec.json.Decoder(list[JsonObject])


@dataclass(frozen=True, kw_only=True, slots=True)
class Media:
    """Images and audio of one document: `files` by their path below the export, each once. `stem` is the document's."""

    stem: str
    files: dict[str, bytes] = field(default_factory=dict[str, bytes])

    def add(self, data: bytes, suffix: str) -> str:
        """The path of the file for these bytes."""
        path = f"{self.stem}.media/{hashlib.sha256(data).hexdigest()[:16]}.{suffix}"
        self.files[path] = data
        return path


def atif_content(message: Message, media: Media) -> tuple[str | list[JsonObject] | None, list[JsonObject | str]]:
    """The content, None where there is none, and the parts that ATIF has no words for.

    Parts that are no JSON objects for everybody (their numbers are too large, say) are handed back as one text.
    """
    if is_text(message) or message.parts is None:
        return message.content, []
    try:
        parts = _PARTS.decode(message.parts)
    except (msgspec.DecodeError, RecursionError):
        return message.content, [message.parts]
    content_parts: list[JsonObject] = []
    unsupported: list[JsonObject | str] = []
    for part in parts:
        content_part = _content_part(part, media)
        if content_part is None:
            unsupported.append(part)
        else:
            content_parts.append(content_part)
    if all(part["type"] == "text" for part in content_parts):
        return message.content, unsupported
    return content_parts, unsupported


def _content_part(part: JsonObject, media: Media) -> JsonObject | None:
    kind = part.get("type")
    if kind == "text" and isinstance(part.get("text"), str):
        return {"type": "text", "text": part["text"]}
    if kind not in ("image", "audio"):
        return None
    url, data = part.get("url"), part.get("data")
    media_type = _media_type(part.get("mime_type"), url)
    if media_type is None or not media_type.startswith(f"{kind}/"):
        return None
    if isinstance(data, str):
        path = _file(data, _SUFFIXES[media_type], media)
    else:
        # What is no URL would be a file here, and nobody recorded that.
        path = url if isinstance(url, str) and "://" in url else None
    return None if path is None else {"type": kind, "source": {"media_type": media_type, "path": path}}


def _media_type(declared: object, url: object) -> str | None:
    """A MIME type that ATIF has; where none was recorded, as the URL ends."""
    name = declared.strip().lower() if isinstance(declared, str) else _guessed(url) if isinstance(url, str) else ""
    name = _OTHER_NAMES.get(name, name)
    return name if name in _SUFFIXES else None


def _guessed(url: str) -> str:
    try:
        return mimetypes.guess_type(urlsplit(url).path)[0] or ""
    except ValueError:  # no URL, such as http://[x/a.png
        return ""


def _file(data: str, suffix: str, media: Media) -> str | None:
    try:
        return media.add(base64.b64decode(data, validate=True), suffix)
    except (binascii.Error, ValueError):
        return None
