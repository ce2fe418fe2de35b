"""Scrubbing: secrets in texts, found by their form or by their name. docs/how-to/scrub.md is its page."""

from art_otel.scrubbing.names import may_name_secrets, secret_name
from art_otel.scrubbing.patterns import CONTENT_PATTERNS, PATTERNS, SecretPattern
from art_otel.scrubbing.scrubber import PIECES, Hits, Mode, Scrubber, Scrubbing, replacement

__all__ = [
    "CONTENT_PATTERNS",
    "PATTERNS",
    "PIECES",
    "Hits",
    "Mode",
    "Scrubber",
    "Scrubbing",
    "SecretPattern",
    "may_name_secrets",
    "replacement",
    "secret_name",
]
