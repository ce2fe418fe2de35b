"""Names of files, whatever they are: nothing is written under them, and they break neither report nor terminal."""

import json
import os
import random
from pathlib import Path

import pytest

from art_otel.cli import main
from tests.sources.requests import lines, span, traces

ODD = (
    b"\x1b[31mred\x07",
    b"new\nline",
    b"back\\slash",
    b"..%2f..%2fup",
    b"\xff\xfe",
    b"\xed\xa0\x80",
    b"-rf",
    b"*",
    b"[",
    b"~",
    b" ",
)
COUNT = 1000


def names() -> list[bytes]:
    chance = random.Random(0)  # any names will do, the same each time
    found = set(ODD)
    while len(found) < COUNT:
        name = bytes(chance.choice(range(256)) for _ in range(chance.randrange(1, 40)))
        found.add(name.replace(b"/", b"").replace(b"\0", b"") or b"x")
    return sorted(name for name in found if not name.startswith(b"."))


@pytest.mark.skipif(os.name == "nt" or os.uname().sysname == "Darwin", reason="the file system takes no such names")
def test_a_thousand_names(tmp_path, capsys, monkeypatch):
    (tmp_path / "dumps").mkdir()
    found = names()
    for number, name in enumerate(found, start=1):
        good = lines(traces(span(number)))
        (tmp_path / "dumps" / os.fsdecode(name)).write_bytes(good if number % 2 else good + b"rubbish\n")
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    assert main(["convert", "../dumps", "--out", "out"]) == 0
    shown = capsys.readouterr().out
    assert not set(map(chr, (*range(9), *range(11, 32), 127))) & set(shown)
    report = json.loads(Path("out/_report.json").read_text(encoding="utf-8"))
    assert len(report["files"]) == len(found) == report["spans"]["read"] - len(found) // 2
    written = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if "dumps" not in path.parts)
    assert [name.partition("-0")[0] for name in written] == [
        "work",
        "work/out",
        "work/out/_report.json",
        "work/out/part",
    ]
    assert len(list((tmp_path / "dumps").iterdir())) == len(found)
