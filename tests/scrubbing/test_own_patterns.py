"""Patterns of the app's owner, and what the owner keeps."""

import json
import re
from pathlib import Path

import pytest

import art_otel
from art_otel.errors import UsageError
from art_otel.scrubbing import Hits, Scrubber
from art_otel.trajectories import trajectory_json
from tests.conversions import convert_files
from tests.receiver.consuming import consume
from tests.receiver.otlp import send
from tests.receiver.rollouts import rollout
from tests.receiver.serving import serving
from tests.scrubbing.secrets import SECRETS
from tests.tracing.setup.programs import run_code

KEY = SECRETS["openai"][1]
OWN = "acme-" + "0123456789abcdef" * 2
PATTERN = re.compile("acme-[0-9a-f]{32}")


def test_what_matches_is_replaced_everywhere():
    scrubber = Scrubber("on", [PATTERN, re.compile(r"pin (?P<secret>\d{4})")])
    for text, kept in {
        f"it is {OWN}.": "it is [scrubbed:own pattern].",
        json.dumps({"deep": json.dumps([OWN])}): json.dumps({"deep": json.dumps(["[scrubbed:own pattern]"])}),
        "pin 1234 of pins": "pin [scrubbed:own pattern] of pins",
        f"{OWN} {KEY}": "[scrubbed:own pattern] [scrubbed:openai key]",
        "nothing": "nothing",
    }.items():
        hits = Hits()
        assert scrubber.text(text, hits) == kept
        assert scrubber.may_hold_secret([text]) == scrubber.holds_secret(text) == bool(hits.count) == (text != kept)
    assert scrubber.split_secret([OWN[:9], OWN[9:]])
    long = "x " * 5000
    assert not scrubber.holds_secret(long)
    assert scrubber.holds_secret(f"{long}{OWN}")


def test_what_is_kept_stays_and_counts_nothing():
    asked = []
    scrubber = Scrubber("on", [PATTERN], lambda match: asked.append(match) or match.kind in ("own pattern", "password"))
    hits = Hits()
    value = {"password": "p", "secret": "s", "text": f"{OWN} and {KEY}"}
    assert scrubber.value("a", value, hits, by_name=True) == {
        "password": "p",
        "secret": "[scrubbed:secret]",
        "text": f"{OWN} and [scrubbed:openai key]",
    }
    assert hits.count == 2
    assert {tuple(match) for match in asked} == {
        *{("password", "p"), ("secret", "s")},
        *{("own pattern", OWN), ("openai key", KEY)},
    }


def test_where_the_function_raises_nothing_is_kept_and_no_secret_is_logged(caplog):
    scrubber = Scrubber("on", [], lambda match: [][len(match.text)])
    assert scrubber.text(KEY, Hits()) == "[scrubbed:openai key]"
    assert "scrub_keeps raised IndexError" in caplog.text
    assert KEY not in caplog.text


CODE = f"""
import art_otel
from opentelemetry import trace
with art_otel.rollout(name="agent", metadata={{"own": "{OWN}", "ours": "{KEY}"}}):
    with trace.get_tracer("app").start_as_current_span("chat m", attributes={{"gen_ai.operation.name": "chat"}}):
        pass
"""


def test_the_environment_sets_both(tmp_path):
    program = run_code(
        tmp_path,
        CODE,
        ART_OTEL_ENABLED="1",
        ART_OTEL_SCRUB_PATTERNS=PATTERN.pattern,
        ART_OTEL_SCRUB_KEEPS="^sk-proj-",
    )
    assert (program.code, program.errors) == (0, "")
    ((found,), _) = convert_files(tmp_path / "out", tmp_path / ".art" / "spool")
    assert found.metadata == {"own": "[scrubbed:own pattern]", "ours": KEY, "art.scrubbed": 1}


@pytest.mark.long
def test_a_receiver_has_patterns_of_its_owner(tmp_path):
    with serving(tmp_path / "art", "--grace", "1s", "--scrub-pattern", PATTERN.pattern) as server:
        send(server.url, rollout(1, **{"art.metadata.own": OWN}))
        (found,) = consume(server.url, 1)
    assert found.metadata["own"] == "[scrubbed:own pattern]"


def test_logs_of_coding_agents_are_converted_without_what_matches(tmp_path, monkeypatch):
    question = {"type": "user", "message": {"role": "user", "content": f"it is {OWN}"}}
    answer = {"id": "m1", "role": "assistant", "model": "m", "content": [{"type": "text", "text": "yes"}]}
    rows = [
        {**question, "uuid": "u1", "parentUuid": None},
        {"type": "assistant", "message": answer | {"stop_reason": "end_turn"}, "uuid": "u2", "parentUuid": "u1"},
    ]
    times = {"sessionId": "s", "timestamp": "2026-01-01T00:00:00Z", "version": "2.0.0", "isSidechain": False}
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(row | times) + "\n" for row in rows))
    assert OWN in logged(tmp_path, tmp_path / "whole")
    replaced = logged(tmp_path, tmp_path / "option", scrub_patterns=[PATTERN.pattern])
    assert "it is [scrubbed:own pattern]" in replaced
    monkeypatch.setenv("ART_OTEL_SCRUB_PATTERNS", PATTERN.pattern)
    assert logged(tmp_path, tmp_path / "variable") == replaced
    with pytest.raises(UsageError, match="is no regular expression"):
        art_otel.convert(tmp_path / "log.jsonl", tmp_path / "none", scrub_patterns=["("])


def logged(folder: Path, out: Path, **options: list[str]) -> str:
    """The trajectory of a log, as JSON text."""
    art_otel.convert(folder / "log.jsonl", out, workers=1, **options)
    (found,) = art_otel.read_trajectories(out)
    return json.dumps(trajectory_json(found))
