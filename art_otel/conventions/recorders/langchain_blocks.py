"""LangChain's content blocks as OpenLLMetry writes them: text parts that hold the JSON of a block.

https://github.com/traceloop/openllmetry (`opentelemetry-instrumentation-langchain`, `span_utils.py`). Invariant: only
in that recorder's attributes is a text that is the JSON of a known block read as the block.
"""

from typing import Final

from art_otel.calls import Message
from art_otel.conventions.attributes import values
from art_otel.conventions.attributes.reader import AttributeReader
from art_otel.conventions.bodies import parts
from art_otel.conventions.bodies.message import is_part_type
from art_otel.conventions.bodies.messages import parse
from art_otel.errors import ParseError
from art_otel.spans import Value

SCOPE: Final = "opentelemetry.instrumentation.langchain"

_BLOCK: Final = '"{\\"'
"""How a JSON text that is a text in JSON begins."""


def may_have_blocks(scope: str, json_text: Value) -> bool:
    """Whether an attribute of a recorder's span may have blocks in its texts."""
    return scope == SCOPE and isinstance(json_text, str) and _BLOCK in json_text


def read_blocks(reader: AttributeReader, name: str) -> tuple[Message, ...] | None:
    """Read the message list that attribute `name` holds, whose texts may be blocks; None when it cannot be parsed."""
    messages = reader.structured(name)
    entries = values.items(messages)
    try:
        return parse(messages if entries is None else [with_blocks(entry) for entry in entries])
    except ParseError:
        return None


def with_blocks(entry: Value) -> Value:
    """A message in whose parts texts that are blocks are those blocks."""
    fields = values.mapping(entry) or {}
    content = values.items(fields.get("parts"))
    return entry if content is None else {**fields, "parts": [_block(part) for part in content]}


def _block(part: Value) -> Value:
    fields = values.mapping(part) or {}
    text = fields.get("content")
    if fields.get("type") != "text" or not isinstance(text, str) or not text.startswith('{"'):
        return part
    try:
        decoded, is_whole = values.decode(text)
    except ParseError:
        return part
    block = values.mapping(decoded)
    if block is None or not is_whole or block.get("type") == "text":
        return part
    return block if is_part_type(block.get("type")) or parts.is_known(block) else part
