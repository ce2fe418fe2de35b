"""The naive floor: decode, group by trace, parse every message list, keep calls whole, write from Python objects."""

import sys
from collections import defaultdict
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq


class _Value(msgspec.Struct, rename="camel"):
    string_value: str | None = None
    int_value: int | str | None = None
    double_value: float | None = None


class _Pair(msgspec.Struct):
    key: str
    value: _Value


class _Span(msgspec.Struct, rename="camel"):
    trace_id: str
    span_id: str
    start_time_unix_nano: str
    attributes: list[_Pair]


class _Scoped(msgspec.Struct):
    spans: list[_Span]


class _Batch(msgspec.Struct, rename="camel"):
    scope_spans: list[_Scoped]


class _Request(msgspec.Struct, rename="camel"):
    resource_spans: list[_Batch]


def convert(source: Path, out: Path) -> None:
    """Convert as somebody in a hurry would."""
    decoder = msgspec.json.Decoder(_Request)
    traces: dict[str, list[dict]] = defaultdict(list)
    with source.open("rb") as file:
        for line in file:
            for batch in decoder.decode(line).resource_spans:
                for scoped in batch.scope_spans:
                    for span in scoped.spans:
                        traces[span.trace_id].append(_call(span))
    rows = [{"trace_id": trace_id, "calls": calls} for trace_id, calls in traces.items()]
    pq.write_table(pa.Table.from_pylist(rows), out, compression="zstd", compression_level=3)


def _call(span: _Span) -> dict:
    attributes = {
        pair.key: pair.value.string_value or pair.value.double_value or pair.value.int_value for pair in span.attributes
    }
    for name in ("gen_ai.input.messages", "gen_ai.output.messages"):
        if name in attributes:
            attributes[name] = msgspec.json.decode(attributes[name])
    attributes["gen_ai.usage.input_tokens"] = str(attributes.get("gen_ai.usage.input_tokens"))
    attributes["gen_ai.usage.output_tokens"] = str(attributes.get("gen_ai.usage.output_tokens"))
    return {"span_id": span.span_id, "start": span.start_time_unix_nano, **attributes}


if __name__ == "__main__":
    convert(Path(sys.argv[1]), Path(sys.argv[2]))
