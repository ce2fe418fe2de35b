"""Object stores: URLs, listing and fetching ahead, on the local file system behind the same interface of pyarrow.fs."""

import re

import pytest

from art_otel.errors import SourceError
from art_otel.sources import (
    FileStats,
    InputFile,
    Prefetcher,
    find_inputs,
    plan_splits,
    read_file,
    stored_ranges,
)
from art_otel.sources.files import stores
from art_otel.sources.files.stores import StoredFile, _objects, list_store
from art_otel.storage import is_url, open_bucket
from tests.sources.requests import lines, numbers, read_bytes, span, traces
from tests.sources.writers.parquet import EXPORTS

LOCAL = "file:///"


def stored(path, size=None) -> InputFile:
    file = StoredFile(store=LOCAL, path=str(path))
    return InputFile(
        name=file.name, path=None, size=size or path.stat().st_size, explicit=True, stored=file, mtime_ns=1
    )


def dumps(folder, count: int, spans: int = 1) -> list[InputFile]:
    for number in range(count):
        first = number * spans
        (folder / f"{number:03}.jsonl").write_bytes(lines(*(traces(span(first + at + 1)) for at in range(spans))))
    return [stored(path) for path in sorted(folder.iterdir())]


def records_of(inputs, prefetcher=None):
    return [record for source in inputs for record in read_file(source, FileStats(), prefetcher=prefetcher)]


@pytest.mark.parametrize("chunk", [100, 4 << 20])
def test_files_that_are_fetched_ahead_are_the_files(tmp_path, chunk, monkeypatch):
    monkeypatch.setattr(stores, "CHUNK_BYTES", chunk)
    files = dumps(tmp_path, 40, 3)
    with Prefetcher(stored_ranges(files)) as prefetcher:
        assert numbers(records_of(files, prefetcher)) == list(range(1, 121))
        assert not prefetcher._coming
    assert numbers(records_of(files[:2])) == list(range(1, 7))


def test_files_may_be_left_at_any_place_and_few_chunks_are_held(tmp_path, monkeypatch):
    monkeypatch.setattr(stores, "CHUNK_BYTES", 50)
    files = dumps(tmp_path, 9, 20)
    with Prefetcher(stored_ranges(files)) as prefetcher:
        for at, file in enumerate(stored_ranges(files[:8])):
            chunks = prefetcher.chunks(file)
            assert next(chunks) + next(chunks) == (tmp_path / f"{at:03}.jsonl").read_bytes()[:100]
            assert len(prefetcher._coming) <= stores.CHUNKS
            chunks.close()
        assert b"".join(prefetcher.chunks(stored_ranges(files)[8])) == (tmp_path / "008.jsonl").read_bytes()


def test_an_object_is_cut_and_read_in_parts(tmp_path):
    (file,) = dumps(tmp_path, 1, 200)
    splits = plan_splits([file], file.size // 5)
    assert len(splits) > 3
    parts = [part for split in splits for part in split]
    assert numbers(records_of(parts)) == list(range(1, 201))
    with Prefetcher(stored_ranges(parts)) as prefetcher:
        assert numbers(records_of(parts, prefetcher)) == list(range(1, 201))


def test_parquet_is_read_where_it_lies(tmp_path):
    path = EXPORTS / "phoenix_spans.parquet"
    account = FileStats()
    records = list(read_file(stored(path), account))
    assert records == read_bytes(tmp_path, path.read_bytes())[0]
    assert account.bytes == path.stat().st_size


def test_an_empty_object(tmp_path):
    (tmp_path / "empty").write_bytes(b"")
    account = FileStats()
    assert list(read_file(stored(tmp_path / "empty"), account)) == []
    assert account.note == "empty"


def test_an_object_that_is_gone_or_was_overwritten(tmp_path):
    (tmp_path / "short").write_bytes(lines(traces(span())))
    for file, problem in (
        (stored(tmp_path / "gone", 10), "check the URL and your credentials|it is not there"),
        (stored(tmp_path / "short", 9999), "it was truncated while it was read"),
    ):
        account = FileStats()
        with pytest.raises(SourceError, match=f"^{re.escape(file.name)}: ({problem})"):
            list(read_file(file, account))
        assert account.error is not None


def test_objects_below_a_prefix(tmp_path):
    names = ("b.jsonl", "a.jsonl", "deep/er/c.jsonl", ".hidden", ".git/d.jsonl", "deep/.e", "_report.json")
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"{}")

    def matches(pattern):
        found = list(_objects(open_bucket(LOCAL)[0], f"{tmp_path}{pattern}"))
        return [info.path.removeprefix(f"{tmp_path}/") for info, _ in found], {explicit for _, explicit in found}

    assert matches("") == (["_report.json", "a.jsonl", "b.jsonl", "deep/er/c.jsonl"], {False})
    assert matches("/deep") == (["deep/er/c.jsonl"], {False})
    assert matches("/a.jsonl") == (["a.jsonl"], {True})
    assert matches("/*.jsonl") == (["a.jsonl", "b.jsonl"], {True})
    assert matches("/**/*.jsonl")[0] == [".git/d.jsonl", "a.jsonl", "b.jsonl", "deep/er/c.jsonl"]
    assert matches("/deep/**") == (["deep/.e", "deep/er/c.jsonl"], {True})
    assert matches("/no/*.jsonl") == ([], set())
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
    assert all(stores.matches(name, glob) for name in yes)
    assert not any(stores.matches(name, glob) for name in no)


def test_what_is_a_url_of_a_store():
    assert all(map(is_url, ("s3://b/k", "gs://b", "gcs://b/k?x", "abfs://c@a.dfs.core.windows.net/k")))
    assert not any(map(is_url, ("file:///x", "s3/x", "https://x", "dumps/*.json")))
    with pytest.raises(SourceError, match=r"s3:///k: no URL of a store; write s3://bucket/prefix"):
        list(list_store("s3:///k"))


@pytest.mark.parametrize(
    ("source", "name"),
    [
        pytest.param(
            "s3://key:secret@bucket/a?region=x", "s3://bucket/a", marks=pytest.mark.store
        ),  # it tries for long
        ("gcs://anonymous@bucket/a*b?retry_limit_seconds=0.1", "gs://bucket/a*b"),
    ],
)
def test_a_store_that_cannot_be_reached_is_told_without_its_credentials(source, name, monkeypatch):
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with pytest.raises(SourceError) as error:
        find_inputs([f"{source}&endpoint_override=127.0.0.1:1&scheme=http"])
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
