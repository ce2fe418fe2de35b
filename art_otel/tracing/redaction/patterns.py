r"""SecretPattern: what one kind of secret looks like in a text.

Invariant: searching takes time linear in the text, whatever it holds: nothing repeated can be divided in two ways, and
looking ahead is bounded. Escapes of JSON count as what they stand for (`\nsk-…` begins with `sk-`), because texts hold
pieces of JSON; so a pattern never needs to know how deep it stands in one. So do those of URLs and of a terminal's
colours, in which logs and answers of tools come.

Sources: the vendors' documentation of their keys, RFC 6750 (bearer), RFC 7519 (JWT), RFC 7468 (PEM), RFC 3986 (URLs).
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, kw_only=True, slots=True)
class SecretPattern:
    """A kind of secret. Where the regex has a group `secret`, that group alone is replaced.

    Every match contains one of `marks`, by which texts without secrets are passed over quickly. A mark of one character
    says that the regex itself need not be tried on a text without it. Without marks each text is searched.
    """

    kind: str
    regex: re.Pattern[str]
    marks: tuple[str, ...] = ()


ESCAPES: Final = (
    r"\\[bfnrt]",
    r"\\u[0-9a-fA-Fb]{4}",
    r"%[0-9a-fA-Fb]{2}",
    # A terminal's colours, ESC[m, ESC[31m, ESC[01;31m, ESC[38;5;196m, and ESC[K after them; ESC may be spelled out.
    "\x1b" + r"\[[mK]",
    r"(?:1b|1B|33|\\e)\[[mK]",
    r"[\[;][0-9][mK]",
    r"[\[;][0-9]{2}[mK]",
    r"[\[;][0-9]{3}[mK]",
)
"""What ends with a letter or a digit, which is none of the word behind it. Each has one length, for looking behind.

