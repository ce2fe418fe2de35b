"""LogDocuments: logs that are a JSON object a file or a line, each of which is whole by itself.

Invariant: one that is no object, or not what its format says, is quarantined and costs no other.
"""

import io
from collections.abc import Callable, Iterator
from functools import partial

from art_otel.sources.agents.secrets import scrubbed
from art_otel.sources.format import Reading, Record
from art_otel.sources.json_text.objects import read_objects
from art_otel.sources.refusals import Refused
from art_otel.spans import Span, Value


def document_reader(
    spans_of: Callable[[dict[str, Value]], Iterator[Span]],
) -> Callable[[io.BufferedReader, Reading], Iterator[Record]]:
    """Make what reads the spans of every object in a stream, without secrets. `spans_of` may raise Refused."""
    return partial(scrubbed, reads=partial(_read, spans_of=spans_of))


def _read(
    stream: io.BufferedReader, reading: Reading, *, spans_of: Callable[[dict[str, Value]], Iterator[Span]]
) -> Iterator[Record]:
    for line, value in read_objects(stream, reading.limits.max_message_bytes):
        try:
            if isinstance(value, Refused):
                raise value
            yield from spans_of(value)
        except Refused as problem:
            yield problem.quarantine(f"{reading.path}:{line}")
