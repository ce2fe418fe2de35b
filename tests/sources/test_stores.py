"""Object stores: URLs, listing and reading ahead, on the local file system behind the same interface of pyarrow.fs."""

import re

import pytest

from art_otel.errors import SourceError
from art_otel.sources import FileAccount, Input, ReadAhead, find_inputs, read_file
from art_otel.sources.files import read_ahead as read_ahead_module
from art_otel.sources.files.stores import StoredFile, _glob_pattern, _matches, is_store_url, list_store
from tests.sources.requests import damages_of, lines, span, spans_of, traces

LOCAL = "file:///"


def stored(path, size=None) -> StoredFile:
    return StoredFile(store=LOCAL, path=str(path), size=path.stat().st_size if size is None else size)


def as_input(file: StoredFile) -> Input:
    return Input(name=file.name, path=None, size=file.size, explicit=True, stored=file)


def dumps(folder, count: int, spans: int = 1) -> list[StoredFile]:
    for number in range(count):
        first = number * spans
        found = lines(*(traces(span(first + at + 1)) for at in range(spans)))
        (folder / f"{number:03}.jsonl").write_bytes(found)
    return [stored(path) for path in sorted(folder.iterdir())]


def test_files_read_ahead_are_the_files(tmp_path):
    files = dumps(tmp_path, 40, 3)
    found = []
    with ReadAhead(files) as ahead:
        for file in files:
            account = FileAccount()
            found += list(read_file(as_input(file), account, ahead=ahead))
            assert (account.bytes, account.path) == (file.size, f"file://{file.path}")
    assert [int(one.span_id, 16) for one in found] == list(range(1, 121))


def test_a_file_alone_is_read_in_chunks(tmp_path, monkeypatch):
    monkeypatch.setattr(read_ahead_module, "CHUNK_BYTES", 100)
    (file,) = dumps(tmp_path, 1, 200)
    records = list(read_file(as_input(file), FileAccount()))
    assert (len(spans_of(records)), damages_of(records)) == (200, [])


def test_files_may_be_left_at_any_place(tmp_path, monkeypatch):
    monkeypatch.setattr(read_ahead_module, "CHUNK_BYTES", 50)
    files = dumps(tmp_path, 9, 20)
    with ReadAhead(files) as ahead:
        for at in (0, 1, 4, 8):
            chunks = ahead.chunks(files[at])
            assert next(chunks) + next(chunks) == (tmp_path / f"{at:03}.jsonl").read_bytes()[:100]
    with ReadAhead(files) as ahead:
        next(ahead.chunks(files[2]))
        assert b"".join(ahead.chunks(files[7])) == (tmp_path / "007.jsonl").read_bytes()
        assert len(ahead._coming) <= read_ahead_module.CHUNKS


def test_no_more_than_a_few_chunks_are_held(tmp_path, monkeypatch):
    monkeypatch.setattr(read_ahead_module, "CHUNK_BYTES", 10)
    files = dumps(tmp_path, 3, 50)
    with ReadAhead(files) as ahead:
        for file in files:
            for _ in ahead.chunks(file):
                assert len(ahead._coming) <= read_ahead_module.CHUNKS


def test_an_empty_object(tmp_path):
    (tmp_path / "empty").write_bytes(b"")
    account = FileAccount()
    assert list(read_file(as_input(stored(tmp_path / "empty")), account)) == []
    assert account.note == "empty"


def test_an_object_that_is_gone_or_was_overwritten(tmp_path):
    (tmp_path / "short").write_bytes(lines(traces(span())))
    for file, problem in (
        (stored(tmp_path / "gone", 10), "check the URL and your credentials|it is not there"),
        (stored(tmp_path / "short", 9999), "it became shorter while it was read"),
    ):
        account = FileAccount()
        with pytest.raises(SourceError, match=f"^{re.escape(file.name)}: ({problem})"):
            list(read_file(as_input(file), account))
        assert account.error is not None


