"""Hostile texts cost no more than their length: what takes time with its square would not end here."""

import json

import pytest

from art_otel.tracing.redaction import Redactor
from tests.tracing.redaction.secrets import SECRETS, canaries

LENGTH = 200_000

redact = Redactor(emails=True).redact_text

PIECES = [
    "sk-",
    "-sk-a",
    "sk-ant-",
    "hf_",
    "_hf_a",
    "AKIA",
    " AKIAQ",
    "ghp_ghp_",
    "-AIza",
    "AIza_",
    "xoxb-",
    "-eyJ",
    "eyJaaaaaaaa.",
    "-eyJaaaaaaaa",
    "eyJ.",
    "Bearer ",
    "bearer a",
    "Bearer\t\t",
    "Basic a",
    "authorization: ",
    "authorization: a ",
    "authorization: a=\\",
    "Authorization:'",
    'authorization": "',
    "authorization\\\\\\",
    "api_key': '",
    "x-api-key=a",
    "secret_access_key:",
    "-----BEGIN PRIVATE KEY-----",
    "-----BEGIN PRIVATE KEY-----\n",
    "-----BEGIN PRIVATE KEY-----MIIEMIIEMIIEMIIE\n",
    "-----BEGIN A B C D ",
    "-----",
    "://a:",
    "://a:b",
    "://:@",
    ":\\\\\\",
    "a@",
    "a@b.",
    "a.@",
    "@",
    "\\u0041",
    "\\",
    '"',
    '["',
    "[",
    '{"a":',
    '\\"',
    "[redacted:",
]


@pytest.mark.parametrize("piece", PIECES)
def test_a_long_run_of(piece):
    secret = SECRETS["openai"][1]
    text = piece * (LENGTH // len(piece))
    redact(json.dumps({"a": text}))
    assert secret not in redact(f"{text}\n\n\n{secret}\n")


@pytest.mark.parametrize("letter", "a-_A0+/= .\t\\'\"@:Jé")
@pytest.mark.parametrize("name", ["openai", "bearer", "header", "jwt", "pem, cut off", "url", "api key header"])
def test_a_secret_before_a_long_run(name, letter):
    secret = SECRETS[name][1]
    redacted = redact(f"{secret}{' ' if name != 'pem, cut off' else ''}{letter * 100_000}")
    assert not [word for word in canaries(secret) if word in redacted]
    assert not [word for word in canaries(secret) if word in redact(letter * 100_000 + f"\n{secret}")]


def test_deep_json_is_read_as_text():
    secret = SECRETS["openai"][1]
    assert secret not in redact("[" * 100_000 + f'"{secret}"' + "]" * 100_000)
    assert secret not in redact('{"n": ' + "9" * 10_000 + f', "a": "{secret}"}}')
