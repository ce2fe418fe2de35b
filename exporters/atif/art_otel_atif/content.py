"""Content: what a message says, as text or as ATIF's content parts.

Invariant: ATIF has text, and images and audio of some MIME types at a URL or in a file. Recorded bytes become files
beside the document. A part that ATIF cannot hold is handed back and never dropped.

Source: `harbor.models.trajectories.content` of Harbor 0.25.0.
"""

import base64
import binascii
import hashlib
import mimetypes
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

import msgspec

from art_otel.calls import Message
from art_otel.exporting import JsonObject
from art_otel.trajectories import is_text

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
    """The images and audio of one document. `files` has each once, by its path below the export.

    `stem` is the name of the document's file without its suffix.
    """

    stem: str
    files: dict[str, bytes] = field(default_factory=dict[str, bytes])

    def add(self, data: bytes, suffix: str) -> str:
        """Add a file with these bytes and return its path."""
        path = f"{self.stem}.media/{hashlib.sha256(data).hexdigest()[:16]}.{suffix}"
        self.files[path] = data
        return path


def atif_content(message: Message, media: Media) -> tuple[str | list[JsonObject] | None, list[JsonObject | str]]:
    """Return the content, which is None if there is none, and the parts that ATIF cannot hold.

    If the parts are not valid JSON for every reader (for example, a number is too large), they are handed back as one
    text.
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
        try:
            path = media.add(base64.b64decode(data, validate=True), _SUFFIXES[media_type])
        except (binascii.Error, ValueError):
            return None
    else:
        # Without "://" it is the path of a file that was not recorded.
        path = url if isinstance(url, str) and "://" in url else None
    return None if path is None else {"type": kind, "source": {"media_type": media_type, "path": path}}


def _media_type(declared: object, url: object) -> str | None:
    """Return a MIME type that ATIF has, else None. If none was recorded, the suffix of the URL tells it."""
    name = ""
    if isinstance(declared, str):
        name = declared.strip().lower()
    elif isinstance(url, str):
        with suppress(ValueError):  # not a URL, such as http://[x/a.png
            name = mimetypes.guess_type(urlsplit(url).path)[0] or ""
    name = _OTHER_NAMES.get(name, name)
    return name if name in _SUFFIXES else None
