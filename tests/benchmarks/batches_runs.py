"""One run of art-otel for the benchmark of batches, in a process of its own; prints JSON.

python -m tests.benchmarks.batches_runs spans|through-parquet|parquet SOURCE
"""

import json
import resource
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path

import art_otel
from art_otel.engines import Conversion, convert
from art_otel.sources import FileStats, find_inputs, read_file
from art_otel.spans import Span
from art_otel.trajectories import SpanGroup, Trajectory, build_trajectories


def read_rollouts(dump: str) -> Iterator[list[Span]]:
    """The spans of each trace; those of a trace stand together."""
    records = (record for source in find_inputs([dump]) for record in read_file(source, FileStats()))
    for _, spans in groupby(records, key=lambda record: record.trace_id):
        yield list(spans)


def from_spans(dump: str) -> dict:
    """OTLP bytes to spans in memory to numpy batches."""
    warm_up(dump)
    trajectories: list[Trajectory] = []
    count, reading, assembling = 0, 0.0, 0.0
    begin = time.process_time()
    for spans in read_rollouts(dump):
        read = time.process_time()
        trajectories.extend(build_trajectories(SpanGroup(spans=spans)).trajectories)
        count += len(spans)
        reading += read - begin
        begin = time.process_time()
        assembling += begin - read
    report = read_batches(trajectories)
    batching = time.process_time() - begin
    return {"spans": count, "reading": reading, "assembling": assembling, "batching": batching, **report}


def through_parquet(dump: str) -> dict:
    """OTLP bytes to Parquet to numpy batches."""
    warm_up(dump)
    with tempfile.TemporaryDirectory(dir=Path(dump).parent) as folder:
        begin = time.process_time()
        converted = convert(Conversion(sources=[dump], out=Path(folder) / "out", workers=1))
        between = time.process_time()
        report = read_batches(Path(folder) / "out")
        end = time.process_time()
    return {"spans": converted.spans.read, "converting": between - begin, "batching": end - between, **report}


def from_parquet(dataset: str) -> dict:
    """Parquet to numpy batches, for the second time."""
    read_batches(dataset)
    begin = time.process_time()
    report = read_batches(dataset)
    batching = time.process_time() - begin
    return {"batching": batching, "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, **report}


def warm_up(dump: str) -> None:
    """Import what is imported at first use, and begin to read."""
    with tempfile.TemporaryDirectory(dir=Path(dump).parent) as folder:
        spans = next(read_rollouts(dump))
        dataset = Path(folder) / "one.parquet"
        art_otel.write_trajectories(build_trajectories(SpanGroup(spans=spans)).trajectories, dataset)
        read_batches(dataset)


def read_batches(source: str | Path | Iterable[Trajectory]) -> dict:
    """Go through all batches."""
    batches = art_otel.batches(source)
    for _ in batches:
        pass
    report = batches.report
    return {"completions": report.completions, "tokens": report.tokens, "trained_tokens": report.trained_tokens}


RUNS = {"spans": from_spans, "through-parquet": through_parquet, "parquet": from_parquet}

if __name__ == "__main__":
    print(json.dumps(RUNS[sys.argv[1]](sys.argv[2])))
