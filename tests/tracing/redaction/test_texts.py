"""What becomes of one text."""

import json
import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from art_otel.tracing.redaction import BUILTIN_PATTERNS, EMAIL, Redactor, SecretPattern
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


@given(any_secret, st.booleans())
def test_letters_written_as_escapes_hide_nothing(secret, only_the_first):
    letters = [letter if only_the_first and place else f"\\u{ord(letter):04x}" for place, letter in enumerate(secret)]
    redacted = redact(f'{{"a": "{"".join(letters)}"}}' if "\n" not in secret else json.dumps({"a": secret}))
    assert not [word for word in canaries(secret) if word in json.loads(redacted)["a"]]


ESC = "\x1b"
COLOURS = [f"{ESC}[m", f"{ESC}[0m", f"{ESC}[01;31m{ESC}[K", f"{ESC}[38;5;196m", f"{ESC}[38;2;255;10;100m", f"{ESC}[2K"]
SPELLED = [r"\033[1m", r"\e[0;31m", r"\x1b[K", r"\u001b[m", r"\u001B[32m"]
CODED = ["%3Ftoken%3D", "%0a", "%20"]


@pytest.mark.parametrize("name", SECRETS)
@pytest.mark.parametrize("before", [*COLOURS, *SPELLED, *CODED])
def test_what_is_coloured_or_coded_before_a_secret_hides_nothing(name, before):
    kind, secret = SECRETS[name]
    for text in (
        f"KEY={before}{secret}{ESC}[m{ESC}[K",
        f"a {json.dumps(before + secret)}",
        json.dumps(before + secret),
    ):
        redacted = redact(text)
        assert f"[redacted:{kind}]" in redacted
        assert not [word for word in canaries(secret) if word in redacted]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("%20Bearer%20opensesame1%26", "%20Bearer%20[redacted:bearer token]%26"),
        ("Authorization%3A%20Basic%20dXNlcjpwdzE%3D", "Authorization%3A%20Basic%20[redacted:authorization]%3D"),
        ('{"authorization": "opensesame"}', '{"authorization": "[redacted:authorization]"}'),
        ('{"X-Api-Key" : "a b"}', '{"X-Api-Key" : "[redacted:api key]"}'),
        ('{"api_key": "", "n": 1}', '{"api_key": "", "n": 1}'),
        ('{"api_key": {"type": "string"}}', '{"api_key": {"type": "string"}}'),
        ('{"api_key": 5, "b": "c"}', '{"api_key": 5, "b": "c"}'),
        ("{'x-api-key': 'Bearer a b c d e'}", "{'x-api-key': '[redacted:api key]'}"),
        ("('authorization', 'some thing')", "('authorization', '[redacted:authorization]')"),
        (r'cut: {"authorization": "Token t=\"abcdef\"", "', 'cut: {"authorization": "[redacted:authorization]", "'),
        ("-H 'Authorization: token abcdef1' -d", "-H 'Authorization: [redacted:authorization]' -d"),
        ("AUTHORIZATION=abcdef123", "AUTHORIZATION=[redacted:authorization]"),
        ("redis://:hunter2@h", "redis://[redacted:url password]@h"),
        (r"https:\/\/a:b@h", r"https:\/\/[redacted:url password]@h"),
    ],
)
def test_headers_keys_and_urls(text, expected):
    assert redact(text) == expected
    assert redact(expected) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "The risk-averse task-force of disk-based sk-learn users asks for authorization: now.",
        "[msk-cluster-production-1] [ask-me-anything-about-2024] 5mask-me-anything-about-2024 %task-force-of-2024",
        "/search?q=Basic%20understanding%20of%20it&r=bearer%20bonds%20of%201990",
        "<div class='sk-toggleable__label-arrow'>",
        "an AKIA prefix, an AIza prefix, ghp_short, hf_hub, xoxb-, eyJ, a bearer of news, Basic understanding",
        "the header Authorization: <token> and api_key=os.environ['KEY']",
        "https://example.com/a:b@c and bob@example.com",
        '{"password": "the agent needs it", "token": "too"}',
        "-----BEGIN PRIVATE KEY----- is how a key begins",
        "eyJhbGciOiJIUzI1NiJ9 is only the beginning of one",
        '["just a list", 1e5, -Infinity]',
    ],
)
def test_what_is_no_secret_stays(text):
    assert redact(text) in (text, text.replace("-----BEGIN PRIVATE KEY-----", "[redacted:private key]"))


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
    text = 'Ask bob.o+x@mail.example.com, "a@b".'
    assert redact(text) == text
    asked = Redactor(emails=True).redact_text
    assert asked(text) == 'Ask [redacted:email], "a@b".'
    assert json.loads(asked(json.dumps({"to": "\nbob@x.org"}))) == {"to": "\n[redacted:email]"}
    assert Redactor([EMAIL]).redact_text("bob@x.org") == "[redacted:email]"


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
