"""Hostile dumps through the command line: counted and named, no traceback, little memory, neighbours kept."""

import gzip
import json
import subprocess
import sys
from pathlib import Path

import pytest

from art_otel.cli import main
from tests.dumps import chat_span, make_span, request_of
from tests.sources.requests import to_protobuf

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


HUGE = str(2**70)


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


LINE = json.dumps(request_of(*NEIGHBOURS)).encode() + b"\n"
WRONG = {
    "json.parquet": LINE,
    "json.gz": LINE,
    "protobuf.json": to_protobuf(request_of(*NEIGHBOURS)),
    "gzip.jsonl": gzip.compress(LINE),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_extensions(name, tmp_path, capsys):
    (tmp_path / name).write_bytes(WRONG[name])
    report = convert(tmp_path / name, capsys)
    assert report["spans"]["used"] == 2
    assert not report["quarantine"]
