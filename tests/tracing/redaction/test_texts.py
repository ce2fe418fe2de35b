"""What becomes of one text."""

import json
import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from art_otel.tracing.redaction import BUILTIN_PATTERNS, Redactor, SecretPattern, patterns_for
from tests.conventions.recorded import MODES, RECORDINGS
from tests.tracing.redaction.secrets import SECRETS, any_secret, canaries, plain

redact = Redactor().redact_text

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | any_secret,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5) | any_secret, inner, max_size=4),
).filter(lambda value: not isinstance(value, str))


@pytest.mark.parametrize("name", SECRETS)
def test_a_secret_is_replaced_by_its_kind(name):
    kind, secret = SECRETS[name]
    for text in (secret, f"It is {secret}\nas you know.", f"'{secret}'", f"é{secret}è" if name != "header" else secret):
        redacted = redact(text)
        assert f"[redacted:{kind}]" in redacted
        assert not [word for word in canaries(secret) if word in redacted]


@given(st.lists(st.tuples(plain, any_secret), min_size=1, max_size=4), plain)
def test_nothing_around_secrets_keeps_them(pieces, last):
    text = "".join(f"{before} {secret} " for before, secret in pieces) + last
    redacted = redact(text)
    for _, secret in pieces:
        assert not [word for word in canaries(secret) if word in redacted]


@given(any_secret, st.integers(0, 4), st.booleans())
def test_json_inside_of_json_is_redacted_and_stays_json(secret, depth, ascii_only):
    value: object = {"said": f'"{secret}"\n\t\\ ü', "n": [1.50, True]}
    for _ in range(depth):
        value = {"arguments": json.dumps(value, ensure_ascii=ascii_only)}
    redacted = json.loads(redact(json.dumps(value, ensure_ascii=ascii_only)))
    for _ in range(depth):
        redacted = json.loads(redacted["arguments"])
    assert redacted["n"] == [1.50, True]
    assert not [word for word in canaries(secret) if word in redacted["said"]]
    assert redacted["said"].endswith(" ü")


@given(json_values, st.booleans(), st.sampled_from([None, 2]))
def test_json_stays_json_of_the_same_shape(value, ascii_only, indent):
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent)
    assert shape(redact(text)) == shape(text)


def shape(text: str) -> object:
    """A JSON text without keys and strings; several keys may become the same one."""
    return texts_alike(json.loads(text, object_pairs_hook=lambda pairs: [value for _, value in pairs]))


def texts_alike(value: object) -> object:
    if isinstance(value, list):
        return [texts_alike(inner) for inner in value]
    return "text" if isinstance(value, str) else value


@given(json_values)
def test_the_app_s_patterns_and_hook_cannot_break_json(value):
    hostile = Redactor([r'[":,{}\\]', r"\d+", r"."], hook=lambda text: f'{text}"\\\n\ud800')
    text = json.dumps({"value": value})
    json.loads(hostile.redact_text(text))


@given(any_secret)
def test_a_cut_json_text_leaks_nothing(secret):
    text = json.dumps({"a": json.dumps({"content": f"x\n{secret}\ny", "more": "z" * 40})})
    redacted = redact(text[: text.index("zz")])
    assert not [word for word in canaries(secret) if word in redacted]


ESC = "\x1b"
COLOURS = [f"{ESC}[m", f"{ESC}[0m", f"{ESC}[01;31m{ESC}[K", f"{ESC}[38;5;196m", f"{ESC}[38;2;255;10;100m", f"{ESC}[2K"]
CODED = [r"\033[1m", r"\u001b[m", "%3Ftoken%3D", "%20", "_", "x"]


@pytest.mark.parametrize("before", [*COLOURS, *CODED])
def test_nothing_before_a_secret_hides_it(before):
    for kind, secret in SECRETS.values():
        for text in (
            f"KEY={before}{secret}{ESC}[m{ESC}[K",
            f"a {json.dumps(before + secret)}",
            json.dumps(before + secret),
        ):
            redacted = redact(text)
            assert f"[redacted:{kind}]" in redacted
            assert not [word for word in canaries(secret) if word in redacted]


