r"""SecretPattern: the form of one kind of secret. And the names under which every text is a secret.

Invariant: a pattern matches secrets and no other text that people write: it has a provider's prefix and the exact
length and alphabet of its keys. Only such a pattern can be replaced in content without changing what a model learns. No
match crosses a quotation mark, so JSON stays valid, also JSON inside of JSON. Of a name only the last segment counts
(`http.request.header.authorization`), and it must be one of the secret names exactly.

Sources: the providers' documentation, gitleaks' rules, RFC 7519 (JWT), RFC 7468 (PEM), RFC 3986 (URLs).
"""

import base64
import binascii
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

_MIN_DISTINCT: Final = 8
"""A text with fewer different characters is a placeholder, as in `ghp_xxxx…`."""


def is_no_example(secret: str) -> bool:
    """Whether a text with the form of a secret is a real one, and no placeholder of a documentation."""
    return len(set(secret)) >= _MIN_DISTINCT and "example" not in secret.lower()


@dataclass(frozen=True, kw_only=True, slots=True)
class SecretPattern:
    """One kind of secret. If the regex has a group `secret`, only that group is replaced.

    `mark` and `sign` make the search fast. Every match contains the text `mark`, and the mark ends with a match of
    `sign` (one character before a long word). So a text without that sign cannot match any of the patterns that share
    it. A pattern with an empty mark is tried on each text. `is_secret` decides at the end about each match.
    """

    kind: str
    mark: str
    regex: re.Pattern[str]
    sign: re.Pattern[str] | None = None
    is_secret: Callable[[str], bool] = is_no_example


def own_pattern(regex: re.Pattern[str]) -> SecretPattern:
    """A pattern that the app's owner has set; every match counts as a secret."""
    return SecretPattern(kind="own pattern", mark="", regex=regex, is_secret=bool)


_UNDERSCORE: Final = re.compile("_(?=[A-Za-z0-9]{19})")
_DASH: Final = re.compile("-(?=(?!---)[A-Za-z0-9_-]{19})")
_DOT: Final = re.compile(r"\.(?=[A-Za-z0-9_-]{19})")
_CAPITAL: Final = re.compile("A(?=(?:[KS]IA|Iza)[A-Za-z0-9_-]{16})")
_PAYLOAD: Final = re.compile(r"\.(?=eyJ)")
SIGNS: Final = {_UNDERSCORE: "_", _DASH: "-", _DOT: ".", _CAPITAL: "A", _PAYLOAD: "J"}
"""Each sign is one character before a long word, or before a text that only tokens have. `re` finds a single character
many times as fast as one of several prefixes. By sign the rare character that every match of its patterns has: a text
without it needs no search, and `str.find` tells that ten times as fast as `re`."""

RARE: Final = "VYKA_"
"""Characters that are rare in prompts and answers, the rarest first."""

_END: Final = "(?![A-Za-z0-9_-])"


def _key(kind: str, prefix: str, rest: str, sign: re.Pattern[str] | None = None) -> SecretPattern:
    r"""The pattern of keys with a prefix. No backslash may stand before it: in JSON, "\npm_" is a newline and "pm_"."""
    regex = re.compile(rf"(?<!\\){re.escape(prefix)}(?:{rest}){_END}")
    return SecretPattern(kind=kind, mark="A" if sign is _CAPITAL else prefix, regex=regex, sign=sign)


def _plain(length: int | str) -> str:
    return f"[A-Za-z0-9]{{{length}}}"


def _word(length: int | str) -> str:
    return f"[A-Za-z0-9_-]{{{length}}}"


def _hex(length: int) -> str:
    return f"[0-9a-f]{{{length}}}"


_OPENAI: Final = SecretPattern(
    kind="openai key",
    mark="sk-",
    regex=re.compile(rf"(?<!\\)sk-(?:{_word('20,90')}?)T3BlbkFJ{_word('20,90')}"),
    sign=_DASH,
)


