"""A real S3 server (moto, on loopback) in its own environment: what lies in a bucket converts as from a folder."""

import json
import multiprocessing
from concurrent.futures import ProcessPoolExecutor

import pytest

from art_otel.cli import main
from art_otel.errors import SourceError
from art_otel.sources import FileStats, Prefetcher, find_inputs, plan_splits, read_file, stored_ranges
from tests.conversions import RECORDINGS, convert_files
from tests.s3_server import credentials, running  # noqa: F401 # a fixture of every test here
from tests.sources.requests import lines, numbers, span, spans_of, traces
from tests.sources.writers.parquet import EXPORTS

pytestmark = pytest.mark.store

PARTS = ("genai_span", "openinference", "traceloop")


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with running(tmp_path_factory.mktemp("moto") / "log") as found:
        found.put("dumps")
        for part in PARTS:
            for path in sorted((RECORDINGS / part).glob("*.jsonl")):
                found.put(f"dumps/recordings/{part}/{path.name}", path.read_bytes())
        found.put("dumps/exports/spans.parquet", (EXPORTS / "phoenix_spans.parquet").read_bytes())
        yield found


def parquet_of(out):
    return b"".join(path.read_bytes() for path in sorted(out.glob("*.parquet")))


def test_a_prefix_gives_the_same_dataset_as_a_folder(server, tmp_path):
    _, local = convert_files(tmp_path / "local", *(RECORDINGS / part for part in PARTS))
    _, report = convert_files(tmp_path / "s3", f"s3://dumps/recordings{server.options}")
    assert parquet_of(tmp_path / "s3") == parquet_of(tmp_path / "local")
    assert [file.path for file in report.files] == [
        f"s3://dumps/recordings/{part}/{path.name}"
        for part in PARTS
        for path in sorted((RECORDINGS / part).glob("*.jsonl"))
    ]
    assert [file.bytes for file in report.files] == [file.bytes for file in local.files]


def test_a_glob_an_object_and_parquet(server, tmp_path):
    pattern, one = (f"s3://dumps/recordings/{key}{server.options}" for key in ("*/n2.jsonl", "traceloop/n2.jsonl"))
    found = find_inputs([pattern, one])
    assert [source.name.rpartition("recordings/")[2] for source in found] == [f"{part}/n2.jsonl" for part in PARTS]
    assert all(source.explicit for source in found)
    below = find_inputs([f"s3://dumps/recordings/**{server.options}"])
    assert below == find_inputs([f"s3://dumps/recordings/**/*{server.options}"])
    assert {source.name for source in found} < {source.name for source in below}
    _, report = convert_files(tmp_path / "out", f"s3://dumps/exports{server.options}")
    assert (report.spans.read, report.files[0].format) == (1260, "phoenix-dataframe")


def test_a_large_object(server):
    data = lines(*(traces(span(number, name="n" * 50_000)) for number in range(1, 401)))
    server.put("dumps/large.jsonl", data)
    (source,) = find_inputs([f"s3://dumps/large.jsonl{server.options}"])
    account = FileStats()
    assert len(spans_of(read_file(source, account))) == 400
    assert account.bytes == len(data) > 16 << 20


def test_splits_of_an_object_are_read_in_several_processes(server):
    """Each opens the store itself: what this process opened would be of no use there."""
    data = lines(*(traces(span(number, name="n" * 50_000)) for number in range(1, 401)))
    server.put("dumps/split.jsonl", data)
    inputs = find_inputs([f"s3://dumps/split.jsonl{server.options}"])
    splits = plan_splits(inputs, 4 << 20)
    assert len(splits) == 5
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as processes:
        assert [number for found in processes.map(numbers_of, splits) for number in found] == list(range(1, 401))


def numbers_of(split):
    with Prefetcher(stored_ranges(split)) as prefetcher:
        return [number for source in split for number in numbers(read_file(source, FileStats(), prefetcher=prefetcher))]