@given(st.sampled_from([prefix for pattern in BUILTIN_PATTERNS for prefix in pattern.marks]), st.text(max_size=9))
def test_an_escape_of_json_before_a_key_stays_whole(prefix, before):
    key = prefix.lstrip(".") + "aA1bB2cC3dD4eE5fF6gG7hH8iI9jJ0kK1lL2mM3nN4oO5pP6qQ7rR8sS9"
    for cut in range(1, 60):
        for text in (f"{before}\n{key[1:cut]}", f"{before}\u20ae{key[1:cut]}", f"{before}\\{key[:cut]}"):
            for written in (json.dumps(text), json.dumps(json.dumps({"a": text}))):
                json.loads(redact(written))


JWT_OF_THE_DOCUMENTATION = (
    "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiIxMjM0NTY3ODkwIiwibmFtZSI6IkpvaG4gRG9lIiwiaWF0IjoxNTE2MjM5MDIyfQ"
    ".SflKxwRJSMeKKF2QT4fwpMeJf36POk6yJV_adQssw5c"
)

CASES = [
    "",
    "postgresql://postgres:postgres@localhost",
    "git clone https://oauth2:token@gitlab.example/x.git && redis-cli -u redis://:hunter2@h",
    "<div class='sk-toggleable-content-Box1'> <div class='sk-toggleable__label-arrow'>",
    ".sk-toggleable-content-Box1 { color: red } #sk-container-id-1 .sk-estimator-doc-link.Fitted1",
    "The risk-averse task-force of disk-based sk-learn users asks for authorization: now.",
    "task-0123456789abcdef0123456789abcdef disk-550e8400-e29b-41d4-a716-446655440000",
    "an AKIA prefix, an AIza prefix, ghp_short, hf_hub_download_of_a_file, xoxb-, eyJ, a bearer of news",
    "export AWS_ACCESS_KEY_ID=AKIAIOSFODNN7EXAMPLE",
    "aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
    "GITHUB_TOKEN=ghp_xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx OPENAI_API_KEY=sk-xxxxxxxxxxxxxxxxxxxxxxxx sk-your-key-here",
    "sk-1234567890abcdef1234567890abcdef and sk-proj-abc123 and sk_test_4eC39HqLyjWDarjtT1zdp7dc",
    "curl -H 'Authorization: Bearer $TOKEN' -H 'x-api-key: abcdef123456' -u user:pass",
    'client = OpenAI(api_key="not-needed-by-vllm", headers={"Authorization": "Basic dXNlcjpwdzE="})',
    "https://example.com/a:b@c and bob@example.com",
    '{"password": "the agent needs it", "token": "too", "api_key": "as well", "authorization": "opensesame"}',
    "-----BEGIN PRIVATE KEY----- is how a key begins",
    "-----BEGIN PRIVATE KEY-----\n...\n-----END PRIVATE KEY-----",
    "-----BEGIN PUBLIC KEY-----\nMIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8AMIIBCgKCAQEAu1SU1LfVLPHCozMxH2Mo\n-----END",
    "eyJhbGciOiJIUzI1NiJ9 is only the beginning of one",
    JWT_OF_THE_DOCUMENTATION,
    "eyJub3QiOiJhIGhlYWRlciJ9.eyJzdWIiOiJjYW5hcnkifQ.abcdefghijklmnopqrstuvwxyz",
    '["just a list", 1e5, -Infinity]',
]


@pytest.mark.parametrize("text", CASES)
def test_what_is_no_secret_stays(text):
    assert redact(text) == text
    assert redact(json.dumps({"content": text})) == json.dumps({"content": text})


