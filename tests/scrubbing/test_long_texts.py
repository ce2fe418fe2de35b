"""Hostile texts cost no more than their length: what takes time with its square would not end here."""

import json

import pytest

from art_otel.scrubbing import PATTERNS, Hits, Scrubber
from tests.examples import daily
from tests.scrubbing.secrets import SECRETS, canaries

LENGTH = 200_000


def scrub(text: str) -> str:
    return Scrubber().text(text, Hits())


PIECES = [
    *(pattern.mark for pattern in PATTERNS),
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
    "[scrubbed:",
]


@pytest.mark.parametrize("piece", daily(PIECES, one_in=5))
def test_a_long_run_of(piece):
    secret = SECRETS["openai"][1]
    text = piece * (LENGTH // len(piece))
    Scrubber("content").value("a", json.dumps({"a": text}), Hits(), by_name=True)
    assert secret not in scrub(f"{text}\n\n\n{secret}\n")


@pytest.mark.parametrize("name", ["openai", "jwt", "pem, cut off", "aws, secret", "gitlab, routable"])
def test_a_secret_before_a_long_run(name):
    for letter in "a-_A0+/= .\t\\'\"@:Jé":
        check_before(SECRETS[name][1], name, letter)


def check_before(secret, name, letter):
    scrubbed = scrub(f"{secret}{' ' if name != 'pem, cut off' else ''}{letter * 100_000}")
    assert not [word for word in canaries(secret) if word in scrubbed]
    assert not [word for word in canaries(secret) if word in scrub(letter * 100_000 + f"\n{secret}")]


def test_deep_json_is_read_as_text():
    secret = SECRETS["openai"][1]
    assert secret not in scrub("[" * 100_000 + f'"{secret}"' + "]" * 100_000)
    assert secret not in scrub('{"n": ' + "9" * 10_000 + f', "a": "{secret}"}}')
