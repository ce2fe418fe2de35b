"""`art-otel convert` as a person uses it."""

import gzip
import json
import os
import pty
import subprocess
import sys
import time

import pytest

import art_otel
from art_otel.cli import main
from art_otel.errors import UsageError
from tests.conversions import RECORDINGS
from tests.dumps import chat_span, make_span, request_of, write_lines
from tests.examples import daily

SYNC = RECORDINGS / "genai_span" / "sync_tools.jsonl"

EMPTY = "an empty path is not a source; is a variable unset? The current folder is written ."


def run(capsys, *arguments) -> tuple[int, str, str]:
    code = main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_the_summary_says_what_came_in_and_out(tmp_path, capsys):
    code, out, _ = run(capsys, "convert", RECORDINGS / "genai_span" / "error_retry.jsonl", "--out", tmp_path)
    assert code == 0
    assert "7 spans and 0 log records from 1 file" in out
    assert "6: 1 completed, 5 failed" in out
    assert "1 trajectory" in out
    assert "1 complete, 0 incomplete" in out
    assert list(tmp_path.glob("part-00000-*.parquet"))


def test_the_summary_says_where_characters_could_not_be_read(tmp_path, capsys):
    torn = write_lines(tmp_path / "torn.jsonl", [request_of(chat_span(1, None, ["a~b"], "c"))])
    torn.write_bytes(torn.read_bytes().replace(b"a~b", b"a\xffb"))
    _, out, _ = run(capsys, "convert", torn, "--out", tmp_path / "out")
    assert f"hint  1 character of {torn} read as U+FFFD" in out


def test_a_dataset_that_grows_says_what_was_added_and_what_it_has(tmp_path, capsys):
    for number, name in enumerate(("sync_tools", "n2"), start=1):
        source = RECORDINGS / "genai_span" / f"{name}.jsonl"
        _, out, _ = run(capsys, "convert", source, "--out", tmp_path, "--incremental", "--grace", "0")
        assert f"out  1 trajectory added to {tmp_path}, which has {number} now: 1 complete, 0 incomplete\n" in out


def test_the_report_as_json_is_the_file(tmp_path, capsys):
    code, out, _ = run(capsys, "convert", SYNC, "--out", tmp_path, "--json")
    assert code == 0
    report = json.loads(out)
    assert report == json.loads((tmp_path / "_report.json").read_text())
    nothing = {"again": 0, "duplicate": 0, "ignored": {}, "quarantined": {}, "waiting": 0}
    assert report["spans"] == {"read": 5, "used": 5, **nothing}
    assert report["trajectories"] == {"total": 1, "complete": 1, "incomplete": {}}
    assert [file["format"] for file in report["files"]] == ["otlp-json"]


def test_folders_globs_and_compression(tmp_path, capsys):
    (tmp_path / "in" / "deep").mkdir(parents=True)
    (tmp_path / "in" / "deep" / "odd name.txt").write_bytes(gzip.compress(SYNC.read_bytes()))
    (tmp_path / "in" / "README.md").write_text("about these dumps")
    for source in (tmp_path / "in", tmp_path / "in" / "**" / "*.txt"):
        code, out, _ = run(capsys, "convert", source, "--out", tmp_path / "out", "--json")
        assert code == 0
        assert json.loads(out)["trajectories"]["complete"] == 1


def test_no_source_is_refused_by_the_function_too(tmp_path):
    with pytest.raises(UsageError, match="sources: none given"):
        art_otel.convert(sorted(tmp_path.glob("*.jsonl")), tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("workers", "other"),
    daily([("2", [str(RECORDINGS / "genai_span" / "error_retry.jsonl")]), ("1", [])], one_in=2),
)
def test_standard_input(workers, other, tmp_path):
    command = [sys.executable, "-m", "art_otel", "convert", "-", *other, "--out", str(tmp_path), "--json"]
    command += ["--workers", workers]
    result = subprocess.run(command, input=SYNC.read_bytes(), capture_output=True, check=True)
    report = json.loads(result.stdout)
    assert report["files"][0]["path"] == "<stdin>"
    assert report["spans"]["used"] == (5 + 7 if other else 5)


