"""Phoenix's dataframe of spans as Parquet, with nested attributes as in the export in tests/exports/."""

import pyarrow as pa

from tests.sources.writers.parquet import parquet
from tests.sources.writers.requests import iso, plain, spans_of

OPENINFERENCE = (
    "input.value",
    "llm.input_messages",
    "llm.invocation_parameters",
    "llm.model_name",
    "llm.output_messages",
    "llm.token_count.completion",
    "llm.token_count.prompt",
    "llm.token_count.total",
    "message.content",
    "message.role",
    "openinference.span.kind",
    "output.value",
)
"""Some of the names that Phoenix keeps in one piece."""


def write(requests: list[dict]) -> bytes:
    rows = [_row(written) for written in spans_of(requests)]
    names = dict.fromkeys(name for row in rows for name in row)
    columns = {name: _column([row.get(name) for row in rows]) for name in names}
    return parquet(pa.table(columns), row_group_size=2)


def _column(values: list) -> pa.Array:
    numbers = [value for value in values if value is not None]
    if numbers and all(type(value) is int for value in numbers) and len(numbers) < len(values):
        return pa.array([None if value is None else float(value) for value in values])  # as pandas does
    return pa.array(values)


def _row(written) -> dict:
    nested = _unflattened(written.attributes)
    return {
        "name": written.span["name"],
        "span_kind": written.attributes.get("openinference.span.kind", "UNKNOWN"),
        "parent_id": written.span.get("parentSpanId") or None,
        "start_time": pa.scalar(written.start // 1000 * 1000, pa.timestamp("ns", "UTC")),
        "end_time": pa.scalar(written.end // 1000 * 1000, pa.timestamp("ns", "UTC")),
        "status_code": written.status,
        "status_message": written.message,
        "events": [
            {
                "name": event["name"],
                "timestamp": iso(int(event["timeUnixNano"])),
                "attributes": _unflattened(plain(event.get("attributes"))) or None,
            }
            for event in written.span.get("events", ())
        ],
        "context.span_id": written.span["spanId"],
        "context.trace_id": written.span["traceId"],
        **{f"attributes.{name}": value for name, value in nested.items()},
    }


def _unflattened(attributes: dict) -> dict:
    tree: dict = {}
    for name, value in attributes.items():
        at = tree
        *path, last = _parts(name)
        for part in path:
            at = at.setdefault(part, {})
        at[last] = value
    return _listed(tree)


def _parts(name: str) -> list[str]:
    """The parts of a name: those that OpenInference names in one piece."""
    known = next((one for one in OPENINFERENCE if name == one or name.startswith(f"{one}.")), None)
    first, _, rest = name.partition(".")
    head, rest = (known, name[len(known) + 1 :]) if known else (first, rest)
    return [head, *_parts(rest)] if rest else [head]


def _listed(tree):
    """Objects whose names are numbers as lists, if what they hold are objects."""
    if not isinstance(tree, dict):
        return tree
    inner = {name: _listed(value) for name, value in tree.items()}
    if inner and all(name.isdigit() and isinstance(value, dict) for name, value in inner.items()):
        return [inner[name] for name in sorted(inner, key=int)]
    return inner
