"""Hostile dumps through the command line: counted and named, no traceback, little memory, neighbours kept."""

import gzip
import json
import subprocess
import sys
from pathlib import Path

import pytest

from art_otel.cli import main
from tests.conversions import RECORDINGS
from tests.dumps import chat_span, make_span, request_of
from tests.sources.requests import prefixed, to_protobuf, zstd
from tests.sources.writers import EVERY_WRITER

MEASURED = """
import resource, sys
from art_otel.cli import main
code = main(sys.argv[1:])
own = next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(int(own) + resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, file=sys.stderr)
sys.exit(code)
"""
"""Tells the most memory it held in KiB, with that of its largest child. `ru_maxrss` would count its parent's, too."""

NEIGHBOURS = (make_span(1, name="rollout y", trace=7), chat_span(2, 1, ["a"], "b", trace=7))
SYNC = RECORDINGS / "genai_span" / "sync_tools.jsonl"


def convert(dump: Path, capsys, *options, code=0) -> dict:
    """The report, and with it what `show` lists."""
    out = dump.parent / "out"
    assert main(["convert", str(dump), "--out", str(out), "--json", *options]) == code
    report = json.loads(capsys.readouterr().out)
    assert main(["show", str(out), "--json"]) == 0
    return {**report, "shown": json.loads(capsys.readouterr().out)}


def call_with(**attributes) -> dict:
    """A call of a rollout and its neighbours, in one request."""
    named = {name.replace("__", "."): value for name, value in attributes.items()}
    call = chat_span(2, 1, ["a"], None if "gen_ai.output.messages" in named else "b", attributes=named)
    return request_of(make_span(1, name="rollout x"), call, chat_span(3, 1, ["c"], "d"), *NEIGHBOURS)


def large_json(text: str) -> bytes:
    return json.dumps(call_with(note="@")).encode().replace(b'"@"', b'"%s"' % text.encode())


@pytest.mark.flood
@pytest.mark.skipif(sys.platform != "linux", reason="its memory is measured as Linux tells it")
@pytest.mark.parametrize("ending", ["", "😀"], ids=["ascii", "wide"])
def test_an_attribute_of_100_mb(ending, tmp_path):
    (tmp_path / "in.dump").write_bytes(large_json("x" * 100_000_000 + ending))
    command = ["convert", str(tmp_path / "in.dump"), "--out", str(tmp_path / "out"), "--json"]
    result = subprocess.run([sys.executable, "-c", MEASURED, *command], capture_output=True, text=True, check=True)
    report = json.loads(result.stdout)
    assert int(result.stderr) < 10**9 >> 10
    assert report["spans"] == {
        "read": 5,
        "again": 0,
        "used": 5,
        "waiting": 0,
        "duplicate": 0,
        "ignored": {},
        "quarantined": {},
    }
    assert report["trajectories"] == {"total": 2, "complete": 2, "incomplete": {}}
    assert report["calls"]["completed"] == 3


DEEP = (("gen_ai__input__messages", "[]"), ("gen_ai__tool__definitions", '{"a":}'), ("note", "[]"))


@pytest.mark.parametrize(("name", "brackets"), DEEP)
def test_fifty_thousand_levels_of_json(name, brackets, tmp_path, capsys):
    deep = brackets[:-1] * 50_000 + "1" + brackets[-1] * 50_000
    (tmp_path / "in.dump").write_text(json.dumps(call_with(**{name: deep})))
    report = convert(tmp_path / "in.dump", capsys)
    assert report["spans"]["used"] == 5
    assert len(report["shown"]) == 2
    nested = f'{{"arrayValue": {{"values": {deep}}}}}'
    text = json.dumps(call_with(**{name: "@"})).replace('{"stringValue": "@"}', nested)
    (tmp_path / "in.dump").write_text(f"{text}\n{json.dumps(request_of(*NEIGHBOURS))}\n")
    report = convert(tmp_path / "in.dump", capsys)
    assert sum(report["spans"]["quarantined"].values()) == 1
    assert (report["spans"]["used"], len(report["shown"])) == (2, 1)


HUGE = str(2**70)
HUGE_VALUES = {
    "attribute": '"stringValue": "@"',
    "start": '"startTimeUnixNano": "1000002"',
    "end": '"endTimeUnixNano": "2000002"',
}


@pytest.mark.parametrize(("what", "quoted"), [("attribute", HUGE), ("start", f'"{HUGE}"'), ("end", f'"{HUGE}"')])
def test_huge_integers(what, quoted, tmp_path, capsys):
    old = HUGE_VALUES[what]
    name = old.split('"')[1].replace("stringValue", "intValue")
    text = json.dumps(call_with(note="@"))
    assert old in text
    (tmp_path / "in.dump").write_text(text.replace(old, f'"{name}": {quoted}', 1))
    report = convert(tmp_path / "in.dump", capsys)
    assert report["spans"]["quarantined"] == {"bad field": 1}
    assert (report["spans"]["used"], len(report["shown"])) == (4, 2)


