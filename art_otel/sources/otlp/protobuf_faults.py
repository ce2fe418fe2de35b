"""What is wrong with a protobuf record that does not decode: protobuf itself only says that something is.

Invariant: the search never recurses and stops at the first fault, so that no depth of nesting harms it.
"""

from typing import Final

from art_otel.sources.otlp.protobuf_wire import LENGTH, Malformed, read_fields
from art_otel.sources.refusals import Refused

_TEXT: Final = "text"
_CONTAINERS: Final = frozenset({"ArrayValue", "KeyValueList"})

_FIELDS: Final[dict[str, dict[int, str]]] = {
    "Span": {3: _TEXT, 5: _TEXT, 9: "KeyValue", 11: "Event", 13: "Link", 15: "Status"},
    "Event": {2: _TEXT, 3: "KeyValue"},
    "Link": {3: _TEXT, 4: "KeyValue"},
    "Status": {2: _TEXT},
    "LogRecord": {3: _TEXT, 5: "AnyValue", 6: "KeyValue", 12: _TEXT},
    "Resource": {1: "KeyValue"},
    "InstrumentationScope": {1: _TEXT, 2: _TEXT, 3: "KeyValue"},
    "KeyValue": {1: _TEXT, 2: "AnyValue"},
    "AnyValue": {1: _TEXT, 5: "ArrayValue", 6: "KeyValueList"},
    "ArrayValue": {1: "AnyValue"},
    "KeyValueList": {1: "KeyValue"},
}
"""The fields with a length of every message inside a record: text, or the name of the message."""


def find_fault(data: bytes, name: str, max_depth: int) -> Refused | None:
    """The first fault of the message `name`; None when none is known."""
    todo = [(name, 0, len(data), 0)]
    while todo:
        message, start, end, depth = todo.pop()
        if depth > max_depth:
            return Refused("nested too deep", detail=f"more than {max_depth} lists and dicts deep")
        fields = _FIELDS[message]
        try:
            for field in read_fields(data, start, end):
                inner = fields.get(field.number) if field.wire_type == LENGTH else None
                if not field.whole:
                    return Refused("bad field", message, f"field {field.number} goes beyond its message")
                if inner == _TEXT and not _is_utf8(data[field.start : field.end]):
                    return Refused("invalid UTF-8", message, f"field {field.number}")
                if inner is not None and inner != _TEXT:
                    todo.append((inner, field.start, field.end, depth + (inner in _CONTAINERS)))
        except Malformed as error:
            return Refused("bad field", message, str(error))
    return None


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True