@pytest.mark.long
def test_standard_input_that_does_not_wait(tmp_path):
    """Somebody before us in the pipeline made it so, as Node does; what comes late is read all the same."""
    first, _, rest = SYNC.read_bytes().partition(b"\n")
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    command = [sys.executable, "-m", "art_otel", "convert", "-", "--out", str(tmp_path), "--json"]
    process = subprocess.Popen(command, stdin=reading, stdout=subprocess.PIPE)
    os.write(writing, first + b"\n")
    while not list(tmp_path.glob(".art-otel-scratch-*/input-*")):
        time.sleep(0.01)
    os.write(writing, rest)
    os.close(writing)
    assert json.loads(process.communicate()[0])["spans"]["used"] == 5


@pytest.mark.parametrize("workers", ["1", "2"])
def test_standard_input_that_is_closed_is_exit_1(workers, tmp_path):
    command = [sys.executable, "-m", "art_otel", "convert", "-", "--out", str(tmp_path), "--workers", workers]
    result = subprocess.run(["sh", "-c", '"$@" <&-', "sh", *command], capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr.count("\n")) == (1, 1)
    assert "standard input is closed" in result.stderr


def test_a_source_that_is_not_there_is_exit_1(tmp_path, capsys):
    code, _, err = run(capsys, "convert", tmp_path / "nothing.jsonl", "--out", tmp_path / "out")
    assert code == 1
    assert "nothing.jsonl" in err


def test_a_file_nobody_can_read_is_exit_1_and_the_rest_is_converted(tmp_path, capsys):
    (tmp_path / "picture.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(100))
    code, out, _ = run(capsys, "convert", tmp_path / "picture.png", SYNC, "--out", tmp_path / "out")
    assert code == 1
    assert "picture.png" in out
    assert "1 trajectory" in out


@pytest.mark.parametrize(
    "arguments", [["convert"], ["convert", "x"], ["nonsense"], [], ["convert", "x", "--out", "y", "--engine", "abacus"]]
)
def test_wrong_usage_is_exit_2(arguments):
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert stopped.value.code == 2


@pytest.mark.parametrize("option", [["--workers", "0"], ["--format", "nonsense"]])
def test_impossible_options_are_exit_2(option, tmp_path, capsys):
    code, _, err = run(capsys, "convert", SYNC, "--out", tmp_path, *option)
    assert code == 2
    assert option[0].removeprefix("--") in err or option[1] in err


def test_a_format_can_be_forced(tmp_path, capsys):
    code, out, _ = run(capsys, "convert", SYNC, "--out", tmp_path, "--format", "otlp-json", "--json")
    assert code == 0
    assert json.loads(out)["spans"]["used"] == 5


def test_strict_turns_quarantine_into_exit_3(tmp_path, capsys):
    (tmp_path / "in.jsonl").write_text(SYNC.read_text() + "rubbish\n")
    arguments = ("convert", tmp_path / "in.jsonl", "--out", tmp_path / "out")
    assert run(capsys, *arguments)[0] == 0
    code, out, _ = run(capsys, *arguments, "--strict")
    assert code == 3
    assert "in.jsonl:3" in out
    assert "not JSON" in out


def test_much_quarantine_is_summed_up(tmp_path, capsys):
    (tmp_path / "in.jsonl").write_text((SYNC.read_text().splitlines()[0] + "\nrubbish\n") * 9)
    _, out, _ = run(capsys, "convert", tmp_path / "in.jsonl", "--out", tmp_path / "out")
    assert "9 quarantined (not JSON: 9)" in out
    assert "all 9 are named in" in out


def test_an_empty_result_comes_with_a_hint(tmp_path, capsys):
    dump = write_lines(tmp_path / "in.jsonl", [request_of(make_span(1), scope="http")])
    _, out, _ = run(capsys, "convert", dump, "--out", tmp_path / "out")
    assert "1 span, no LLM call: its spans were made by http" in out
    (tmp_path / "empty.jsonl").write_text("")
    _, out, _ = run(capsys, "convert", tmp_path / "empty.jsonl", "--out", tmp_path / "out")
    assert "no span in the sources" in out


def test_a_terminal_gets_a_progress_bar(tmp_path):
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "art_otel", "convert", str(SYNC), "--out", str(tmp_path)]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "80"}
    process = subprocess.Popen(command, stderr=theirs, stdout=subprocess.PIPE, env=environment)
    process.communicate()
    os.close(theirs)
    shown = os.read(ours, 100_000).decode()
    os.close(ours)
    assert process.returncode == 0
    assert "reading" in shown