@pytest.mark.parametrize("number", [f"-{HUGE}", "1e999"])
def test_huge_integers_inside_messages(number, tmp_path, capsys):
    message = f'{{"role": "user", "parts": [{{"type": "text", "content": {number}}}], "extra": {number}}}'
    tool = f'{{"type": "tool_call", "id": {number}, "name": "t", "arguments": {{"n": {number}}}}}'
    answer = f'{{"role": "assistant", "parts": [{tool}], "finish_reason": "tool_call"}}'
    request = call_with(
        gen_ai__input__messages=f"[{message}]",
        gen_ai__output__messages=f"[{answer}]",
        gen_ai__tool__definitions=f'[{{"type": "function", "name": "t", "parameters": {{"maximum": {number}}}}}]',
        gen_ai__request__max_tokens=2**62,
        art__request__parameters=f'{{"seed": {number}}}',
        art__extra=f'{{"n": {number}}}',
        art__tokens__prompt=f"[{number}]",
    )
    (tmp_path / "in.dump").write_text(json.dumps(request))
    report = convert(tmp_path / "in.dump", capsys)
    assert report["spans"]["used"] == 5
    assert len(report["shown"]) == 2
    assert report["trajectories"]["complete"] >= 1


NAME = "../../../up\0/\x1b[2J\\..\\C:/x"


def test_names_that_lead_elsewhere(tmp_path, capsys):
    named = {NAME: NAME, "art.rollout.id": NAME, "art.group.id": NAME, f"art.metadata.{NAME}": NAME}
    root = make_span(1, name=f"rollout {NAME}", attributes={**named, "art.rollout.name": NAME, "art.split": NAME})
    request = request_of(root, chat_span(2, 1, [NAME], NAME), *NEIGHBOURS, scope=NAME, resource={NAME: NAME})
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "in.dump").write_text(json.dumps(request))
    report = convert(tmp_path / "in" / "in.dump", capsys)
    assert report["trajectories"]["complete"] == 2
    assert NAME in {shown["rollout_id"] for shown in report["shown"]}
    written = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*"))
    assert written[:4] == ["in", "in/in.dump", "in/out", "in/out/_report.json"]
    assert written[4].startswith("in/out/part-00000-")
    assert len(written) == 5
    for option in ([], ["--rollout", NAME]):
        assert main(["show", str(tmp_path / "in" / "out"), *option]) == 0
        assert not {"\0", "\x1b"} & set(capsys.readouterr().out)


def test_a_source_with_nul_in_its_name_is_not_there(tmp_path, capsys):
    assert main(["convert", f"{tmp_path}/a\0b", "--out", str(tmp_path / "out")]) == 1
    assert "a␀b" in capsys.readouterr().err


REQUEST = request_of(*NEIGHBOURS)
LINE = json.dumps(REQUEST).encode() + b"\n"
WRONG = {
    "json.parquet": LINE,
    "json.gz": LINE,
    "json.binpb": LINE,
    "protobuf.json": to_protobuf(REQUEST),
    "framed.jsonl.zst": prefixed(to_protobuf(REQUEST)),
    "gzip.jsonl": gzip.compress(LINE),
    "zstd.txt": zstd(LINE),
    "gzip.parquet": gzip.compress(to_protobuf(REQUEST)),
    "parquet.json": EVERY_WRITER["clickhouse"]([REQUEST]),
    "jaeger.png": EVERY_WRITER["jaeger-json"]([REQUEST]),
    "none": EVERY_WRITER["console"]([REQUEST]),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_extensions(name, tmp_path, capsys):
    (tmp_path / name).write_bytes(WRONG[name])
    report = convert(tmp_path / name, capsys)
    assert report["spans"]["used"] == 2
    assert not report["quarantine"]


WRITE = {
    "otlp-json": lambda requests: b"".join(json.dumps(request).encode() + b"\n" for request in requests),
    "otlp-protobuf": lambda requests: prefixed(*map(to_protobuf, requests)),
    **EVERY_WRITER,
}


@pytest.mark.parametrize(
    ("name", "compress"), [*((name, bytes) for name in WRITE), ("otlp-json", gzip.compress), ("otlp-protobuf", zstd)]
)
def test_truncated_files(name, compress, tmp_path, capsys):
    recorded = [json.loads(line) for line in SYNC.read_text().splitlines()]
    data = compress(WRITE[name](recorded))
    dump = tmp_path / "in.dump"
    cuts = (1, 2) if data.startswith(b"PAR1") else (1, 3, 8)
    for part in cuts:
        cut = data[: len(data) - len(data) // (part * 2) - 1]
        dump.write_bytes(cut)
        code = main(["convert", str(dump), "--out", str(tmp_path / "out"), "--json"])
        shown = capsys.readouterr()
        if code:
            assert code == 1
            assert shown.err.startswith("art-otel: ")
            assert "in.dump" in shown.err
        else:
            report = json.loads(shown.out)
            assert sum(report["spans"]["quarantined"].values()) == len(report["quarantine"]) == 1
            assert report["quarantine"][0]["path"].startswith(str(dump))