def test_objects_below_a_prefix(tmp_path):
    names = ("b.jsonl", "a.jsonl", "deep/er/c.jsonl", ".hidden", ".git/d.jsonl", "deep/.e", "_report.json")
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"{}")

    def matches(pattern, *, is_glob=False):
        found = list(_matches(LOCAL, f"{tmp_path}{pattern}", is_glob=is_glob))
        return [path.removeprefix(f"{tmp_path}/") for path, _, _ in found], {explicit for _, _, explicit in found}

    assert matches("") == (["_report.json", "a.jsonl", "b.jsonl", "deep/er/c.jsonl"], {False})
    assert matches("/deep") == (["deep/er/c.jsonl"], {False})
    assert matches("/a.jsonl") == (["a.jsonl"], {True})
    assert matches("/*.jsonl", is_glob=True) == (["a.jsonl", "b.jsonl"], {True})
    assert matches("/**/*.jsonl", is_glob=True)[0] == [".git/d.jsonl", "a.jsonl", "b.jsonl", "deep/er/c.jsonl"]
    assert matches("/deep/**", is_glob=True) == (["deep/.e", "deep/er/c.jsonl"], {True})
    assert matches("/no/*.jsonl", is_glob=True) == ([], set())
    assert matches("/no") == ([], set())


@pytest.mark.parametrize(
    ("glob", "yes", "no"),
    [
        ("b/*.json", ["b/a.json", "b/.json"], ["b/c/a.json", "ab/a.json", "b/a.jsonl", "b/axjson"]),
        ("b/**/x", ["b/x", "b/a/x", "b/a/c/x"], ["b/ax", "x"]),
        ("b/**", ["b/x", "b/a/c/.x"], ["b", "bx", "a/b/x"]),
        ("**", ["x", "a/x"], []),
        ("b/**/c/**", ["b/c/x", "b/a/c/x/y"], ["b/c", "b/ac/x"]),
        ("b/a**/x", ["b/a/x", "b/ab/x"], ["b/ax", "b/a/b/x"]),
        ("b/**a/x", ["b/a/x", "b/ba/x"], ["b/b/a/x"]),
        ("b/***", ["b/x"], ["b/a/x"]),
        ("b/a[!x]c", ["b/abc"], ["b/a/c", "b/axc"]),
        ("b/?[a-c][!d]", ["b/1ae", "b/\nbx"], ["b/1ad", "b/1dx", "b//ax"]),
        (r"b/[\d].(+)", ["b/\\.(+)", "b/d.(+)"], ["b/1.(+)"]),
    ],
)
def test_globs(glob, yes, no):
    pattern = _glob_pattern(glob)
    assert all(pattern.fullmatch(name) for name in yes)
    assert not any(pattern.fullmatch(name) for name in no)


def test_what_is_a_url_of_a_store():
    assert all(map(is_store_url, ("s3://b/k", "gs://b", "gcs://b/k?x")))
    assert not any(map(is_store_url, ("file:///x", "s3/x", "https://x", "dumps/*.json")))
    with pytest.raises(SourceError, match=r"s3:///k: no URL of a store; write s3://bucket/prefix"):
        list(list_store("s3:///k"))


def test_a_store_that_cannot_be_reached_is_told_without_its_credentials(monkeypatch):
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    options = "endpoint_override=127.0.0.1:1&scheme=http"
    for source, name in (
        (f"s3://key:secret@bucket/a?region=x&{options}", "s3://bucket/a"),
        (f"gcs://anonymous@bucket/a*b?{options}&retry_limit_seconds=0.1", "gs://bucket/a*b"),
    ):
        with pytest.raises(SourceError) as error:
            find_inputs([source])
        assert str(error.value).startswith(f"{name}: the store cannot be reached; check the network and endpoint")
        assert "secret" not in str(error.value)


def test_options_that_nobody_knows():
    with pytest.raises(SourceError, match=r"^s3://bucket/a: check the URL and your credentials .*'bogus'"):
        find_inputs(["s3://bucket/a?region=x&bogus=1"])


def test_a_file_url_is_a_local_path(tmp_path):
    (tmp_path / "a b.jsonl").write_bytes(lines(traces(span())))
    folder = str(tmp_path)
    for source in (f"file://{folder}", f"file://{folder}/a%20b.jsonl", f"file://localhost{folder}/*.jsonl"):
        (found,) = find_inputs([source])
        assert found.path == tmp_path / "a b.jsonl"


def test_a_glob_that_is_none_is_a_source_error():
    with pytest.raises(SourceError, match=r"\[z-a\].*is no glob"):
        _glob_pattern("b/[z-a]*.json")
