"""Uploaded content: files that spans name by reference, as they lie among dumps. They have no spans of their own.

They are read with the spans (`engines.referenced_content`); here they are only recognized, so that nobody is told of
files of an unknown format.
"""

import io
from collections.abc import Iterator
from typing import Final

from art_otel.sources.format import Reading, Record, SourceFormat
from art_otel.sources.json_documents import is_object, objects_in_head
from art_otel.spans import Value

_OF_PARTS: Final = {"type", "content", "index"}
_OF_TOOLS: Final = {"type", "name", "description", "parameters", "index"}
_NOTE: Final = "content that spans refer to: it is read with them"


def _detects(head: bytes) -> bool:
    objects = objects_in_head(head)
    return bool(objects) and all(map(_is_content, objects))


def _is_content(value: Value) -> bool:
    """Whether a value is a message, a part of the instructions or a definition of a tool, in OTel's GenAI schemas."""
    if not is_object(value):
        return False
    names = value.keys()
    is_part = names >= {"type", "content"} and names <= _OF_PARTS
    is_tool = value.get("type") == "function" and "name" in names and names <= _OF_TOOLS
    return names >= {"role", "parts"} or is_part or is_tool


def _reads(_: io.BufferedReader, reading: Reading) -> Iterator[Record]:
    reading.stats.note = _NOTE
    return iter(())


FORMAT: Final = SourceFormat(name="uploaded-content", detects=_detects, reads=_reads)
