"""The command as a process: how it ends, and what it says where there is nobody to hear it."""

import subprocess
import sys

import pytest

from art_otel.cli import main
from tests.conversions import RECORDINGS, convert_files
from tests.examples import daily

SYNC = RECORDINGS / "genai_span" / "sync_tools.jsonl"
CONVERT = f"{sys.executable} -m art_otel convert {SYNC} --out out"


def shell(command: str, folder) -> subprocess.CompletedProcess:
    return subprocess.run(command, shell=True, cwd=folder, capture_output=True, text=True, check=False)


def test_an_argument_that_a_verb_has_not_leads_to_the_help_of_the_verb(capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["gateway", "--upstream", "http://127.0.0.1:1", "--htpt", "127.0.0.1:2"])
    assert stopped.value.code == 2
    assert "gateway has no argument --htpt 127.0.0.1:2; art-otel gateway --help" in capsys.readouterr().err


@pytest.mark.parametrize("where", daily([">&- 2>&-", ">&-", "2>&-", "> /dev/null"], one_in=4))
def test_a_stream_that_is_closed_costs_nothing(tmp_path, where):
    done = shell(f"{CONVERT} {where}", tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert [path.name[:4] for path in sorted((tmp_path / "out").iterdir())] == ["_rep", "part"]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux has /dev/full")
def test_what_cannot_be_said_is_exit_1(tmp_path):
    done = shell(f"{CONVERT} > /dev/full", tmp_path)
    assert (done.returncode, done.stderr) == (1, "art-otel: No space left on device\n")


@pytest.mark.skipif(sys.platform == "win32", reason="a shell's limit on the size of files")
def test_what_the_disk_refuses_says_where(tmp_path):
    done = shell(f"ulimit -f 1; {CONVERT}", tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith("art-otel: out: ")
    assert "File too large" in done.stderr
    assert all(path.name.startswith(".art-otel-scratch-") for path in (tmp_path / "out").iterdir())  # to go on from


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (("show", ""), "dataset"),
        (("export", "", "--to", "trl", "--out", "out"), "dataset"),
        (("log", "", "--project", "p", "--model", "m", "--split", "train"), "dataset"),
        (("doctor", ""), "source"),
        (("log", ".", "--project", "p", "--model", "m", "--split", "train", "--base-path", ""), "folder name"),
        (("demo", "--recordings", ""), "folder name"),
    ],
)
def test_an_empty_path_is_wrong_usage(tmp_path, capsys, monkeypatch, arguments, what):
    convert_files(tmp_path, SYNC)
    before = sorted(tmp_path.iterdir())
    monkeypatch.chdir(tmp_path)
    try:
        code = main(arguments)
    except SystemExit as stopped:
        code = stopped.code
    assert code == 2
    assert f"an empty path is not a {what}; is a variable unset?" in capsys.readouterr().err
    assert sorted(tmp_path.iterdir()) == before


def test_nobody_reads_on(tmp_path):
    done = shell(f"{{ {CONVERT}; echo $? >&2; }} | head -c 1", tmp_path)
    assert (done.stdout, done.stderr) == (" ", "0\n")


@pytest.mark.parametrize(("code", "threads"), daily([(0, True), (0, False), (3, False)], one_in=3))
def test_what_others_want_done_at_the_end_is_done(tmp_path, code, threads):
    report = "--strict" if code else "--json"
    torn = tmp_path / "torn.jsonl"
    torn.write_bytes(SYNC.read_bytes() + b'{"resourceSpans": [{"scopeSpans": [{"spans": [{"traceId": "1"}]}]}]}\n')
    program = f"""
import atexit, sys, threading, time
from art_otel.cli import command
atexit.register(print, "registered")
def late():
    time.sleep(0.5)
    print("from a thread")
if {threads}:
    threading.Thread(target=late).start()
sys.argv = ["art-otel", "convert", {str(torn)!r}, "--out", "out", {report!r}]
command()
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (code, "")
    said = done.stdout.splitlines()
    assert said[-1] == "registered"
    assert ("from a thread" in said) is threads