HOSTILE = (
    "x../../up.jsonl",
    "x/..",
    "d//absolute.jsonl",
    "c d?e=1&f.jsonl",
    "g%2e%2e%2fh.jsonl",
    "Zürich ☃.jsonl",
    "tab\t.jsonl",
    "turned \u202e.jsonl",
    "~root",
    "*[x].jsonl",
    "\x1b[31mred\x07.jsonl",
)


def test_nothing_is_written_under_the_name_of_a_key(server, tmp_path, capsys, monkeypatch):
    server.put("hostile")
    for number, key in enumerate(HOSTILE, start=1):
        server.put(f"hostile/{key}", lines(traces(span(number))))
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    assert main(["convert", f"s3://hostile{server.options}", "--out", "out"]) == 1
    shown = capsys.readouterr().out
    assert "d//absolute.jsonl: its key has an empty part (//), which cannot be read" in shown
    assert not {"\x1b", "\x07"} & set(shown)
    report = json.loads((tmp_path / "work/out/_report.json").read_text())
    unread = {file["path"] for file in report["files"] if file["error"] is not None}
    assert unread == {f"s3://hostile/{key}" for key in HOSTILE if "/" in key}  # HTTP clients resolve ..
    assert report["spans"]["read"] == len(HOSTILE) - len(unread)
    written = [str(path.relative_to(tmp_path)) for path in sorted(tmp_path.rglob("*"))]
    assert [name.partition("-0")[0] for name in written] == [
        "work",
        "work/out",
        "work/out/_report.json",
        "work/out/part",
    ]


def test_a_key_that_the_store_cannot_list(server, tmp_path, capsys):
    server.put("controls")
    server.put("controls/nul\0.jsonl", lines(traces(span())))
    server.put("controls/good/a.jsonl", lines(traces(span())))
    for source in ("s3://controls", "s3://controls/nul\0.jsonl"):
        assert main(["convert", f"{source}{server.options}", "--out", str(tmp_path / "out")]) == 1
        shown = capsys.readouterr().err
        assert "a key there has a control character, and S3 cannot list those; name a narrower prefix" in shown
        assert "\0" not in shown
    assert len(find_inputs([f"s3://controls/good{server.options}"])) == 1


def test_an_object_overwritten_by_a_shorter_one(server):
    server.put("dumps/changing.jsonl", lines(traces(span())))
    (source,) = find_inputs([f"s3://dumps/changing.jsonl{server.options}"])
    server.put("dumps/changing.jsonl", b"{}")
    with pytest.raises(SourceError, match=r"^s3://dumps/changing.jsonl: "):
        list(read_file(source, FileStats()))


def test_what_is_not_there(server):
    with pytest.raises(SourceError, match=r"s3://nowhere/x: there is no such bucket; check its name and region"):
        find_inputs([f"s3://nowhere/x{server.options}"])
    with pytest.raises(SourceError, match=r"^s3://dumps/no/such/key: nothing to read; name a file, .* a URL"):
        find_inputs([f"s3://dumps/no/such/key{server.options}"])


def test_one_object_that_cannot_be_read_costs_no_other(server, tmp_path):
    server.put("mixed")
    for name in ("a", "b", "c"):
        server.put(f"mixed/{name}.jsonl", lines(traces(span(ord(name)))))
    sources = [f"s3://mixed/{name}.jsonl{server.options}" for name in ("a", "b", "c")]
    server.put("mixed/d.parquet", b"PAR1 is not all it takes")
    _, report = convert_files(tmp_path / "out", *sources, f"s3://mixed/d.parquet{server.options}")
    assert report.spans.read == 3
    assert [file.path for file in report.unread] == ["s3://mixed/d.parquet"]


def test_credentials_that_may_not_read(tmp_path):
    with running(tmp_path / "log", INITIAL_NO_AUTH_ACTION_COUNT="0") as server:
        with pytest.raises(SourceError) as error:
            find_inputs([f"s3://dumps{server.options}"])
        assert str(error.value).startswith("s3://dumps: ")
        assert "credentials" in str(error.value)
