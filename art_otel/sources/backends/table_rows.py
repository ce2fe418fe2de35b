"""Spans that a store writes as the rows of a table: from rows of Parquet to Span and Quarantined.

Invariant: a bad row is quarantined and costs no other.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

from msgspec.structs import replace

from art_otel.sources.backends.plain_records import PlainRecords, plain
from art_otel.sources.format import Reading, Record, Row
from art_otel.sources.otlp import messages as otlp
from art_otel.sources.otlp.records import Batch
from art_otel.sources.refusals import Refused
from art_otel.spans import Value

Translate: TypeAlias = Callable[[dict[str, Value], str], tuple[otlp.Span, Batch]]
"""Makes OTLP's message of a row's values; gets the place, may raise Refused."""


def read_rows(rows: Iterable[Row], reading: Reading, ids: tuple[str, str], translate: Translate) -> Iterator[Record]:
    """Every span of a table. `ids` are the columns of its trace id and span id."""
    records = PlainRecords(reading)
    for row in rows:
        place = f"{reading.path}:{row.number}"
        try:
            if row.problem is not None:
                raise row.problem
            span, batch = translate({name: value for name, value in row.values.items() if value is not None}, place)
        except Refused as problem:
            yield problem.damage(place, "span", records.known_ids(*(row.values.get(column) for column in ids)))
            continue
        resource, quarantined = records.resource(otlp.Resource(attributes=plain(batch.resource.attributes)), place)
        yield from quarantined
        yield from records.span(span, replace(batch, resource=resource))
