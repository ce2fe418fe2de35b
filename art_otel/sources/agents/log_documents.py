"""LogDocuments: logs that are a JSON object a file or a line, each of which is whole by itself.

Invariant: one that is no object, or not what its format says, is quarantined and costs no other.
"""

import io
from collections.abc import Callable, Iterator
from functools import partial

import msgspec
from msgspec import UNSET

from art_otel.sources.agents.secrets import scrubbed
from art_otel.sources.format import Reading, Record
from art_otel.sources.json_text.documents import read_documents
from art_otel.sources.json_text.values import is_object
from art_otel.sources.refusals import Refused, too_long
from art_otel.spans import Span, Value


def document_reader(
    spans_of: Callable[[dict[str, Value]], Iterator[Span]],
) -> Callable[[io.BufferedReader, Reading], Iterator[Record]]:
    """Make what reads the spans of every object in a stream, without secrets. `spans_of` may raise Refused."""
    return partial(scrubbed, reads=partial(_read, spans_of=spans_of))


def _read(
    stream: io.BufferedReader, reading: Reading, *, spans_of: Callable[[dict[str, Value]], Iterator[Span]]
) -> Iterator[Record]:
    for document in read_documents(stream, reading.limits.max_message_bytes, msgspec.json.decode):
        place = f"{reading.path}:{document.line}"
        if document.data is None:
            yield too_long(place)
        elif document.value is UNSET or not is_object(document.value):
            yield Refused("not JSON", detail="is no JSON object").quarantine(place)
        else:
            try:
                yield from spans_of(document.value)
            except Refused as problem:
                yield problem.quarantine(place)
