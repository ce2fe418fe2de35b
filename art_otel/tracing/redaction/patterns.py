r"""SecretPattern: what one kind of secret looks like in a text.

Invariant: what matches is a secret and nothing else that people write: a vendor's prefix with the real length and
alphabet of its keys. Only such forms can stand in content without taking away what a model learns from. A match is
within one string of JSON, however deep that stands in others, so that JSON stays valid.

Sources: the vendors' documentation of their keys, gitleaks' rules, RFC 7519 (JWT), RFC 7468 (PEM), RFC 3986 (URLs).
"""

import base64
import binascii
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

_FEW: Final = 8
"""Fewer different characters than this are a placeholder, `ghp_xxxx…`."""


def is_no_example(secret: str) -> bool:
    """Whether a text of the form of a secret is none that documentation shows."""
    return len(set(secret)) >= _FEW and "example" not in secret.lower()


@dataclass(frozen=True, kw_only=True, slots=True)
class SecretPattern:
    """A kind of secret. Where the regex has a group `secret`, that group alone is replaced.

    Every match contains one of `marks`, by which texts without secrets are passed over quickly. Without marks each text
    is searched, string by string where it is JSON. `is_secret` looks at what the regex matched.
    """

    kind: str
    regex: re.Pattern[str]
    marks: tuple[str, ...] = ()
    is_secret: Callable[[str], bool] = bool


def begins(prefix: str) -> str:
    r"""A regex for a literal prefix, of which no letter belongs to an escape of JSON: `\npm_` begins with `pm_`."""
    return rf"{prefix}(?<!\\{prefix})(?<!\\u[0-9a-fA-F]{{3}}{prefix})"


def _keys(kind: str, forms: Mapping[str, str]) -> SecretPattern:
    """Keys by their prefixes, each with what follows it."""
    regex = "|".join(f"{begins(prefix)}(?:{rest})" for prefix, rest in forms.items())
    return SecretPattern(kind=kind, regex=re.compile(regex), marks=tuple(forms), is_secret=is_no_example)


_END: Final = "(?![A-Za-z0-9_-])"


def _word(length: int) -> str:
    """As many letters, digits, `_` and `-`, and no more."""
    return f"[A-Za-z0-9_-]{{{length}}}{_END}"


def _plain(length: int | str) -> str:
    """As many letters and digits, and no more."""
    return f"[A-Za-z0-9]{{{length}}}{_END}"


def _hex(length: int) -> str:
    return f"[0-9a-f]{{{length}}}{_END}"


_AWS_ID: Final = f"[A-Z2-7]{{16}}{_END}"
_AWS_SECRETS: Final = ("secret_access_key", "SECRET_ACCESS_KEY", "secretAccessKey", "SecretAccessKey")
_QUOTE: Final = r"""(?:\\*+["'])?"""
_SLACK: Final = f"(?:[0-9]{{8,14}}-){{1,3}}[A-Za-z0-9]{{18,64}}{_END}"

_BREAK: Final = r"(?:\s|\\+[nr])"
_BASE64: Final = "[A-Za-z0-9+/=]"
_PEM: Final = (
    r"-----BEGIN (?:[A-Z0-9]{1,20} ){0,4}PRIVATE KEY(?: BLOCK)?-----"
    rf"(?:{_BREAK}++[A-Za-z-]{{1,30}}: [^\r\n\\\"]{{0,200}}){{0,16}}+"
    rf"{_BREAK}*+{_BASE64}{{40,}}+(?:{_BREAK}*+{_BASE64}{{16,}}+)*+"
    rf"(?:(?:{_BREAK}++{_BASE64}++){{0,2}}+{_BREAK}*+-----END [A-Z0-9 ]{{0,60}}-----|(?:{_BREAK}++{_BASE64}++)?+)"
)
"""With a body, the smallest of which (Ed25519) has 64 characters; it may be cut off."""

_JWT_EXAMPLES: Final = (".eyJzdWIiOiIxMjM0NTY3ODkwIi", ".eyJzb21lIjoicGF5bG9hZCJ9.", ".eyJpc3MiOiJqb2UiLA0K")
"""How the payloads of examples begin: jwt.io's `{"sub":"1234567890"`, PyJWT's `{"some":"payload"}`, RFC 7519's."""


def _is_jwt(text: str) -> bool:
    """Whether the header says an algorithm."""
    header = text.partition(".")[0]
    try:
        told: object = json.loads(base64.urlsafe_b64decode(header + "=" * (-len(header) % 4)))
    except (binascii.Error, ValueError, RecursionError):
        return False
    return isinstance(told, dict) and "alg" in told and not any(payload in text for payload in _JWT_EXAMPLES)


