"""kill -9 at random moments: what was acknowledged is in the spool once, and at most one torn line a file."""

import json
import multiprocessing
import os
import random
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.conversions import convert_files
from tests.examples import kills
from tests.tracing.apps import writer

pytestmark = pytest.mark.kill

KILLS = kills(100)
LONGEST = 0.05
"""Seconds, in which a writer ends about a hundred spans."""


def kill_one(folder: Path, number: int) -> set[tuple[str, str]]:
    """Start a writer, kill it at a random moment after its first span, and return what it acknowledged."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__, "art_otel.tracing.setup.configure", "art_otel.tracing.setup.recording"])
    reading, writing = context.Pipe(duplex=False)
    process = context.Process(target=_write, args=(folder, writing, number))
    process.start()
    writing.close()
    assert reading.poll(30), "the writer did not begin"
    time.sleep(random.Random(number).uniform(0, LONGEST))
    process.kill()
    process.join()
    told = b"".join(iter(lambda: os.read(reading.fileno(), 1 << 16), b"")).decode()
    reading.close()
    return {(line[:32], line[33:]) for line in told.splitlines()}


def _write(folder: Path, connection, seed: int) -> None:
    writer.write_forever(folder, connection.fileno(), seed)


def ended_spans(spool: Path) -> Counter:
    """How often each ended span is in a spool, whose files may each have one torn line, the last."""
    found: Counter = Counter()
    for path in spool.rglob("*.otlp.jsonl"):
        *lines, tail = path.read_bytes().split(b"\n")
        for line in lines:
            span = json.loads(line)["resourceSpans"][0]["scopeSpans"][0]["spans"][0]
            if "endTimeUnixNano" in span:
                found[span["traceId"], span["spanId"]] += 1
        assert not tail or tail[:1] == b"{"
        assert path.stat().st_mode & 0o777 == 0o600
    return found


def test_no_acknowledged_span_is_lost(tmp_path):
    with ThreadPoolExecutor(2) as pool:
        acknowledged = set().union(*pool.map(lambda number: kill_one(tmp_path / "art", number), range(KILLS)))
    ended = ended_spans(tmp_path / "art" / "spool")
    print(f"{KILLS} kills, {len(acknowledged)} acknowledged spans")
    assert acknowledged
    assert acknowledged <= ended.keys()
    assert set(ended.values()) == {1}
    trajectories, report = convert_files(tmp_path / "dataset", tmp_path / "art" / "spool")
    assert sum(report.spans.quarantined.values()) <= KILLS
    calls = {(call.trace_id, call.span_id) for found in trajectories for call in found.calls if call.end_ns}
    assert acknowledged <= calls
    assert Counter(found.status for found in trajectories)["unfinished"] <= KILLS