@pytest.mark.parametrize("mode", MODES)
def test_real_recordings_hold_no_secret(mode):
    for path in sorted((RECORDINGS / mode).glob("*.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines():
            assert redact(line) == line


@given(st.text())
@example("[redacted:x] sk-")
def test_redacting_twice_changes_nothing_more(text):
    once = redact(text)
    assert redact(once) == once


@pytest.mark.parametrize("name", SECRETS)
def test_what_was_redacted_is_not_redacted_again(name):
    once = redact(f"It is {SECRETS[name][1]}.")
    assert redact(once) == once


def test_emails_only_when_asked():
    text = 'Ask bob.o+x@mail.example.com, "a@b", at http://a:b@h.'
    assert redact(text) == text
    asked = Redactor(patterns_for(("email",))).redact_text
    assert asked(text) == 'Ask [redacted:email], "a@b", at http://a:b@h.'
    assert json.loads(asked(json.dumps({"to": "\nbob@x.org"}))) == {"to": "\n[redacted:email]"}


def test_passwords_in_urls_only_when_asked():
    asked = Redactor(patterns_for(("url",))).redact_text
    assert asked("redis://:hunter2@h of bob@x.org") == "redis://[redacted:url password]@h of bob@x.org"
    assert asked('{"a": "https://a:b@h"}') == '{"a": "https://[redacted:url password]@h"}'
    assert asked("https://example.com/a:b@c") == "https://example.com/a:b@c"
    both = Redactor(patterns_for(("email", "url"))).redact_text
    assert both("https://a:b@h.org, b@h.org") == "https://[redacted:url password]@h.org, [redacted:email]"


def test_patterns_of_the_app():
    own = Redactor([*BUILTIN_PATTERNS, r"\bP-\d+", re.compile("josé", re.IGNORECASE)]).redact_text
    assert own("JOSÉ has P-17") == "[redacted:pattern] has [redacted:pattern]"
    assert own(SECRETS["openai"][1]) == "[redacted:openai key]"
    assert own(json.dumps({"who": "José"})) == '{"who": "[redacted:pattern]"}'
    named = Redactor([SecretPattern(kind="id", regex=re.compile("id=(?P<secret>[0-9]+)|no"))]).redact_text
    assert named("id=17 no") == "id=[redacted:id] no"
    assert Redactor([r"\d{9}"]).redact_text('{"n": 123456789, "m": 12}') == '{"n": "[redacted:pattern]", "m": 12}'
    assert Redactor([r"x*"]).redact_text("axxb") == "a[redacted:pattern]b"
    assert Redactor([]).redact_text(SECRETS["openai"][1]) == SECRETS["openai"][1]


def test_a_pattern_needs_a_mark_that_is_rare():
    with pytest.raises(ValueError, match="'sec' needs one of the characters"):
        Redactor([SecretPattern(kind="x", regex=re.compile("secret"), marks=("sec",))])


def test_the_hook_sees_each_text_after_the_patterns():
    seen: list[str] = []

    def hook(text: str) -> str:
        seen.append(text)
        return text.replace("Bob", "B.")

    secret = SECRETS["openai"][1]
    text = json.dumps({"Bob": ["I am Bob", json.dumps({"x": f"{secret} of Bob"})], "n": 1})
    assert json.loads(Redactor(hook=hook).redact_text(text)) == {
        "Bob": ["I am B.", json.dumps({"x": "[redacted:openai key] of B."})],
        "n": 1,
    }
    assert seen == ["I am Bob", "[redacted:openai key] of Bob"]


def fails(_text: str) -> str:
    raise RuntimeError("no")


@pytest.mark.parametrize("hook", [fails, lambda _text: None])
def test_what_a_hook_fails_on_is_left_out_and_told_once(hook, caplog):
    redactor = Redactor(hook=hook)
    assert redactor.redact_text("anything") == "[redacted:hook failed]"
    assert redactor.redact_text('{"a": "b", "n": 1}') == '{"a": "[redacted:hook failed]", "n": 1}'
    assert [record.message for record in caplog.records] == [
        "art-otel: the redaction hook failed; what it was given is left out"
    ]
