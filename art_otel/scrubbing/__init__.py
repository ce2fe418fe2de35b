"""Scrubbing: secrets in texts, found by their form or by their name. docs/how-to/scrub.md is its page."""

from typing import Literal, NamedTuple, TypeAlias

import msgspec

from art_otel.lazy_names import defer_imports

Mode: TypeAlias = Literal["on", "content", "mark"]
"""`on` replaces what has a precise form or a secret name, `content` also e-mail addresses and passwords in URLs.
`mark` finds what `on` replaces and alters nothing."""

Scrubbing: TypeAlias = Literal["on", "content", "mark", "off"]
"""What may be chosen: a mode, or that nothing is looked for."""


class SecretMatch(NamedTuple):
    """A text that was found to be a secret, and of which kind."""

    kind: str
    text: str


class SecretRules(msgspec.Struct, frozen=True, kw_only=True):
    """What becomes of secrets in records. `patterns` are regular expressions of further ones."""

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
    from art_otel.scrubbing.scrubber import replacement as replacement
