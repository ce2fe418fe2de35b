"""Scrubbing: secrets in texts, found by their form or by their name. docs/how-to/scrub.md is its page."""

from art_otel.lazy_names import defer_imports
from art_otel.scrubbing.modes import Mode as Mode
from art_otel.scrubbing.modes import Scrubbing as Scrubbing

if not defer_imports(__name__):
    from art_otel.scrubbing.names import may_name_secrets as may_name_secrets
    from art_otel.scrubbing.names import secret_name as secret_name
    from art_otel.scrubbing.patterns import CONTENT_PATTERNS as CONTENT_PATTERNS
    from art_otel.scrubbing.patterns import PATTERNS as PATTERNS
    from art_otel.scrubbing.patterns import SecretPattern as SecretPattern
    from art_otel.scrubbing.scrubber import PIECES as PIECES
    from art_otel.scrubbing.scrubber import Hits as Hits
    from art_otel.scrubbing.scrubber import Scrubber as Scrubber
    from art_otel.scrubbing.scrubber import replacement as replacement
