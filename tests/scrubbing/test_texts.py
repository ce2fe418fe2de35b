"""What becomes of one text."""

import json
import re

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from art_otel.scrubbing import CONTENT_PATTERNS, PATTERNS, Hits, Mode, Scrubber
from tests.conventions.recorded import MODES, RECORDINGS
from tests.examples import examples
from tests.scrubbing.secrets import SECRETS, any_secret, canaries, plain

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | any_secret,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5) | any_secret, inner, max_size=4),
).filter(lambda value: not isinstance(value, str))


def scrub(text: str, mode: Mode = "on") -> str:
    return Scrubber(mode).text(text, Hits())


def leaks(secret: str, text: str) -> list[str]:
    return [word for word in canaries(secret) if word in text]


COLOR = "\x1b[01;31m\x1b[K"


@pytest.mark.parametrize("name", SECRETS)
@pytest.mark.parametrize("around", ["{}", "It is {}\nas you know.", "'{}'", "_{}", "é{}è", f"KEY={COLOR}{{}}{COLOR}"])
def test_a_secret_is_replaced_by_its_kind(name, around):
    kind, secret = SECRETS[name]
    scrubbed = scrub(around.format(secret))
    assert f"[scrubbed:{kind}]" in scrubbed
    assert not leaks(secret, scrubbed)
    assert scrub(scrubbed) == scrubbed


@given(st.lists(st.tuples(plain, any_secret), min_size=1, max_size=4), plain)
def test_nothing_around_secrets_keeps_them(pieces, last):
    scrubbed = scrub("".join(f"{before} {secret} " for before, secret in pieces) + last)
    assert not [word for _, secret in pieces for word in leaks(secret, scrubbed)]


@given(any_secret, st.integers(0, 4), st.booleans())
def test_json_inside_of_json_is_scrubbed_and_stays_json(secret, depth, ascii_only):
    value: object = {"said": f'"{secret}"\n\t\\ ü', "n": [1.50, True]}
    for _ in range(depth):
        value = {"arguments": json.dumps(value, ensure_ascii=ascii_only)}
    scrubbed = json.loads(scrub(json.dumps(value, ensure_ascii=ascii_only)))
    for _ in range(depth):
        scrubbed = json.loads(scrubbed["arguments"])
    assert scrubbed["n"] == [1.50, True]
    assert not leaks(secret, scrubbed["said"])
    assert scrubbed["said"].endswith(" ü")


@given(json_values, st.booleans(), st.sampled_from([None, 2]))
def test_json_stays_json_of_the_same_shape(value, ascii_only, indent):
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent)
    assert shape(scrub(text, "content")) == shape(text)


def shape(text: str) -> object:
    """A JSON text without keys and strings; several keys may become the same one."""
    return texts_alike(json.loads(text, object_pairs_hook=lambda pairs: [value for _, value in pairs]))


def texts_alike(value: object) -> object:
    if isinstance(value, list):
        return [texts_alike(inner) for inner in value]
    return "text" if isinstance(value, str) else value


@settings(max_examples=examples(1000))
@given(st.sampled_from([*PATTERNS, *CONTENT_PATTERNS]), st.data())
def test_where_a_pattern_matches_its_mark_and_sign_are(pattern, data):
    match = pattern.regex.search(data.draw(st.from_regex(pattern.regex)))
    assume("----" not in match[0] or pattern.kind == "private key")  # a ruler is no key
    ends = re.finditer(re.escape(pattern.mark) if pattern.sign is None else pattern.sign, match[0])
    assert any(match[0].endswith(pattern.mark, 0, found.end()) for found in ends)


@given(any_secret)
def test_a_cut_json_text_leaks_nothing(secret):
    text = json.dumps({"a": json.dumps({"content": f"x\n{secret}\ny", "more": "z" * 40})})
    assert not leaks(secret, scrub(text[: text.index("zz")]))


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
    "eyJub3QiOiJhIGhlYWRlciJ9.eyJzdWIiOiJjYW5hcnkifQ.abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz",
    '["just a list", 1e5, -Infinity]',
]


@pytest.mark.parametrize("text", CASES)
def test_what_is_no_secret_stays(text):
    written = json.dumps({"content": text})
    assert (scrub(text), scrub(written)) == (text, written)


@pytest.mark.parametrize("mode", MODES)
def test_real_recordings_hold_no_secret(mode):
    scrubber = Scrubber()
    for path in sorted((RECORDINGS / mode).glob("*.jsonl")):
        assert not scrubber.holds_secret(path.read_text(encoding="utf-8"))


def test_addresses_and_passwords_in_urls_only_with_content():
    said = "Ask bob.o+x@mail.example.com, 'a@b', at redis://:hunter2@h or https://a:b@h.org/x:y@z."
    assert scrub(said) == said
    assert scrub(said, "content") == (
        "Ask [scrubbed:email], 'a@b', at redis://[scrubbed:url password]@h"
        " or https://[scrubbed:url password]@h.org/x:y@z."
    )
    for text in ("\nbob@x.org", "\té bob@x.org", "ébob@x.org"):
        assert "bob" not in json.loads(scrub(json.dumps({"to": json.dumps(text)}), "content"))["to"]


