"""Nothing in a dump drives the terminal of who reads it, or hides what is beside it."""

import json
import os
import subprocess
import sys

import pytest

from tests.cli.test_show import show
from tests.conversions import convert_spans
from tests.dumps import chat_span, make_span
from tests.examples import daily


def test_nothing_in_a_dump_drives_the_terminal(tmp_path, capsys):
    evil = "a[bold]x[/nope]\x1b]0;pwn\x07"
    spans = [make_span(1, name="rollout x", attributes={"art.rollout.id": evil}), chat_span(2, 1, [evil], "\x9bb")]
    convert_spans(tmp_path, *spans)
    listed = show(capsys, tmp_path / "dataset")
    told = show(capsys, tmp_path / "dataset", "--rollout", evil)
    assert "a[bold]x[/nope]" in listed
    assert "a[bold]x[/nope]" in told
    assert not set("\x1b\x07\x9b") & set(listed + told)


def test_nothing_in_a_dump_hides_or_turns_what_is_beside_it(tmp_path, capsys):
    hidden = "\u202e\u2066\u2028\u200b\u200f\u061c"
    spans = [
        make_span(1, name="rollout x", attributes={"art.rollout.id": f"r{hidden}\n\tz"}),
        chat_span(2, 1, [], hidden),
    ]
    convert_spans(tmp_path, *spans)
    listed = show(capsys, tmp_path / "dataset")
    told = show(capsys, tmp_path / "dataset", "--rollout", f"r{hidden}\n\tz")
    assert not set(hidden) & set(listed + told)
    assert len(listed.splitlines()) == 2


@pytest.mark.parametrize("encoding", daily(["ascii", "utf-8"], one_in=2))
def test_json_is_json_in_every_encoding_and_drives_no_terminal(tmp_path, encoding):
    evil = "é\x9b\x7f\U0001f600\u202e\x1b"
    spans = [make_span(1, name="rollout x", attributes={"art.rollout.id": evil}), chat_span(2, 1, [evil], evil)]
    convert_spans(tmp_path, *spans)
    for more in ((), ("--rollout", evil)):
        command = [sys.executable, "-m", "art_otel", "show", str(tmp_path / "dataset"), "--json", *more]
        environment = {**os.environ, "PYTHONIOENCODING": encoding, "PYTHONUTF8": "1"}
        result = subprocess.run(command, capture_output=True, env=environment, check=True)
        found = json.loads(result.stdout)
        assert (found if more else found[0])["rollout_id"] == evil
        assert set(result.stdout) <= {*range(0x20, 0x7F), ord("\n")}
