"""find_inputs: every file once, in order, and nothing that art-otel wrote itself."""

import os
import sys
import threading
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from art_otel.errors import SourceError, UsageError
from art_otel.sources import FileStats, InputFile, find_inputs, read_file
from art_otel.store import write_trajectories
from art_otel.trajectories import Trajectory
from tests.sources.requests import lines, span, spans_of, standard_input, traces


@pytest.fixture
def dumps(tmp_path):
    for name in ("b.jsonl", "a.jsonl", "deep/er/c.jsonl", ".hidden", ".git/d.jsonl", "_report.json"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(lines(traces(span())))
    return tmp_path


def names(found, folder):
    return [os.path.relpath(source.path, folder) for source in found]


def test_a_folder_gives_all_files_below_it_sorted(dumps):
    found = find_inputs([dumps])
    assert names(found, dumps) == ["a.jsonl", "b.jsonl", "deep/er/c.jsonl"]
    assert not any(source.explicit for source in found)
    assert found[0].size == (dumps / "a.jsonl").stat().st_size


def test_a_glob_gives_its_matches_and_is_as_good_as_naming_them(dumps):
    found = find_inputs([f"{dumps}/**/*.jsonl"])
    assert names(found, dumps) == ["a.jsonl", "b.jsonl", "deep/er/c.jsonl"]
    assert all(source.explicit for source in found)


def test_a_glob_that_matches_folders_gives_what_the_shell_would(dumps):
    shell = [name for name in sorted(dumps.iterdir()) if not name.name.startswith(".")]
    found = find_inputs([f"{dumps}/[!_]*"])
    assert names(found, dumps) == ["a.jsonl", "b.jsonl", "deep/er/c.jsonl"]
    assert found == find_inputs([name for name in shell if name.name != "_report.json"])


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("**", ["_report.json", "a.jsonl", "b.jsonl", "deep/er/c.jsonl"]),
        ("**/**", ["_report.json", "a.jsonl", "b.jsonl", "deep/er/c.jsonl"]),
        ("**/er/*", ["deep/er/c.jsonl"]),
        ("d*/**/*.jsonl", ["deep/er/c.jsonl"]),
        ("**/deep/**/c.*", ["deep/er/c.jsonl"]),
        (".git/**", [".git/d.jsonl"]),
        ("d**/c.jsonl", []),
        ("a.jsonl/**", []),
    ],
)
def test_globs_of_all_below(pattern, expected, dumps, monkeypatch):
    def matches(source):
        try:
            return names(find_inputs([source]), dumps)
        except SourceError:
            return []

    monkeypatch.chdir(dumps)
    assert matches(pattern) == matches(f"{dumps}/{pattern}") == expected


def test_a_glob_ends_where_links_lead_back(dumps):
    for name in ("deep/up", "deep/er/up", "deep/er/again"):
        (dumps / name).symlink_to("..")
    for pattern in ("**", "**/*.jsonl", "**/er/**/*.jsonl"):
        found = names(find_inputs([f"{dumps}/{pattern}"]), dumps)
        assert [name for name in found if "up" in name or "again" in name] == []
        assert "deep/er/c.jsonl" in found


@pytest.mark.parametrize("pattern", ["*", "**", "**/*", "deep/*"])
def test_a_glob_passes_over_pipes(pattern, dumps):
    os.mkfifo(dumps / "deep" / "pipe")
    found = find_inputs([f"{dumps}/{pattern}"])
    assert "deep/er/c.jsonl" in names(found, dumps)
    assert all(source.size is not None for source in found)
    (named,) = find_inputs([dumps / "deep" / "pipe"])
    assert (named.size, named.explicit) == (None, True)


@pytest.mark.parametrize("source", ["", "file://", "file://localhost"])
def test_an_empty_path_is_not_the_current_folder(source, dumps, monkeypatch):
    monkeypatch.chdir(dumps)
    with pytest.raises(UsageError, match="an empty path is not a source; is a variable unset"):
        find_inputs(["a.jsonl", source])