Folding them as `Marks` folds texts gives regexes for folded texts: so hexadecimal digits are a range and a `b`.
"""


def begins(prefix: str) -> str:
    """A regex for a prefix of fixed length that begins a word."""
    breaks = (rf"(?<![A-Za-z0-9]{prefix})", *(rf"(?<={escape}{prefix})" for escape in ESCAPES))
    return rf"{prefix}(?:{'|'.join(breaks)})"


def _key(kind: str, prefixes: Sequence[str], rest: str, marks: Sequence[str] = ()) -> SecretPattern:
    """A key that begins with one of the prefixes. `marks` where these are no literal texts."""
    regex = re.compile(rf"(?:{'|'.join(map(begins, prefixes))}){rest}")
    return SecretPattern(kind=kind, regex=regex, marks=tuple(marks or prefixes))


_LONG: Final = r"[A-Za-z0-9_-]{16,}"
_AUTHORIZATION: Final = ("authorization", "Authorization", "AUTHORIZATION")
_API_KEY: Final = ("api-key", "Api-Key", "API-Key", "API-KEY")
_QUOTED_API_KEY: Final = ("api_key", "API_KEY", "apiKey", "ApiKey")
_SECRET_KEY: Final = ("secret_access_key", "SECRET_ACCESS_KEY", "secretAccessKey", "SecretAccessKey")
_BEARER: Final = ("bearer", "Bearer", "BEARER")

_BLANKS: Final = r"(?:[ \t]|%20)++"
_QUOTE: Final = r"""\\*["']"""
_ASSIGNED: Final = rf"""(?:(?:{_QUOTE})?\s*+[:=]\s*+(?P<quote>{_QUOTE})?|{_QUOTE}\s*+,\s*+(?P<after>{_QUOTE}))"""
_ASSIGNED_TO_QUOTED: Final = rf"""{_QUOTE}\s*+[:=,]\s*+(?P<quoted>{_QUOTE})"""
_VALUE: Final = r"""[^\s"'\\,;<>{}\[\]()$]{6,}"""
_SCHEME: Final = r"""(?:[A-Za-z][A-Za-z0-9-]{0,30}[ \t]++)?(?:[A-Za-z_-]{1,30}=\\*["'])?"""


def _credentials(*quotes: str) -> str:
    """A regex for what stands behind a header's name: within quotes all of it, else a scheme and one word."""
    value = rf"{_SCHEME}(?!\[redacted:){_VALUE}"
    for quote in quotes:
        value = rf"(?({quote})(?:(?!(?P={quote}))(?:\\++.|[^\r\n\\])){{6,1024}}+|{value})"
    return rf"(?!\[redacted:|-----BEGIN)(?P<secret>{value})"


_BEGIN_KEY: Final = r"-----BEGIN (?:[A-Z0-9]{1,20} ){0,4}PRIVATE KEY(?: BLOCK)?-----"
_BASE64_LINES: Final = r"(?:(?:\s|\\+[nr])*+[A-Za-z0-9+/=]{16,}+)++(?:(?:\s|\\+[nr])++[A-Za-z0-9+/=]++)?+"
_ONE_OF: Final = "|".join


def _words(*words: str) -> str:
    return f"(?:{_ONE_OF(begins(word) for word in words)})"


BUILTIN_PATTERNS: Final[tuple[SecretPattern, ...]] = (
    SecretPattern(
        kind="private key",
        regex=re.compile(_BEGIN_KEY + r"[^-]*+(?:-(?!----)[^-]*+)*+-----END [A-Z0-9 ]{0,60}-----"),
        marks=("PRIVATE KEY",),
    ),
    _key("anthropic key", ["sk-ant-"], _LONG),
    # Class names such as `sk-toggleable__label-arrow` (scikit-learn) have neither digits nor capitals.
    _key("openai key", ["sk-"], rf"(?=[a-z_-]{{0,128}}[A-Z0-9]){_LONG}"),
    _key("hugging face token", ["hf_", "api_org_"], r"[A-Za-z0-9]{16,}"),
    _key("aws key", ["AKIA", "ASIA"], r"[A-Z0-9]{16,}"),
    SecretPattern(
        kind="aws key",
        regex=re.compile(rf"{_words(*_SECRET_KEY)}{_ASSIGNED}(?P<secret>[A-Za-z0-9/+=]{{16,}})"),
        marks=_SECRET_KEY,
    ),
    _key("github token", ["gh[pousr]_"], r"[A-Za-z0-9]{16,}", [f"gh{kind}_" for kind in "pousr"]),
    _key("github token", ["github_pat_"], r"[A-Za-z0-9_]{16,}"),
    _key("gitlab token", ["glpat-"], _LONG),
    _key("google key", ["AIza"], r"[A-Za-z0-9_-]{30,}"),
    _key("google key", ["GOCSPX-"], _LONG),
    _key("slack token", ["xox[abeoprs]-", "xapp-"], r"[A-Za-z0-9-]{10,}", [*(f"xox{c}-" for c in "abeoprs"), "xapp-"]),
    _key("stripe key", ["[rs]k_(?:live|test)_"], r"[A-Za-z0-9]{16,}", ["rk_live_", "rk_test_", "sk_live_", "sk_test_"]),
    _key("api key", ["gsk_", "xai-", "nvapi-", "pplx-", "tvly-"], rf"(?=[a-z_-]{{0,128}}[A-Z0-9]){_LONG}"),
    SecretPattern(
        # The second branch takes a run without dots as a whole, so that no part of it is looked at again.
        kind="jwt",
        regex=re.compile(
            r"(?P<secret>EYJ[A-Za-z0-9_-]{8,}+\.[A-Za-z0-9_-]{8,}+\.[A-Za-z0-9_-]*+)|EYJ[A-Za-z0-9_-]*+".replace(
                "EYJ", begins("eyJ")
            )
        ),
        marks=("eyJ",),
    ),
    SecretPattern(
        kind="authorization",
        regex=re.compile(rf"{_words(*_AUTHORIZATION)}{_ASSIGNED}{_credentials('quote', 'after')}"),
        marks=_AUTHORIZATION,
    ),
    SecretPattern(
        kind="api key",
        regex=re.compile(
            rf"(?:{_words(*_API_KEY)}{_ASSIGNED}|{_words(*_QUOTED_API_KEY)}{_ASSIGNED_TO_QUOTED})"
            rf"{_credentials('quote', 'after', 'quoted')}"
        ),
        marks=(*_API_KEY, *_QUOTED_API_KEY),
    ),
    SecretPattern(
        kind="bearer token",
        regex=re.compile(
            rf"{_words(*_BEARER)}{_BLANKS}(?P<secret>"
            r"(?:(?=[A-Za-z._~+/-]{0,128}[0-9])[A-Za-z0-9._~+/-]{8,}|[A-Za-z0-9._~+/-]{20,})=*+)"
        ),
        marks=_BEARER,
    ),
    SecretPattern(
        kind="authorization",
        regex=re.compile(
            rf"{begins('Basic')}{_BLANKS}(?P<secret>(?=[A-Za-z+/]{{0,128}}(?:[0-9=]|%3[dD]))[A-Za-z0-9+/]{{8,}}=*+)"
        ),
        marks=("Basic",),
    ),
    SecretPattern(
        kind="url password",
        regex=re.compile(
            r""":\\*+/\\*+/(?P<secret>(?!\[redacted:)[^\s/?#@:"'\\<>]{0,256}+:[^\s/?#@"'\\<>]{1,256}+)@"""
        ),
        marks=("@",),
    ),
    # Cut off: last, because its lines would take the beginning of a key that follows.
    SecretPattern(kind="private key", regex=re.compile(f"{_BEGIN_KEY}(?:{_BASE64_LINES})?+"), marks=("PRIVATE KEY",)),
)
"""Keys of vendors and clouds, headers, private keys, tokens, passwords in URLs. The first that matches wins."""

EMAIL: Final = SecretPattern(
    kind="email",
    regex=re.compile(r"(?<![A-Za-z0-9._%+-])[A-Za-z0-9._%+-]{1,64}+@[A-Za-z0-9.-]{1,255}\.[A-Za-z]{2,24}"),
    marks=("@",),
)