def _aws_secret(name: str) -> SecretPattern:
    """The pattern of a secret that is assigned to a name. AWS's secret keys have no prefix of their own."""
    quote, space = r"""(?:\\*+["'])?""", r"\s{0,8}"
    regex = rf"{name}{quote}{space}[:=]{space}{quote}(?P<secret>[A-Za-z0-9/+]{{40}})(?![A-Za-z0-9/+=_-])"
    return SecretPattern(kind="aws key", mark=name, regex=re.compile(regex))


_AWS_NAMES: Final = ("secret_access_key", "SECRET_ACCESS_KEY", "secretAccessKey", "SecretAccessKey")

_EXAMPLE_PAYLOADS: Final = (".eyJzdWIiOiIxMjM0NTY3ODkwIi", ".eyJzb21lIjoicGF5bG9hZCJ9.", ".eyJpc3MiOiJqb2UiLA0K")
"""The beginnings of well-known examples: jwt.io's `{"sub":"1234567890"`, PyJWT's `{"some":"payload"}`, RFC 7519's."""


def _is_jwt(text: str) -> bool:
    """Whether the header names an algorithm, and the payload is no well-known example."""
    header = text.partition(".")[0]
    try:
        # A JWT omits the padding of base64, which the decoder needs.
        decoded: object = json.loads(base64.urlsafe_b64decode(header + "=" * (-len(header) % 4)))
    except (binascii.Error, ValueError, RecursionError):
        return False
    return isinstance(decoded, dict) and "alg" in decoded and not any(part in text for part in _EXAMPLE_PAYLOADS)


_JWT: Final = SecretPattern(
    kind="jwt",
    mark=".",
    regex=re.compile(r"eyJ[A-Za-z0-9_-]{10,1024}+\.eyJ[A-Za-z0-9_-]{10,}+\.[A-Za-z0-9_-]{43,}+"),
    sign=_PAYLOAD,
    is_secret=_is_jwt,
)

_BREAK: Final = r"(?:\s|\\+[nr])"
_BASE64: Final = "[A-Za-z0-9+/=]"
_PEM: Final = SecretPattern(
    kind="private key",
    mark="PRIVATE KEY",
    regex=re.compile(
        r"-----BEGIN (?:[A-Z0-9]{1,20} ){0,4}PRIVATE KEY(?: BLOCK)?-----"
        rf"(?:{_BREAK}++[A-Za-z-]{{1,30}}: [^\r\n\\\"]{{0,200}}){{0,16}}+"
        rf"{_BREAK}*+{_BASE64}{{40,}}+(?:{_BREAK}*+{_BASE64}{{16,}}+)*+"
        rf"(?:(?:{_BREAK}++{_BASE64}++){{0,2}}+{_BREAK}*+-----END [A-Z0-9 ]{{0,60}}-----|(?:{_BREAK}++{_BASE64}++)?+)"
    ),
)
"""A private key with its body. The smallest body (Ed25519) has 64 characters; the end may be cut off."""

