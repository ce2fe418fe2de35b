"""Conversions on a real S3 server (moto, on loopback): what comes out of a bucket equals what comes out of a folder."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import art_otel
from art_otel import storage
from art_otel.cli import main
from art_otel.engines import Conversion, Sizes, Times, convert
from art_otel.engines.incremental import follow
from art_otel.errors import SourceError
from art_otel.sources import FileStats, find_inputs, identified, read_file
from art_otel.store import read_manifest
from tests.conversions import FEW, RECORDINGS, SMALL, check_sums
from tests.dumps import write_lines
from tests.engines.test_incremental_law import at_once, rows, shuffled
from tests.fault_proxy import proxied
from tests.s3_server import credentials, running
from tests.viewer.served import exported

pytestmark = pytest.mark.store
_ = credentials  # a fixture that every test here uses

PARTS = ("genai_span", "openinference", "traceloop")
DUMPS = [RECORDINGS / part / name for part in PARTS for name in ("n2.jsonl", "error_retry.jsonl", "sync_tools.jsonl")]
DUMPS = [path for path in DUMPS if path.exists()]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with running(tmp_path_factory.mktemp("moto") / "log") as server, proxied(server.address) as proxy:
        server.put("data")
        server.put("other")
        for path in DUMPS:
            server.put(f"data/dumps/{path.parent.name}/{path.name}", path.read_bytes())
        proxy.put = server.put
        yield proxy


@pytest.fixture(autouse=True)
def undisturbed(server):
    server.reset()
    yield
    server.reset()


@pytest.fixture(scope="module")
def local(tmp_path_factory):
    """What comes out of a folder, by the sizes of the work."""
    found = {}
    for name, sizes in {"small": SMALL, "few": FEW}.items():
        out = tmp_path_factory.mktemp(name)
        check_sums(convert(Conversion(sources=[str(path) for path in DUMPS], out=out, sizes=sizes, workers=1)))
        found[name] = {path.name: path.read_bytes() for path in sorted(out.glob("*.parquet"))}
    return found


def parts_in(out):
    return {part.name: storage.read(storage.join(out, part.name)) for part in read_manifest(out).parts}


def run(server, out, sizes=FEW, **options):
    return convert(Conversion(sources=[server.url("data/dumps")], out=out, sizes=sizes, **({"workers": 1} | options)))


@pytest.mark.parametrize("scratch", [None, "folder", "bucket"])
def test_through_a_store_at_both_ends(server, tmp_path, local, scratch):
    out = server.url(f"data/out-{scratch}")
    where = {None: None, "folder": tmp_path, "bucket": server.url("other/scratch")}[scratch]
    report = run(server, out, SMALL, scratch=where, workers=2)
    check_sums(report)
    assert not report.unread
    assert parts_in(out) == local["small"]
    assert sorted(storage.list_folder(out)) == ["_report.json", *local["small"]]
    assert not list(tmp_path.iterdir())
    for folder in (server.url("other/scratch"), server.url("data")):
        assert not storage.list_folder(folder)


def test_from_a_store_into_a_folder_and_back(server, tmp_path, local):
    run(server, tmp_path / "out", scratch=server.url("other/scratch"))
    assert parts_in(str(tmp_path / "out")) == local["few"]
    for path in DUMPS:
        (tmp_path / path.parent.name).mkdir(exist_ok=True)
        (tmp_path / path.parent.name / path.name).write_bytes(path.read_bytes())
    out = server.url("data/from-here")
    convert(Conversion(sources=[str(tmp_path / part) for part in PARTS], out=out, sizes=FEW, workers=1))
    assert parts_in(out) == local["few"]


def test_the_command_reads_writes_and_shows(server, capsys, tmp_path):
    out, scratch = server.url("data/command"), server.url("other/s")
    assert main(["convert", server.url("data/dumps"), "--out", out, "--scratch", scratch]) == 0
    shown = capsys.readouterr().out
    assert " in s3://data/command: " in shown
    assert "endpoint_override" not in shown
    requests = sum(server.requests.values())
    assert requests < 120, server.requests
    trajectories = list(art_otel.read_trajectories(out))
    assert main(["show", out, "--json"]) == 0
    assert [row["rollout_id"] for row in json.loads(capsys.readouterr().out)] == [
        one.rollout_id for one in trajectories
    ]
    assert main(["show", out, "--rollout", trajectories[0].rollout_id]) == 0
    assert main(["export", out, "--to", "trl", "-o", str(tmp_path / "exported"), "--allow-incomplete"]) == 0
    assert main(["view", out, "--html", str(tmp_path / "page.html")]) == 0
    page, _ = exported(tmp_path / "page.html")
    assert trajectories[0].rollout_id in page
    assert "endpoint_override" not in page
    assert list(art_otel.batches(out, advantage=None, allow_incomplete=True).decisions())


def test_standard_input_into_a_store(server, tmp_path):
    data = b"".join(path.read_bytes() for path in DUMPS)
    for scratch in (None, tmp_path):
        out = server.url(f"data/piped-{scratch is None}")
        options = [] if scratch is None else ["--scratch", str(scratch)]
        command = [sys.executable, "-m", "art_otel", "convert", "-", "--out", out, *options]
        done = subprocess.run(command, input=data, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr
        assert {one.rollout_id for one in art_otel.read_trajectories(out)}
        assert sorted(storage.list_folder(out)) == ["_report.json", *parts_in(out)]


def test_what_we_wrote_is_no_dump(server, local):
    """A dataset among the dumps, its scratch of a killed run, and a glob over everything."""
    for path in DUMPS:
        server.put(f"data/mixed/{path.parent.name}/{path.name}", path.read_bytes())
    server.put("data/mixed/out/.art-otel-scratch-0123/shuffle-1", b"{}")
    server.put("data/mixed/out/_pending-x.json", b'{"run": "x", "written_at": 1, "parts": [], "previous": []}')
    sources = [server.url("data/mixed")]
    out = server.url("data/mixed/out")
    for _ in range(2):
        report = convert(Conversion(sources=sources, out=out, sizes=FEW, workers=1))
        assert parts_in(out) == local["few"]
        assert len(report.files) == len(DUMPS)
    elsewhere = server.url("data/mixed-elsewhere")
    report = convert(Conversion(sources=sources, out=elsewhere, sizes=FEW, workers=1))
    assert parts_in(elsewhere) == local["few"]
    report = convert(Conversion(sources=[server.url("data/mixed/**")], out=out, sizes=FEW, workers=1))
    assert len(report.files) == len(DUMPS)
    with pytest.raises(SourceError, match="is already an art-otel dataset, not a dump"):
        convert(Conversion(sources=[out], out=out))


def test_an_object_is_its_content(server):
    """Another of the same size, in the same second, is another; the same one put again is not."""
    server.put("data/version/a.jsonl", DUMPS[0].read_bytes())
    (first,) = identified(find_inputs([server.url("data/version")]))
    other = DUMPS[0].read_bytes().replace(b"assistant", b"assistent")
    server.put("data/version/a.jsonl", other)
    (second,) = identified(find_inputs([server.url("data/version")]))
    assert first.size == second.size
    assert first.stored.etag != second.stored.etag
    with pytest.raises(SourceError, match=r"s3://data/version/a.jsonl: it was replaced while it was read"):
        list(read_file(first, FileStats()))
    server.put("data/version/a.jsonl", DUMPS[0].read_bytes())
    (third,) = identified(find_inputs([server.url("data/version")]))
    assert third.stored.etag == first.stored.etag


def test_an_object_that_was_replaced_is_read_again_and_one_that_was_put_again_is_not(server, tmp_path):
    body = DUMPS[0].read_bytes()
    other = body.replace(b"assistant", b"assistent")
    conversion = Conversion(sources=[server.url("data/replaced")], out=tmp_path / "out", incremental=True, workers=1)
    for name, content, read in (
        ("a.jsonl", body, True),
        ("a.jsonl", body, False),  # put again as it was, it is the same
        ("a.jsonl", other, True),
    ):
        server.put(f"data/replaced/{name}", content)
        assert bool(convert(conversion).spans.read) == read
    follow(conversion, every=0.0, tell=lambda _: pytest.fail("nothing new"), warn=pytest.fail, rounds=2)


def test_rounds_into_a_store_are_one_conversion(server, capsys, tmp_path):
    """With late spans and rewards, and compacted in between."""
    source, out = server.url("data/coming"), server.url("data/rounds")
    rounds = Conversion(
        sources=[source], out=out, sizes=Sizes(slots=3), incremental=True, times=Times(grace=0.0), workers=1
    )
    for number, requests in enumerate(shuffled(3)):
        server.put(f"data/coming/{number}.jsonl", write_lines(tmp_path / "lines", requests).read_bytes())
        check_sums(convert(rounds))
        if number:
            assert main(["compact", out]) == 0
    assert "superseded rows dropped" in capsys.readouterr().out
    assert rows(art_otel.read_trajectories(out)) == at_once()
    manifest = read_manifest(out)
    assert (manifest.superseded, len(manifest.parts)) == ({}, 1)
    report = convert(rounds)
    assert (report.spans.read, report.trajectories.total) == (0, 0)
    assert rows(art_otel.read_trajectories(out)) == at_once()


def test_content_that_spans_refer_to_is_read_below_the_named_urls(server, tmp_path):
    for path in sorted((Path(__file__).parent / "uploaded").iterdir()):
        data = path.read_bytes().replace(b"file:///DIR", b"s3://other/prompts")
        server.put(f"other/prompts/{path.name}" if path.suffix == ".json" else f"data/refers/{path.name}", data)
    outside = art_otel.convert(server.url("data/refers"), tmp_path / "outside")
    assert outside.trajectories.incomplete == {"content not read": 1}
    inside = art_otel.convert(server.url("data/refers"), tmp_path / "inside", content=server.url("other/prompts"))
    assert (inside.trajectories.complete, inside.hints) == (1, [])
