"""The JSON objects of a stream, each with its line, or why it is none."""

import io
from collections.abc import Iterator

import msgspec
from msgspec import UNSET

from art_otel.sources.json_text.documents import read_documents
from art_otel.sources.json_text.values import is_object
from art_otel.sources.refusals import Refused, too_long
from art_otel.spans import Value


def read_objects(stream: io.BufferedReader, limit: int) -> Iterator[tuple[int, dict[str, Value] | Refused]]:
    """Read every object, at most `limit` bytes long."""
    for document in read_documents(stream, limit, msgspec.json.decode):
        if document.data is None:
            yield document.line, Refused("over a limit", detail=too_long("").detail)
        elif document.value is UNSET or not is_object(document.value):
            yield document.line, Refused("not JSON", detail="is no JSON object")
        else:
            yield document.line, document.value