@pytest.mark.parametrize("name", SECRETS)
def test_marking_alters_nothing_and_counts_the_same(name):
    secret = SECRETS[name][1]
    value = {"a": [secret, {"b": json.dumps({"password": "p", "c": secret})}], "cookie": "x"}
    replaced, marked = Hits(), Hits()
    assert Scrubber("mark").value("a", value, marked, by_name=True) is value
    assert secret not in str(Scrubber("on").value("a", value, replaced, by_name=True))
    assert marked.count == replaced.count == 4


NAMES = ["authorization", "Cookie", "set-cookie", "api_key", "X-Api-Key", "password", "secret", "client_secret"]


@pytest.mark.parametrize("name", [*NAMES, "private_key", "access_token", "refresh_token"])
def test_values_of_secret_names_go_wherever_the_name_stands(name):
    def named(name: str, value: object) -> object:
        return Scrubber().value(name, value, Hits(), by_name=True)

    gone = f"[scrubbed:{name.lower().replace('-', ' ').replace('_', ' ')}]"
    assert named(f"http.request.header.{name}", "short") == gone
    assert named(name, ["a", "b"]) == [gone, gone]
    assert named("headers", {name: "short", "n": 1}) == {name: gone, "n": 1}
    inner = json.dumps({"a": [{f"x.{name}": "short", f"{name}_policy": "y", "é": 1.5}]}, ensure_ascii=False)
    told = named("body", json.dumps({"inner": inner}))
    assert json.loads(json.loads(told)["inner"]) == {"a": [{f"x.{name}": gone, f"{name}_policy": "y", "é": 1.5}]}
    for other, value in ((f"OPENAI_{name}", "x"), (name, 5), (name, ""), (name, gone), ("text", f"the {name}: x")):
        assert named(other, value) == value
    assert Scrubber().value(name, "short", Hits(), by_name=False) == "short"


def test_chunks_hold_a_secret_together():
    secret = SECRETS["anthropic"][1]
    chunks = [secret[:30], secret[30:60], secret[60:]]
    assert Scrubber().split_secret(chunks)
    assert not Scrubber().split_secret([*chunks[:2], "other"])
    assert Scrubber().value("chunks", tuple(chunks), Hits(), by_name=True) == ["[scrubbed:pieces]"] * 3


def test_a_conversation_that_goes_on_is_read_where_it_goes_on():
    """What was clean is remembered; a secret is found wherever it comes in, also across the seam."""
    scrubber, secret = Scrubber(), SECRETS["github"][1]
    said = ["x" * 500] * 20
    for _ in range(5):
        assert not scrubber.holds_secret(json.dumps(said))
        said += ["y" * 500]
    for number in range(len(said)):
        assert scrubber.holds_secret(json.dumps([*said[:number], secret, *said[number:]]))
    half = json.dumps(said)[:-2] + secret[:12]
    assert not scrubber.holds_secret(half)
    assert scrubber.holds_secret(half + secret[12:])


def test_many_conversations_that_take_turns_are_remembered():
    scrubber, secret = Scrubber(), SECRETS["github"][1]
    said = [["shared " * 600, f"{number} " * 800] for number in range(300)]
    for turn in range(3):
        for one in said:
            text = json.dumps(one)
            assert turn == 0 or scrubber._clean_length(text) > 0.9 * len(text)
            assert scrubber.holds_secret(json.dumps([*one, secret]))
            assert not scrubber.holds_secret(text)
            one.append("more " * 20)
    branch = json.dumps([*said[0][:2], "another answer"])
    assert scrubber._clean_length(branch) > 0.9 * len(branch)


@settings(max_examples=examples(50))
@given(st.lists(st.tuples(st.integers(0, 30), st.sampled_from("abc"), st.booleans()), min_size=1, max_size=30))
def test_what_is_remembered_changes_nothing(turns):
    """Of conversations that branch anywhere, the same is found as by a scrubber that remembers nothing."""
    scrubber, texts = Scrubber(), ["z" * 4200]
    for before, letter, has_secret in turns:
        text = texts[before % len(texts)] + letter * 3000 + (SECRETS["github"][1] if has_secret else "")
        assert scrubber.holds_secret(f"{text}..") == Scrubber().holds_secret(f"{text}..")
        texts.append(text)


def test_what_is_remembered_has_a_bound(monkeypatch):
    monkeypatch.setattr("art_otel.scrubbing.scrubber._MAX_REMEMBERED_LENGTH", 50_000)
    scrubber = Scrubber()
    for number in range(40):
        scrubber.holds_secret(f"{number} " * 2000)
        texts, length = scrubber._clean
        assert list(texts) == sorted(texts)
        assert length == sum(map(len, texts)) <= 50_000
