"""Canary secrets: none is in any byte that leaves the app, on the disk or over OTLP."""

import base64
import json
import string
from pathlib import Path

from tests.conversions import convert_files
from tests.live.environments import live_python
from tests.live.receiver import receiver
from tests.live.runs import APPS, KEY, by_run, run_app
from tests.live.test_relay import export_to

_MIXED = (string.ascii_letters + string.digits) * 2
SECRETS = {
    "openai": "sk-proj-" + _MIXED[:74] + "T3Blbk" + "FJ" + _MIXED[5:79],
    "anthropic": "sk-ant-api03-" + _MIXED[3:96] + "AA",
    "github": "ghp_" + _MIXED[5:41],
    "aws": "AKIA" + "Q7WERT2YUIOP4ASD",
    "huggingface": "hf_" + _MIXED[7:41],
    "slack": "xoxb-" + "123456789012-123456789012-" + _MIXED[:24],
    "google": "AIza" + _MIXED[2:37],
    "jwt": "eyJhbGciOiJIUzI1NiJ9."
    + base64.urlsafe_b64encode(b'{"sub":"canary-canary"}').decode().rstrip("=")
    + "."
    + _MIXED[:43],
    "pem": "-----BEGIN PRIVATE KEY-----\n" + _MIXED[:60] + "\n" + _MIXED[1:61] + "\n-----END PRIVATE KEY-----",
}


def parts_of(secret: str) -> list[str]:
    """What of a secret must be nowhere."""
    return [line for line in secret.splitlines() if not line.startswith("---")]


def leaks(folder: Path, words: list[str]) -> list[str]:
    """Where below the folder a word stands; Parquet is compressed and is looked at as trajectories."""
    texts = {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.suffix != ".parquet"}
    return [f"{word} in {path}" for path, text in texts.items() for word in words if word.encode() in text]


def written_by(folder: Path, server, instrumentor: str, **settings: str):
    """Everything a leaky app wrote and sent; what the server has on record and the app's input lie elsewhere."""
    (folder / "secrets.json").write_text(json.dumps(SECRETS), encoding="utf-8")
    sent = folder / "art" / "sent.jsonl"
    sent.parent.mkdir()
    with receiver(sent) as url:
        command = by_run(live_python(instrumentor), str(APPS / "leaky.py"), str(folder / "secrets.json"))
        resource = f"service.name=x,secret={SECRETS['github']}"
        run = run_app(server, folder, command, OTEL_RESOURCE_ATTRIBUTES=resource, **export_to(url), **settings)
    assert run.code == 0, run.errors
    assert sent.stat().st_size
    return run


def test_no_canary_in_any_byte(server, tmp_path, instrumentor):
    run = written_by(tmp_path, server, instrumentor, ART_OTEL_REQUEST_TOKENS="1")
    assert len(run.trajectories) == len(SECRETS)
    assert all(len(found.calls) == 4 for found in run.trajectories)
    words = [KEY, *(word for secret in SECRETS.values() for word in parts_of(secret))]
    assert leaks(tmp_path / "art", words) == []
    assert leaks(tmp_path / "dataset", words) == []
    text = repr(run.trajectories)
    assert [word for word in words if word in text] == []
    assert "[scrubbed:" in text
    through_otlp, _ = convert_files(tmp_path / "sent", tmp_path / "art" / "sent.jsonl")
    assert through_otlp == run.trajectories


def test_structure_only(server, tmp_path, instrumentor):
    run = written_by(tmp_path, server, instrumentor, ART_OTEL_CAPTURE_CONTENT="0")
    words = ["The key is", "Say it", KEY, *(word for secret in SECRETS.values() for word in parts_of(secret))]
    assert leaks(tmp_path / "art", words) == []
    calls = [call for found in run.trajectories for call in found.calls]
    assert len(calls) == 4 * len(SECRETS)
    assert all(call.request_model for call in calls)
    whole = [call for call in calls if not call.failed and not call.stream]
    assert len(whole) == 2 * len(SECRETS)
    assert all(call.usage and call.usage.output_tokens for call in whole)  # the server counts whole answers only


def test_files_are_private(server, tmp_path):
    run = run_app(server, tmp_path, by_run(live_python("openllmetry"), str(APPS / "pool.py")))
    assert run.code == 0, run.errors
    spool = tmp_path / "art" / "spool"
    assert spool.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in spool.rglob("*.jsonl")} == {0o600}
