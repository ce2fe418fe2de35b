"""Laws: what has to hold of a conversion, whatever stands in the dump.

Invariant: `check` raises for what breaks a law, and nothing else. What it raises is the finding.
"""

import json
import tempfile
from functools import cache
from pathlib import Path

from art_otel.engines import Conversion, Sizes, convert
from art_otel.errors import SourceError
from art_otel.sources import FileStats, find_inputs, read_file
from art_otel.sources.files.inputs import HEAD_BYTES, InputFile
from art_otel.sources.format import Record, detect_format
from art_otel.sources.reader import plan_splits
from art_otel.store import ConversionReport, read_trajectories, write_trajectories
from art_otel.trajectories import Trajectory, histories, rollout_traces, trajectory_json
from tests.conversions import RECORDINGS, check_sums

TOLD_BYTES = 256
"""Text is told from protobuf by its first bytes."""

NEIGHBOUR_TRACE = "fedcba98765432100123456789abcdef"


def check(data: bytes, again: bytes, *, alone: bool) -> None:
    """Convert the dump, beside a sound neighbour or alone, and hold the result against the laws.

    `again` holds the same records, perhaps in another order.
    """
    with tempfile.TemporaryDirectory(prefix="art-otel-fuzz-") as folder:
        base = Path(folder)
        (base / "damaged.dump").write_bytes(data)
        sources = [base / "damaged.dump"]
        _check_parts(sources[0])
        _check_blank_lines(sources[0])
        if not alone:
            (base / "neighbour.jsonl").write_bytes(neighbour())
            sources.append(base / "neighbour.jsonl")
        try:
            report = _converted(sources, base / "out")
        except SourceError as error:
            _check_refusal(str(error), alone=alone)
            return
        found = _check_dataset(base, report)
        if not alone:
            _check_neighbour(found, report)
        (base / "damaged.dump").write_bytes(again)
        second = _converted(sources[::-1], base / "again", Sizes(least_split=20_000, most_split=20_000))
        _check_equal(report, second, base)


def _check_refusal(message: str, *, alone: bool) -> None:
    assert alone, "a file that cannot be read stopped its neighbour"
    assert "damaged.dump" in message, "an error that does not name its file"


def _converted(sources: list[Path], out: Path, sizes: Sizes | None = None) -> ConversionReport:
    report = convert(Conversion(sources=[str(source) for source in sources], out=out, sizes=sizes or Sizes()))
    check_sums(report)
    json.loads((out / "_report.json").read_bytes(), parse_constant=_no_constant)
    return report


def _no_constant(constant: str) -> None:
    raise AssertionError(f"{constant} in the report")


def _check_dataset(base: Path, report: ConversionReport) -> list[Trajectory]:
    """What was written can be read, counted, written again, and used."""
    found = list(read_trajectories(base / "out"))
    assert len(found) == report.trajectories.total, "another number of trajectories than reported"
    assert sum(trajectory.complete for trajectory in found) == report.trajectories.complete, "complete is miscounted"
    write_trajectories(found, base / "copy.parquet")
    assert list(read_trajectories(base / "copy.parquet")) == found, "another trajectory after one more round trip"
    for trajectory in found:
        json.dumps(trajectory_json(trajectory), allow_nan=False).encode()
        rollout_traces(trajectory)
        _check_turns(trajectory)
    return found


def _check_turns(trajectory: Trajectory) -> None:
    """Turns are a forest, and each sampled message is trained at most once."""
    trained: list[int] = []
    for at, turn in enumerate(trajectory.turns):
        assert turn.parent is None or turn.parent < at, "a turn before its parent"
        both = turn.token_ids is not None and turn.logprobs is not None
        assert not both or len(turn.token_ids) == len(turn.logprobs), "ids and logprobs of two lengths"
    for history in histories(trajectory):
        trained += [one.turn for one in history.messages or () if one.trained and one.turn is not None]
    assert len(trained) == len(set(trained)), "a message is trained twice"


def _check_neighbour(found: list[Trajectory], report: ConversionReport) -> None:
    beside = [trajectory for trajectory in found if trajectory.trace_id == NEIGHBOUR_TRACE]
    assert beside == neighbour_alone(), "the neighbour changed"
    mine = [file for file in report.files if file.path.endswith("neighbour.jsonl")]
    assert [file.error for file in mine] == [None], "the neighbour could not be read"


def _check_equal(report: ConversionReport, again: ConversionReport, base: Path) -> None:
    for part in ("spans", "logs", "calls", "trajectories"):
        assert getattr(report, part) == getattr(again, part), f"{part} are counted otherwise in another order"
    first, second = (
        {path.name: path.read_bytes() for path in (base / out).glob("*.parquet")} for out in ("out", "again")
    )
    assert first == second, "other bytes in another order and with small buckets"


def _check_blank_lines(dump: Path) -> None:
    """Blank lines before a text are nothing."""
    text = dump.read_bytes()
    known = detect_format(text[:HEAD_BYTES])
    if known is not None and text[:1] in (b"{", b"[") and _is_printable(text[:TOLD_BYTES]):
        assert detect_format(b"\n\n\n" + text[:HEAD_BYTES]) is known, "another format behind blank lines"


def _is_printable(text: bytes) -> bool:
    return text.translate(None, b"\t\r\n").decode("latin-1").isprintable()


def _check_parts(dump: Path) -> None:
    """A file that several processes share gives the records that one process reads."""
    inputs = find_inputs([dump])
    splits = plan_splits(inputs, -(-(inputs[0].size or 1) // 3))
    if len(splits) < 2:
        return
    try:
        whole = _records(inputs[0])
    except SourceError:
        return
    pieces = [record for split in splits for source in split for record in _records(source)]
    assert pieces == whole, "other records when several processes read the file"


def _records(source: InputFile) -> list[Record]:
    return list(read_file(source, FileStats()))


@cache
def neighbour() -> bytes:
    """A recording under ids of its own."""
    text = (RECORDINGS / "openinference" / "sync_tools.jsonl").read_text(encoding="utf-8")
    span = json.loads(text.splitlines()[0])["resourceSpans"][0]["scopeSpans"][0]["spans"][0]
    text = text.replace(span["traceId"], NEIGHBOUR_TRACE).replace("chatcmpl-", "neighbour-")
    pairs = json.loads(text.splitlines()[-1])["resourceSpans"][0]["scopeSpans"][-1]["spans"][-1]["attributes"]
    rollout = next((pair["value"]["stringValue"] for pair in pairs if pair["key"] == "art.rollout.id"), None)
    return (text if rollout is None else text.replace(rollout, "the neighbour")).encode()


@cache
def neighbour_alone() -> list[Trajectory]:
    """What the neighbour gives without anybody beside it."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "neighbour.jsonl").write_bytes(neighbour())
        _converted([Path(folder) / "neighbour.jsonl"], Path(folder) / "out")
        return list(read_trajectories(Path(folder) / "out"))
