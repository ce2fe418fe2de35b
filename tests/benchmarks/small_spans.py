"""Millions of small spans: seconds, spans a second, CPU seconds and the peak memory of the largest process.

uv run python -m tests.benchmarks.small_spans [--spans 10000000] [--trace-spans 20] [--calls 0] [--workers N]
"""

import argparse
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.benchmarks.convert import measure

LINE_SPANS = 512
_SPAN = (
    '{"traceId":"%032x","spanId":"%016x","parentSpanId":"%s","name":"%s","kind":%d,'
    '"startTimeUnixNano":"%d","endTimeUnixNano":"%d","attributes":[%s],"status":{}}'
)
_PLAIN = '{"key":"http.request.method","value":{"stringValue":"GET"}},{"key":"retry","value":{"intValue":"0"}}'
_CALL = (
    '{"key":"gen_ai.operation.name","value":{"stringValue":"chat"}},'
    '{"key":"gen_ai.request.model","value":{"stringValue":"m"}},'
    '{"key":"gen_ai.input.messages","value":{"stringValue":"[{\\"role\\":\\"user\\",\\"content\\":\\"%d\\"}]"}},'
    '{"key":"gen_ai.output.messages","value":{"stringValue":"[{\\"role\\":\\"assistant\\",\\"content\\":\\"a\\"}]"}}'
)


def write_small_spans(path: Path, spans: int, trace_spans: int, calls: int) -> None:
    """Write traces of `trace_spans` spans below one root, of which `calls` are chat calls."""
    with path.open("w", encoding="ascii") as file:
        line: list[str] = []
        for span in _spans(spans, trace_spans, calls):
            line.append(span)
            if len(line) == LINE_SPANS:
                file.write(_request(line))
                line = []
        if line:
            file.write(_request(line))


def _spans(spans: int, trace_spans: int, calls: int) -> Iterator[str]:
    for number in range(spans):
        trace, place = divmod(number, trace_spans)
        start = 10**18 + number * 1000
        is_call = 0 < place <= calls
        attributes = _CALL % number if is_call else _PLAIN
        parent = f"{1:016x}" if place else ""
        name, kind = ("chat m", 3) if is_call else ("GET /items", 1)
        yield _SPAN % (trace + 1, place + 1, parent, name, kind, start, start + 500, attributes)


def _request(spans: list[str]) -> str:
    scoped = '{"scope":{"name":"app"},"spans":[' + ",".join(spans) + "]}"
    return '{"resourceSpans":[{"resource":{},"scopeSpans":[' + scoped + "]}]}\n"


def main() -> None:
    """Generate, convert, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--spans", type=int, default=10_000_000)
    parser.add_argument("--trace-spans", type=int, default=20, help="spans of a trace")
    parser.add_argument("--calls", type=int, default=0, help="chat calls of a trace")
    parser.add_argument("--workers", help="processes (default: as convert decides)")
    parser.add_argument("--folder", type=Path, help="where the dump is written (default: temporary)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        dump, out = Path(folder) / "dump.jsonl", Path(folder) / "out"
        write_small_spans(dump, options.spans, options.trace_spans, options.calls)
        command = [sys.executable, "-m", "art_otel", "convert", str(dump), "--out", str(out)]
        found = measure(command + (["--workers", options.workers] if options.workers else []), out)
        print(
            f"{options.spans:,} spans, {dump.stat().st_size / 1e6:,.0f} MB: {found.wall:.1f} s,"
            f" {options.spans / found.wall:,.0f} spans/s, {found.cpu:.1f} CPU s, {found.peak_mb:.0f} MB"
        )


if __name__ == "__main__":
    main()