BUILTIN_PATTERNS: Final[tuple[SecretPattern, ...]] = (
    _keys("anthropic key", {"sk-ant-": f"[a-z]{{3,6}}[0-9]{{2}}-[A-Za-z0-9_-]{{93}}AA{_END}"}),
    SecretPattern(
        kind="openai key",
        regex=re.compile(rf"{begins('sk-')}[A-Za-z0-9_-]{{20,90}}T3BlbkFJ[A-Za-z0-9_-]{{20,90}}"),
        marks=("T3BlbkFJ",),
        is_secret=is_no_example,
    ),
    _keys("hugging face token", {"hf_": _plain(34), "api_org_": _plain(34)}),
    _keys("aws key", {"AKIA": _AWS_ID, "ASIA": _AWS_ID}),
    SecretPattern(
        kind="aws key",
        regex=re.compile(
            rf"(?:{'|'.join(_AWS_SECRETS)}){_QUOTE}\s{{0,8}}[:=]\s{{0,8}}{_QUOTE}"
            r"(?P<secret>[A-Za-z0-9/+]{40})(?![A-Za-z0-9/+=_-])"
        ),
        marks=_AWS_SECRETS,
        is_secret=is_no_example,
    ),
    _keys("github token", {f"gh{letter}_": "[A-Za-z0-9]{36,255}" for letter in "pousr"}),
    _keys("github token", {"github_pat_": f"[A-Za-z0-9]{{22}}_{_plain(59)}"}),
    _keys("gitlab token", {"glpat-": rf"{_word(20)}|[A-Za-z0-9_-]{{27,300}}\.[0-9a-z]{{9}}"}),
    _keys("google key", {"AIza": _word(35), "GOCSPX-": _word(28)}),
    _keys("slack token", {f"xox{letter}-": _SLACK for letter in "abeoprs"}),
    _keys("slack token", {"xapp-": r"[0-9]-[A-Z0-9]{9,13}-[0-9]{10,15}-[0-9a-f]{64}"}),
    _keys("stripe key", {"sk_live_": _plain("24,247"), "rk_live_": _plain("24,247")}),
    _keys("npm token", {"npm_": _plain(36)}),
    _keys("pypi token", {"pypi-AgEIcHlwaS5vcmc": "[A-Za-z0-9_-]{50,1000}"}),
    _keys(
        "api key",
        {
            "gsk_": _plain(52),  # Groq
            "xai-": _plain(80),
            "nvapi-": _word(64),
            "pplx-": _plain(48),
            "sk-or-v1-": _hex(64),  # OpenRouter
            "tvly-": f"(?:dev-|prod-)?{_plain(32)}",
            "r8_": _plain(37),  # Replicate
            "lsv2_": f"(?:pt|sk)_[0-9a-f]{{32}}_{_hex(10)}",  # LangSmith
            "dckr_pat_": _word(27),
        },
    ),
    SecretPattern(
        kind="jwt",
        regex=re.compile(rf"{begins('eyJ')}[A-Za-z0-9_-]{{10,1024}}+\.eyJ[A-Za-z0-9_-]{{10,}}+\.[A-Za-z0-9_-]{{16,}}+"),
        marks=(".eyJ",),
        is_secret=_is_jwt,
    ),
    # Last, because the lines of one that is cut off would take the beginning of a key that follows.
    SecretPattern(kind="private key", regex=re.compile(_PEM), marks=("PRIVATE KEY",), is_secret=is_no_example),
)
"""Keys of vendors and clouds, private keys and JSON web tokens, wherever they stand. The first that matches wins."""

EMAIL: Final = SecretPattern(
    kind="email",
    regex=re.compile(r"(?<![A-Za-z0-9._%+-])[A-Za-z0-9._%+-]{1,64}+@[A-Za-z0-9.-]{1,255}\.[A-Za-z]{2,24}"),
)

URL_PASSWORD: Final = SecretPattern(
    kind="url password",
    regex=re.compile(r"""://(?P<secret>(?!\[redacted:)[^\s/?#@:"'\\<>]{0,256}+:[^\s/?#@"'\\<>]{1,256}+)@"""),
)

OPTIONAL_PATTERNS: Final[Mapping[str, SecretPattern]] = {"url": URL_PASSWORD, "email": EMAIL}
"""What is redacted only when asked for by name, because content is full of what looks so."""


def patterns_for(asked: bool | tuple[str, ...]) -> list[SecretPattern]:  # noqa: FBT001 # as the setting has it
    """The patterns of the setting `redact`."""
    if asked is False:
        return []
    optional = () if asked is True else asked
    return [*BUILTIN_PATTERNS, *(pattern for name, pattern in OPTIONAL_PATTERNS.items() if name in optional)]
