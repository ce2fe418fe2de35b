"""Laws 1, 5, 6 and 7 over whole conversions of real recordings (law 3 is in trajectories/test_lineage.py)."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from art_otel import read_trajectories
from art_otel.engines import Sizes
from art_otel.trajectories import Trajectory
from tests.conversions import RECORDINGS, SMALL, convert_files
from tests.dumps import explode, joined, write_lines
from tests.examples import examples

pytestmark = pytest.mark.long

SLOW = settings(max_examples=examples(25), deadline=None, suppress_health_check=[HealthCheck.too_slow])
DUMPS = [
    RECORDINGS / "openinference" / "sync_tools.jsonl",
    RECORDINGS / "genai_span" / "error_retry.jsonl",
    RECORDINGS / "traceloop" / "responses_api.jsonl",
    RECORDINGS / "genai_event" / "n2.jsonl",
    RECORDINGS / "genai_event" / "n2.logs.jsonl",
    RECORDINGS / "otelv2_legacy" / "async_tools.jsonl",
    RECORDINGS / "otelv2_legacy" / "async_tools.logs.jsonl",
]
SINGLE = explode(*DUMPS)


def rows(out: Path) -> dict[tuple, Trajectory]:
    return {one.order: one for one in read_trajectories(out)}


def parts(out: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(out.glob("*.parquet"))}


@pytest.fixture(scope="module")
def undisturbed() -> dict[tuple, Trajectory]:
    with tempfile.TemporaryDirectory() as folder:
        convert_files(Path(folder) / "out", *DUMPS)
        return rows(Path(folder) / "out")


@st.composite
def deliveries(draw):
    """The same records in any order, some repeated, spread over files and lines in any way."""
    chance = draw(st.randoms(use_true_random=False))
    records = [record for record in SINGLE for _ in range(chance.choice([1, 1, 2, 3]))]
    chance.shuffle(records)
    files = [[] for _ in range(draw(st.integers(1, 8)))]
    for record in records:
        chance.choice(files).append(record)
    per_line = draw(st.integers(1, 6))
    return [[joined(file[at : at + per_line]) for at in range(0, len(file), per_line)] for file in files]


@SLOW
@given(files=deliveries(), sizes=st.sampled_from([SMALL, Sizes()]))
def test_order_split_and_repetition_change_no_row(undisturbed, files, sizes):
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder)
        for number, lines in enumerate(files):
            write_lines(base / "in" / f"{number}.jsonl", lines)
        _, report = convert_files(base / "out", base / "in", sizes=sizes, workers=1)
        assert rows(base / "out") == undisturbed
        assert report.spans.read >= report.spans.used


@SLOW
@given(missing=st.sets(st.integers(0, len(SINGLE) - 1)))
def test_whatever_is_missing_the_sums_hold(missing):
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder)
        write_lines(base / "in.jsonl", [record for at, record in enumerate(SINGLE) if at not in missing])
        trajectories, report = convert_files(base / "out", base / "in.jsonl")
        assert len(trajectories) == report.trajectories.total
        assert all(trajectory.complete != bool(trajectory.incomplete_reasons) for trajectory in trajectories)


RUBBISH = st.binary(max_size=200).map(lambda line: line.replace(b"\n", b" "))


@SLOW
@given(
    rubbish=st.lists(RUBBISH.filter(lambda line: not line.startswith(b"PAR1")), max_size=5),  # a file of it is Parquet
    at=st.data(),
)
def test_rubbish_between_lines_costs_no_span(undisturbed, rubbish, at):
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder)
        lines = write_lines(base / "in.jsonl", SINGLE).read_bytes().splitlines()
        for line in rubbish:
            lines.insert(at.draw(st.integers(0, len(lines))), line)
        (base / "in.jsonl").write_bytes(b"\n".join(lines))
        _, report = convert_files(base / "out", base / "in.jsonl")
        assert rows(base / "out") == undisturbed
        assert not report.spans.quarantined or rubbish


@pytest.mark.parametrize("workers", [1, 2])
def test_equal_records_give_equal_bytes(tmp_path, workers):
    """Whatever files they stand in, in which order, and whoever reads them."""
    convert_files(tmp_path / "one", *DUMPS, sizes=SMALL, workers=1)
    single = write_lines(tmp_path / "in.jsonl", reversed(SINGLE))
    convert_files(tmp_path / "two", single, sizes=SMALL, workers=workers)
    assert parts(tmp_path / "two") == parts(tmp_path / "one")