def test_linked_folders_are_entered_once_and_loops_end(dumps, tmp_path_factory):
    other = tmp_path_factory.mktemp("other")
    (other / "x.jsonl").write_bytes(lines(traces(span())))
    (other / "back").symlink_to(dumps)
    for name in ("link", "again", "deep/link"):
        (dumps / name).symlink_to(other)
    (dumps / "loop").symlink_to("loop")
    found = find_inputs([dumps])
    assert names(found, dumps) == ["a.jsonl", "again/x.jsonl", "b.jsonl", "deep/er/c.jsonl", "loop"]
    with pytest.raises(SourceError, match="loop: cannot be opened"):
        list(read_file(found[-1], FileStats()))


def test_a_link_to_nothing_in_a_folder_is_an_error(dumps):
    (dumps / "gone.jsonl").symlink_to("nowhere")
    gone = find_inputs([dumps])[-1]
    assert (Path(gone.name).name, gone.size) == ("gone.jsonl", None)
    with pytest.raises(SourceError, match=r"gone\.jsonl: cannot be opened \(No such file"):
        list(read_file(gone, FileStats()))


@contextmanager
def as_nobody():
    """Root may list every folder."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has other rights")
def test_what_a_folder_keeps_to_itself_is_an_error(dumps, monkeypatch):
    (dumps / "names").mkdir()
    (dumps / "names" / "x.jsonl").write_bytes(b"")
    monkeypatch.chdir(dumps)  # what is above it nobody else may enter
    dumps.chmod(0o755)
    (dumps / "deep").chmod(0)
    (dumps / "names").chmod(0o744 if os.geteuid() == 0 else 0o400)
    try:
        with as_nobody():
            found = find_inputs(["."])
            assert names(find_inputs(["**/*.jsonl"]), ".") == names(found, ".")
            assert [str(source.path) for source in found] == ["a.jsonl", "b.jsonl", "deep", "names/x.jsonl"]
            for source in found[2:]:
                with pytest.raises(SourceError, match=rf"{source.path}: cannot be opened \(Permission denied\)"):
                    list(read_file(source, FileStats()))
    finally:
        (dumps / "deep").chmod(0o755)
        (dumps / "names").chmod(0o755)


def test_a_file_named_twice_is_read_once(dumps):
    (dumps / "link.jsonl").symlink_to(dumps / "a.jsonl")
    found = find_inputs([dumps, dumps / "a.jsonl", f"{dumps}/*.jsonl", "-", "-"])
    assert names(found[:-1], dumps) == ["a.jsonl", "b.jsonl", "deep/er/c.jsonl"]
    assert [source.explicit for source in found] == [True, True, False, True]


def test_parquet_that_we_wrote_is_left_alone_and_other_parquet_is_not(dumps):
    table = pa.table({"a": [1]})
    pq.write_table(table.replace_schema_metadata({"art_otel.schema": "1"}), dumps / "part-0.parquet")
    pq.write_table(table, dumps / "other.parquet")
    (dumps / "not.parquet").write_bytes(b"x")
    (dumps / "lies.parquet").write_bytes(b"\xff\xff\xff\xffPAR1")
    found = [name for name in names(find_inputs([dumps]), dumps) if name.endswith(".parquet")]
    assert found == ["lies.parquet", "not.parquet", "other.parquet"]
    assert find_inputs([dumps / "part-0.parquet"])[0].explicit


@pytest.mark.parametrize("source", ["out", "o*", "out/../out", "file://localhost{folder}/out"])
def test_a_dataset_that_is_named_says_what_reads_it(source, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (file,) = write_trajectories([Trajectory(rollout_id="r", trace_id="ab" * 16)], "out").files
    with pytest.raises(
        SourceError, match=r"out: is already an art-otel dataset.* `art-otel show`|o\*: is already an art-otel dataset"
    ):
        find_inputs([source.format(folder=tmp_path)])
    (part,) = find_inputs([file])
    with pytest.raises(SourceError, match=r"^out/part-00000-\w+\.parquet: is already an art-otel dataset"):
        list(read_file(part, FileStats()))
    (tmp_path / "out" / "spans.jsonl").write_bytes(lines(traces(span())))
    assert names(find_inputs(["out"]), "out") == ["spans.jsonl"]


@pytest.mark.parametrize("source", ["no/such/file", "no/*.jsonl", "empty"])
def test_a_source_that_leads_to_nothing_is_named(source, tmp_path, monkeypatch):
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SourceError, match=r"nothing to read; name a file, a folder .* or - for standard") as error:
        find_inputs([source])
    assert str(error.value).startswith(source)


def test_standard_input():
    (source,) = find_inputs(["-"])
    account = FileStats()
    with standard_input(lines(traces(span(), span(2)))):
        assert len(spans_of(read_file(source, account))) == 2
    assert (source.size, source.explicit, account.path) == (None, True, "<stdin>")


def test_standard_input_that_has_nothing_yet():
    end, other = os.pipe()
    before = os.dup(0)
    os.dup2(end, 0)
    os.set_blocking(0, False)
    threading.Timer(0.3, lambda: (os.write(other, lines(traces(span()))), os.close(other))).start()
    try:
        assert len(spans_of(read_file(find_inputs(["-"])[0], FileStats()))) == 1
    finally:
        os.dup2(before, 0)
        os.close(before)
        os.close(end)


def test_standard_input_that_is_closed(monkeypatch):
    account = FileStats()
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(SourceError, match="standard input is closed; pipe a dump into the command, or name a file"):
        list(read_file(find_inputs(["-"])[0], account))
    assert account.error is not None


def test_a_name_that_is_no_text_can_be_printed(tmp_path):
    (tmp_path / os.fsdecode(b"\xff.jsonl")).write_bytes(b"?")
    (source,) = find_inputs([tmp_path])
    assert source.name.encode().endswith(rb"\xff.jsonl")


def test_a_file_of_unknown_format(tmp_path):
    (tmp_path / "notes.txt").write_text("nothing of ours")
    (tmp_path / "empty").write_text("")
    account, empty = FileStats(), FileStats()
    first, second = find_inputs([tmp_path])
    assert list(read_file(first, empty)) == list(read_file(second, account)) == []
    assert (account.note, account.format, account.error) == ("no known format", None, None)
    assert empty.note == "empty"
    (named,) = find_inputs([tmp_path / "notes.txt"])
    with pytest.raises(SourceError, match=r"notes\.txt: no known format; known are otlp-json, otlp-protobuf"):
        list(read_file(named, account))
    assert account.error is not None
    assert list(read_file(find_inputs([tmp_path / "empty"])[0], FileStats())) == []


def test_a_file_that_cannot_be_read(tmp_path):
    gone = InputFile(name="gone", path=tmp_path / "gone", size=None, explicit=True)
    account = FileStats()
    with pytest.raises(SourceError, match="gone: cannot be opened"):
        list(read_file(gone, account))
    assert account.error is not None
    folder = InputFile(name="folder", path=tmp_path, size=None, explicit=False)
    with pytest.raises(SourceError, match="folder: cannot be"):
        list(read_file(folder, FileStats()))


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="a file that opens but cannot be read at 0 is Linux's")
def test_a_file_that_goes_bad_while_it_is_read():
    memory = InputFile(name="memory", path=Path("/proc/self/mem"), size=None, explicit=True)
    with pytest.raises(SourceError, match="memory: cannot be read"):
        list(read_file(memory, FileStats()))


@pytest.mark.parametrize("left", [0, 1, 2])
def test_a_file_that_becomes_shorter_while_it_is_read(tmp_path, left):
    whole = [lines(traces(span(number))) for number in (1, 2, 3)]
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"".join(whole))
    (source,) = find_inputs([path])
    path.write_bytes(b"".join(whole[:left]))
    account = FileStats()
    assert len(spans_of(read_file(source, account))) == left
    assert account.error == f"{path}: was truncated while it was read; read it again when it no longer changes"


def test_a_file_that_becomes_longer_is_read_as_far_as_it_goes(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(lines(traces(span(1))))
    (source,) = find_inputs([path])
    path.write_bytes(lines(traces(span(1)), traces(span(2))))
    assert len(spans_of(read_file(source, FileStats()))) == 2