PATTERNS: Final[tuple[SecretPattern, ...]] = (
    _key("anthropic key", "sk-ant-", rf"[a-z]{{3,6}}[0-9]{{2}}-{_word(93)}AA", _DASH),
    _OPENAI,
    _key("hugging face token", "hf_", _plain(34), _UNDERSCORE),
    _key("hugging face token", "api_org_", _plain(34), _UNDERSCORE),
    _key("aws key", "AKIA", "[A-Z2-7]{16}", _CAPITAL),
    _key("aws key", "ASIA", "[A-Z2-7]{16}", _CAPITAL),
    *map(_aws_secret, _AWS_NAMES),
    *(_key("github token", f"gh{letter}_", _plain("36,255"), _UNDERSCORE) for letter in "pousr"),
    _key("github token", "github_pat_", f"{_plain(22)}_{_plain(59)}", _UNDERSCORE),
    _key("gitlab token", "glpat-", rf"{_word(20)}|{_word('27,300')}\.[0-9a-z]{{9}}", _DASH),
    *(_key("gitlab token", prefix, _word(20), _DASH) for prefix in ("gldt-", "glrt-", "glcbt-")),
    _key("google key", "AIza", _word(35), _CAPITAL),
    _key("google key", "GOCSPX-", _word(28), _DASH),
    _key("google token", "ya29.", _word("60,512"), _DOT),
    *(_key("slack token", f"xox{c}-", rf"(?:[0-9]{{8,14}}-){{1,3}}{_plain('18,64')}", _DASH) for c in "abeoprs"),
    _key("slack token", "xapp-", rf"[0-9]-[A-Z0-9]{{9,13}}-[0-9]{{10,15}}-{_hex(64)}", _DASH),
    *(_key("stripe key", prefix, _plain("24,247"), _UNDERSCORE) for prefix in ("sk_live_", "rk_live_")),
    _key("npm token", "npm_", _plain(36), _UNDERSCORE),
    _key("pypi token", "pypi-", f"AgEIcHlwaS5vcmc{_word('50,1000')}", _DASH),
    _key("groq key", "gsk_", _plain(52), _UNDERSCORE),
    _key("xai key", "xai-", _plain(80), _DASH),
    _key("nvidia key", "nvapi-", _word(64), _DASH),
    _key("perplexity key", "pplx-", _plain(48), _DASH),
    _key("openrouter key", "sk-or-v1-", _hex(64), _DASH),
    _key("tavily key", "tvly-", f"(?:dev-|prod-)?{_plain(32)}", _DASH),
    _key("replicate token", "r8_", _plain(37), _UNDERSCORE),
    *(_key("langsmith key", prefix, f"{_hex(32)}_{_hex(10)}", _UNDERSCORE) for prefix in ("lsv2_pt_", "lsv2_sk_")),
    _key("docker token", "dckr_pat_", _word(27)),
    _key("sendgrid key", "SG.", rf"{_word(22)}\.{_word(43)}", _DOT),
    _key("digitalocean token", "dop_v1_", _hex(64), _UNDERSCORE),
    _JWT,
    # The last, because the lines of one that is cut off would take the beginning of a key that follows.
    _PEM,
)
"""Keys of providers and clouds, private keys and JSON web tokens, anywhere in a text. The first pattern that matches
wins."""

CONTENT_PATTERNS: Final[tuple[SecretPattern, ...]] = (
    SecretPattern(
        kind="url password",
        mark="://",
        regex=re.compile(r"""://(?P<secret>(?!\[scrubbed:)[^\s/?#@:"'\\<>]{0,256}+:[^\s/?#@"'\\<>]{1,256}+)@"""),
        is_secret=bool,
    ),
    SecretPattern(
        kind="email",
        mark="@",
        # It begins behind what is no part of an address, or behind an escape of JSON.
        regex=re.compile(
            r"(?:(?<![A-Za-z0-9._%+\\-])|(?<=\\[nrtbf])|(?<=\\u[0-9a-fA-F]{4}))"
            r"[A-Za-z0-9._%+-]{1,64}+@[A-Za-z0-9.-]{1,255}\.[A-Za-z]{2,24}"
        ),
        is_secret=bool,
    ),
)
"""Patterns for the mode `content` only: ordinary content is full of such texts."""

_NAMES: Final = frozenset(
    {"authorization", "cookie", "set_cookie", "api_key", "x_api_key", "password", "secret", "client_secret"}
    | {"private_key", "access_token", "refresh_token"}
)
"""The secret names, with `_` for `-`: OpenTelemetry's instrumentors write the names of headers in both ways."""

_KEY: Final = re.compile(rf'[".](?:{"|".join(sorted(_NAMES)).replace("_", "[-_]")})\\*+"\s*+:', re.IGNORECASE)


@lru_cache(maxsize=4096)
def secret_name(name: str) -> str | None:
    """The kind of secret under this name: "set cookie" for `http.response.header.set-cookie`; None for other names."""
    last = name.rpartition(".")[2].lower().replace("-", "_")
    return last.replace("_", " ") if last in _NAMES else None


def may_name_secrets(text: str) -> bool:
    """Whether a JSON text, or JSON inside of it, may have a key that is a secret name."""
    return _KEY.search(text) is not None
