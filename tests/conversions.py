"""Convert in a test: sources in, trajectories and report out, with law 6 checked every time; or built in memory."""

from collections.abc import Iterable
from pathlib import Path

from art_otel.engines import Conversion, Sizes, convert
from art_otel.sources import FileStats, find_inputs, read_file
from art_otel.spans import LogRecord, Quarantined, Span
from art_otel.store import ConversionReport, read_trajectories
from art_otel.trajectories import Trajectory
from art_otel.trajectories.build import SpanGroup, build_trajectories
from tests.dumps import Request, request_of, write_lines

SMALL = Sizes(slots=7, least_split=10_000, most_split=10_000, partition_bytes=20_000, part_bytes=1 << 30)
"""Many splits, slots and passes of little input; one part, as with the sizes of every day."""

FEW = Sizes(slots=7, part_bytes=20_000, partition_bytes=10_000)
"""Some parts, and few requests of a store."""

RECORDINGS = Path(__file__).parent / "recordings"


def convert_files(out: Path, *sources, **options) -> tuple[list[Trajectory], ConversionReport]:
    """Convert and read back."""
    report = convert(Conversion(sources=[str(source) for source in sources], out=out, **options))
    check_sums(report)
    return list(read_trajectories(out)), report


def check_sums(report: ConversionReport) -> None:
    """Law 6: every span, reward and call is counted once, and every incomplete trajectory says why."""
    spans, logs, calls, found = report.spans, report.logs, report.calls, report.trajectories
    assert report.rewards.given == report.rewards.delivered + sum(report.rewards.undeliverable.values())
    outcomes = spans.used + sum(spans.ignored.values()) + spans.duplicate + sum(spans.quarantined.values())
    assert spans.read + spans.again == outcomes + spans.waiting
    assert logs.read + logs.again == logs.joined + logs.duplicate + logs.without_span + sum(logs.quarantined.values())
    assert calls.total == calls.completed + calls.failed
    assert found.total - found.complete <= sum(found.incomplete.values())
    assert bool(found.total - found.complete) == bool(found.incomplete)


def with_logs(recording: Path) -> list[Path]:
    """A recording and, if it has one, its file of log records; both may be compressed."""
    files = (recording, recording.with_suffix(".logs.jsonl"))
    return [found for file in files for found in (file, file.with_name(f"{file.name}.gz")) if found.exists()]


def read_records(*paths: Path, stats: FileStats | None = None) -> list[Span | LogRecord]:
    """The records of dumps that have no bad ones; `stats` is the account of the last one."""
    records = [record for source in find_inputs(list(paths)) for record in read_file(source, stats or FileStats())]
    assert not any(isinstance(record, Quarantined) for record in records)
    return [record for record in records if isinstance(record, (Span, LogRecord))]


def built(records: Iterable[Span | LogRecord]) -> list[Trajectory]:
    """The trajectories of a file's records as one group, as a conversion gives them, at a tenth of its cost."""
    of_kinds: dict[type, list] = {Span: [], LogRecord: []}
    for record in records:
        of_kinds[type(record)].append(record)
    return list(build_trajectories(SpanGroup(spans=of_kinds[Span], logs=of_kinds[LogRecord])).trajectories)


def convert_spans(out: Path, *spans: Request, **options) -> tuple[list[Trajectory], ConversionReport]:
    """Convert OTLP spans, one request each."""
    dump = write_lines(out / "dump.jsonl", [request_of(span) for span in spans])
    return convert_files(out / "dataset", dump, **options)
