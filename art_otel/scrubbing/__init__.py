"""Scrubbing: secrets in texts, found by their form or by their name. docs/how-to/scrub.md is its page."""

from typing import TYPE_CHECKING

from art_otel.lazy_names import lazy_names
from art_otel.scrubbing.modes import Mode, Scrubbing

if TYPE_CHECKING:
    from art_otel.scrubbing.names import may_name_secrets, secret_name
    from art_otel.scrubbing.patterns import CONTENT_PATTERNS, PATTERNS, SecretPattern
    from art_otel.scrubbing.scrubber import PIECES, Hits, Scrubber, replacement

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

__getattr__ = lazy_names(
    __name__,
    {
        "names": ("may_name_secrets", "secret_name"),
        "patterns": ("CONTENT_PATTERNS", "PATTERNS", "SecretPattern"),
        "scrubber": ("PIECES", "Hits", "Scrubber", "replacement"),
    },
)
