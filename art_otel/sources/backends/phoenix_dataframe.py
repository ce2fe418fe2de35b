"""Phoenix dataframe: what `get_spans_dataframe` returns, saved with `to_parquet`.

A column an attribute (`attributes.llm.model_name`), nested below what OpenInference names, so that they are flattened
back. pandas makes whole numbers of a column with gaps doubles (`11.0`), and null and NaN mean that there is no value.
A row becomes a span of `phoenix_rest`. Invariant: as `store_spans`.

Source of the format: `phoenix/session/client.py` and `phoenix/trace/attributes.py` of arize-phoenix.
"""

from functools import partial
from typing import Final

from art_otel.sources.backends.phoenix_rest import PhoenixSpan, to_otlp
from art_otel.sources.backends.store_spans import Translator, read_rows, read_spans
from art_otel.sources.format import SourceFormat, Table
from art_otel.sources.json_documents import head_detector
from art_otel.spans import Value

_TRACE_ID: Final = "context.trace_id"
_SPAN_ID: Final = "context.span_id"
_IDS: Final = frozenset({_TRACE_ID, _SPAN_ID})
_PREFIX: Final = "attributes."


def _spans_of(row: dict[str, Value]) -> tuple[dict[str, Value]]:
    attributes = {name.removeprefix(_PREFIX): value for name, value in row.items() if name.startswith(_PREFIX)}
    context = {"trace_id": row.get(_TRACE_ID), "span_id": row.get(_SPAN_ID)}
    return ({**row, "record": "span", "context": context, "attributes": attributes},)


_TRANSLATOR: Final = Translator(message=PhoenixSpan, to_otlp=to_otlp, spans_of=_spans_of)

FORMAT: Final = SourceFormat(
    name="phoenix-dataframe",
    detects=head_detector(lambda row: row.keys() >= _IDS),
    reads=partial(read_spans, translator=_TRANSLATOR),
    not_in_format=(
        "resource attributes",
        "instrumentation scope",
        "span kind",
        "links",
        "nanoseconds",
        "whether a number was whole",
        "more than ten digits of numbers in lists",
        "dropped counts",
    ),
    table=Table(
        ids=_IDS,
        others=frozenset(PhoenixSpan.__struct_fields__) - {"context", "attributes"},
        prefix=_PREFIX,
        reads=partial(read_rows, translator=_TRANSLATOR),
    ),
)
