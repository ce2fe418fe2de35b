"""Scrubbing: finds secrets in texts, by their form (`sk-ant-…`) or by the name they stand under (`"password": …`).

The user's page is docs/how-to/scrub.md.
"""

from typing import Literal, NamedTuple, TypeAlias

import msgspec

from art_otel.lazy_names import defer_imports

Mode: TypeAlias = Literal["on", "content", "mark"]
"""`on` replaces secrets that have a precise form or stand under a secret name; `content` also e-mail addresses and
passwords in URLs. `mark` finds the same as `on`, counts it, and alters nothing."""

Scrubbing: TypeAlias = Literal["on", "content", "mark", "off"]
"""The values of the setting `scrub`: a mode, or `off`: no text is searched."""


class SecretMatch(NamedTuple):
    """A secret that was found, and its kind, such as "openai key"."""

    kind: str
    text: str


class SecretRules(msgspec.Struct, frozen=True, kw_only=True):
    """What to do with secrets in records. `patterns` are regular expressions for further secrets."""

    mode: Scrubbing = "on"
    patterns: tuple[str, ...] = ()


if not defer_imports(__name__):
    from art_otel.scrubbing.patterns import CONTENT_PATTERNS as CONTENT_PATTERNS
    from art_otel.scrubbing.patterns import PATTERNS as PATTERNS
    from art_otel.scrubbing.patterns import SecretPattern as SecretPattern
    from art_otel.scrubbing.scrubber import AnyAttributes as AnyAttributes
    from art_otel.scrubbing.scrubber import ContentNames as ContentNames
    from art_otel.scrubbing.scrubber import Hits as Hits
    from art_otel.scrubbing.scrubber import NameReading as NameReading
    from art_otel.scrubbing.scrubber import RecordScrubber as RecordScrubber
    from art_otel.scrubbing.scrubber import ScrubbedPart as ScrubbedPart
    from art_otel.scrubbing.scrubber import Scrubber as Scrubber
    from art_otel.scrubbing.scrubber import plainly_escaped as plainly_escaped
    from art_otel.scrubbing.scrubber import replacement as replacement