def test_an_empty_source_is_wrong_usage_and_replaces_nothing(tmp_path, capsys, monkeypatch):
    run(capsys, "convert", SYNC, "--out", tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    monkeypatch.chdir(tmp_path)
    code, _, err = run(capsys, "convert", SYNC, "", "--out", tmp_path)
    assert (code, err) == (2, f"art-otel: {EMPTY}\n")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize("target", daily(["nowhere", "gone"], one_in=2))
def test_what_in_a_folder_cannot_be_read_is_named_and_exit_1(tmp_path, capsys, target):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.jsonl").write_bytes(SYNC.read_bytes())
    (tmp_path / "in" / "gone").symlink_to(target)
    code, out, _ = run(capsys, "convert", tmp_path / "in", "--out", tmp_path / "out", "--json")
    report = json.loads(out)
    assert code == 1
    assert report["spans"]["used"] > 0
    assert [(file["path"].rpartition("/")[2], file["error"] is None) for file in report["files"]] == [
        ("a.jsonl", True),
        ("gone", False),
    ]


def test_a_glob_that_matches_no_span_is_explained(tmp_path, capsys):
    dump = write_lines(tmp_path / "in.jsonl", [request_of(make_span(1, name="handle"), chat_span(2, 1, ["a"], "b"))])
    _, out, _ = run(capsys, "convert", dump, "--out", tmp_path / "out", "--rollout-span", "zzz")
    assert "no span name matches --rollout-span" in out
    assert "handle" in out


def test_version(capsys):
    with pytest.raises(SystemExit):
        main(["--version"])
    assert capsys.readouterr().out.startswith("art-otel 0.")


@pytest.mark.parametrize("its_own", daily([True, False], one_in=2))
def test_only_a_process_of_its_own_goes_without_numpy(tmp_path, its_own):
    arguments = ["convert", str(RECORDINGS), "--out", str(tmp_path / "out")]
    given = "" if its_own else repr(arguments)
    code = (
        f"import sys\nfrom art_otel.cli import main\nsys.argv = ['art-otel', *{arguments!r}]\n"
        f"assert main({given}) == 0\nassert not {{'opentelemetry', 'asyncio', 'starlette'}} & sys.modules.keys()\n"
        "print(sys.modules.get('numpy') is None)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines()[-1] == str(its_own)


def test_without_its_extra_ray_says_what_to_install(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    code, _, err = run(capsys, "convert", SYNC, "--out", tmp_path, "--engine", "ray")
    assert code == 2
    assert 'pip install "art-otel[ray]"' in err
    assert not list(tmp_path.glob("*.parquet"))


def test_ray_client_is_refused_with_the_reason(tmp_path, capsys):
    code, _, err = run(capsys, "convert", SYNC, "--out", tmp_path, "--engine", "ray", "--ray-address", "ray://h:10001")
    assert code == 2
    assert "tasks end with its connection" in err


def test_an_address_of_ray_is_nothing_for_the_local_engine(tmp_path, capsys):
    code, _, err = run(capsys, "convert", SYNC, "--out", tmp_path, "--ray-address", "auto")
    assert code == 2
    assert "--engine ray" in err
