"""Law 9: no output replaces or removes a file that art-otel did not write, or that it reads."""

import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from art_otel.engines import Conversion, convert
from art_otel.errors import SourceError, UsageError
from art_otel.store import write_trajectories
from tests.conversions import RECORDINGS, convert_files
from tests.store.test_files import ids, rollouts

CLICKHOUSE = Path(__file__).parent.parent / "exports" / "clickhouse_otel_traces.parquet"
SYNC = RECORDINGS / "openinference" / "sync_tools.jsonl"


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def export(tmp_path) -> Path:
    """A ClickHouse export in two parts that are named as ours are."""
    folder = tmp_path / "src"
    folder.mkdir()
    rows = pq.read_table(CLICKHOUSE)
    half = rows.num_rows // 2
    pq.write_table(rows.slice(0, half), folder / "part-00000.parquet")
    pq.write_table(rows.slice(half), folder / "part-00001.parquet")
    return folder


@pytest.fixture
def link(tmp_path, export) -> Path:
    (tmp_path / "link").symlink_to(export)
    return tmp_path / "link"


@pytest.mark.parametrize(
    ("source", "out"),
    [("src", "src"), (".", "src"), ("link", "src"), ("src", "link"), ("s*/part-*", "src"), ("src/../src", "src")],
)
@pytest.mark.usefixtures("link")
def test_parts_of_others_in_the_output_folder_are_refused_and_untouched(tmp_path, export, monkeypatch, source, out):
    monkeypatch.chdir(tmp_path)
    before = contents(export)
    with pytest.raises(UsageError, match=r"part-00000\.parquet: was not written by art-otel .*write elsewhere"):
        convert(Conversion(sources=[source], out=Path(out)))
    assert contents(export) == before


def test_an_export_is_converted_into_a_folder_inside_it_again_and_again(export):
    before = contents(export)
    first, _ = convert_files(export / "out", export)
    again, report = convert_files(export / "out", export)
    assert again == first != []
    assert len(report.files) == 2
    assert {name: body for name, body in contents(export).items() if not name.startswith("out/")} == before


@pytest.mark.parametrize("body", [b"", b"PAR1 torn", CLICKHOUSE.read_bytes()])
def test_a_single_file_of_others_is_not_replaced(tmp_path, body):
    file = tmp_path / "x.parquet"
    file.write_bytes(body)
    with pytest.raises(UsageError, match=r"x\.parquet: was not written by art-otel"):
        write_trajectories(rollouts(1), file)
    assert contents(tmp_path) == {"x.parquet": body}


def test_what_appears_while_a_dataset_is_written_is_not_replaced(tmp_path):
    def written_meanwhile():
        yield from rollouts(1)
        shutil.copy(CLICKHOUSE, tmp_path / "part-00000.parquet")

    with pytest.raises(UsageError, match="was not written by art-otel"):
        write_trajectories(written_meanwhile(), tmp_path)
    assert contents(tmp_path) == {"part-00000.parquet": CLICKHOUSE.read_bytes()}


@pytest.mark.parametrize("body", ["mine", "{}", '{"files": 3}', '{"spans":{},"calls":{},"files":[]}'])
def test_a_report_of_others_is_not_replaced(tmp_path, body):
    (tmp_path / "_report.json").write_text(body)
    with pytest.raises(UsageError, match=r"_report\.json: was not written by art-otel"):
        convert(Conversion(sources=[str(SYNC)], out=tmp_path))
    assert contents(tmp_path) == {"_report.json": body.encode()}


@pytest.mark.parametrize("source", ["work", ".", "link", "work/*", "link/*", "**/*"])
@pytest.mark.parametrize("dump_format", [None, "otlp-json"])
def test_a_dataset_beside_its_dumps_is_replaced_and_never_read_as_a_dump(tmp_path, monkeypatch, source, dump_format):
    monkeypatch.chdir(tmp_path)
    work = tmp_path / "work"
    work.mkdir()
    (tmp_path / "link").symlink_to(work)
    shutil.copy(SYNC, work / "dump.jsonl")
    first, _ = convert_files(work, source, format=dump_format)
    again, report = convert_files(work, source, format=dump_format)
    assert again == first != []
    assert [Path(file.path).name for file in report.files] == ["dump.jsonl"]
    assert report.files[0].error is None
    assert (work / "dump.jsonl").read_bytes() == SYNC.read_bytes()


def test_a_dataset_is_not_converted_into_itself(tmp_path):
    part = Path(write_trajectories(rollouts(4), tmp_path).files[0])
    with pytest.raises((SourceError, UsageError), match=r"is already an art-otel dataset|was not written by"):
        convert(Conversion(sources=[str(part)], out=tmp_path, format="otlp-json"))
    assert len(ids(tmp_path)) == len(ids(part)) == 4
