"""Every limit is an option of the command line; what is beyond it is set aside, and the report names the option."""

import gzip
import json
from argparse import ArgumentParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from art_otel.cli import main
from art_otel.cli.arguments import add_limits, format_size, limits_of, parse_size
from art_otel.errors import UsageError
from art_otel.sources import Limits, option_of
from tests.conversions import RECORDINGS
from tests.docs.pages import text_of
from tests.dumps import chat_span, make_span, request_of

SYNC = RECORDINGS / "genai_span" / "sync_tools.jsonl"


NO_SIZES = ("", "x", "-1", "1.5GiB", "64MB", "64 apples", "0x10", "1e6", "٣", "9" * 19, "9" * 5000)
NAMES = Limits.__struct_fields__
IS_SIZE = {name: name != "max_rollout_spans" for name in NAMES}


def parsed(*arguments: str) -> Limits:
    parser = ArgumentParser()
    add_limits(parser)
    return limits_of(parser.parse_args(arguments))


def convert(capsys, *arguments) -> dict:
    assert main(["convert", "--json", *map(str, arguments)]) == 0
    return json.loads(capsys.readouterr().out)


def test_without_options_the_limits_are_the_defaults():
    assert parsed() == Limits()


@pytest.mark.parametrize("name", NAMES)
def test_every_limit_has_an_option(name):
    assert parsed(option_of(name), "7") == Limits(**{name: 7})
    if IS_SIZE[name]:
        assert parsed(option_of(name), "3GiB") == Limits(**{name: 3 << 30})


@pytest.mark.parametrize("name", NAMES)
def test_every_limit_is_in_the_how_to_with_its_default(name):
    default = getattr(Limits(), name)
    shown = format_size(default).replace("MiB", " MiB").replace("TiB", " TiB") if IS_SIZE[name] else f"{default:,}"
    (row,) = [
        line for line in text_of("docs/how-to/dumps.md").splitlines() if line.startswith(f"| `{option_of(name)}`")
    ]
    assert f"| {shown} |" in row


@pytest.mark.parametrize("bad", NO_SIZES)
def test_what_is_no_size_is_wrong_usage(bad, tmp_path, capsys):
    for name in NAMES:
        with pytest.raises(SystemExit) as stopped:
            main(["convert", str(SYNC), "--out", str(tmp_path / "out"), f"{option_of(name)}={bad}"])
        assert stopped.value.code == 2
        assert f"argument {option_of(name)}: {bad!r} is no" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("name", "bad"),
    [
        *((name, "0") for name in NAMES),
        *((name, "9" * 18 + "TiB") for name in NAMES if IS_SIZE[name]),
    ],
)
def test_what_can_be_no_limit_is_wrong_usage(name, bad, tmp_path, capsys):
    assert main(["convert", str(SYNC), "--out", str(tmp_path / "out"), option_of(name), bad]) == 2
    assert f"{option_of(name)} {parse_size(bad)}: must be from 1 to " in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("bad", [0, -1, 1 << 61])
def test_python_gets_the_same_limits(bad):
    with pytest.raises(UsageError, match="--max-message-bytes"):
        Limits(max_message_bytes=bad)


@pytest.mark.parametrize(
    ("text", "size"),
    [("1", 1), ("1048576", 1 << 20), ("64MiB", 64 << 20), ("64 MiB", 64 << 20), (" 2gib ", 2 << 30), ("1KIB", 1024)],
)
def test_sizes(text, size):
    assert parse_size(text) == size


@given(st.integers(0, 10**18 - 1))
def test_a_size_that_is_written_is_read_back(size):
    assert parse_size(format_size(size)) == size


def good(*more: dict) -> dict:
    return request_of(make_span(1, name="rollout x"), chat_span(2, 1, ["a"], "b"), *more)


BEYOND = {
    "max_message_bytes": (json.dumps(good(make_span(9, 1, name="x" * 9000))).encode(), "8KiB"),
    "max_decompressed_bytes": (gzip.compress((json.dumps(good()).encode() + b"\n") * 9), "8KiB"),
    "max_rollout_spans": (json.dumps(good(*(make_span(number, 1) for number in range(3, 60)))).encode(), "50"),
    "max_rollout_bytes": (json.dumps(good(*(make_span(number, 1) for number in range(3, 60)))).encode(), "1KiB"),
}


@pytest.mark.parametrize("name", NAMES)
def test_what_is_beyond_a_limit_is_counted_and_names_its_option(name, tmp_path, capsys):
    data, limit = BEYOND[name]
    dump = tmp_path / "in.dump"
    dump.write_bytes(data)
    whole = convert(capsys, dump, "--out", tmp_path / "whole")
    assert not whole["quarantine"]
    cut = convert(capsys, dump, "--out", tmp_path / "cut", option_of(name), limit)
    assert set(cut["spans"]["quarantined"]) >= {"over a limit"}
    (named, *_) = [piece for piece in cut["quarantine"] if piece["reason"] == "over a limit"]
    assert option_of(name) in named["detail"]
    assert f"Limits.{name}" in named["detail"] or name == "max_rollout_bytes"


def test_the_summary_names_the_option(tmp_path, capsys):
    (tmp_path / "in.dump").write_bytes(BEYOND["max_message_bytes"][0])
    arguments = ["convert", str(tmp_path / "in.dump"), "--out", str(tmp_path / "out"), "--max-message-bytes", "8KiB"]
    assert main([*arguments, "--strict"]) == 3
    shown = capsys.readouterr().out
    assert "1 quarantined (over a limit: 1)" in shown
    assert "over a limit the message is longer than the limit; raise --max-message-bytes" in shown
