"""Hostile texts cost no more than their length: what takes time with its square would not end here."""

import json

import pytest

from art_otel.tracing.redaction import BUILTIN_PATTERNS, Redactor, patterns_for
from tests.tracing.redaction.secrets import SECRETS, canaries

LENGTH = 200_000

asked = Redactor(patterns_for(("email", "url"))).redact_text
redact = Redactor().redact_text

PIECES = [
    *(mark for pattern in BUILTIN_PATTERNS for mark in pattern.marks),
    "sk-a",
    "sk-ant-api03-",
    "sk-aT3BlbkFJ",
    "hf_a",
    "AKIAQ",
    "glpat-a.",
    "xoxb-12345678-",
    "eyJaaaaaaaaaaa",
    "eyJaaaaaaaaaaa.eyJ",
    "eyJaaaaaaaaaaa.eyJaaaaaaaaaaa",
    "secret_access_key:",
    "secret_access_key\\",
    "-----BEGIN PRIVATE KEY-----",
    "-----BEGIN PRIVATE KEY-----\n",
    "-----BEGIN PRIVATE KEY-----" + "MIIE" * 12 + "\n",
    "-----BEGIN PRIVATE KEY-----\nA: b",
    "-----BEGIN A B C D ",
    "-----",
    "://a:",
    "://a:b",
    "://:@",
    "a@",
    "a@b.",
    "a.@",
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
    asked(json.dumps({"a": text}))
    assert secret not in redact(f"{text}\n\n\n{secret}\n")


@pytest.mark.parametrize("name", ["openai", "jwt", "pem, cut off", "aws, secret", "gitlab, routable"])
def test_a_secret_before_a_long_run(name):
    for letter in "a-_A0+/= .\t\\'\"@:Jé":
        check_before(SECRETS[name][1], name, letter)


def check_before(secret, name, letter):
    redacted = redact(f"{secret}{' ' if name != 'pem, cut off' else ''}{letter * 100_000}")
    assert not [word for word in canaries(secret) if word in redacted]
    assert not [word for word in canaries(secret) if word in redact(letter * 100_000 + f"\n{secret}")]


def test_deep_json_is_read_as_text():
    secret = SECRETS["openai"][1]
    assert secret not in redact("[" * 100_000 + f'"{secret}"' + "]" * 100_000)
    assert secret not in redact('{"n": ' + "9" * 10_000 + f', "a": "{secret}"}}')
