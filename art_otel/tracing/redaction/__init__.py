"""Redaction: no secret leaves in a span. docs/how-to/redact.md is the user's page."""

from art_otel.tracing.redaction.patterns import BUILTIN_PATTERNS, SecretPattern, patterns_for
from art_otel.tracing.redaction.redactor import Redactor

__all__ = ["BUILTIN_PATTERNS", "Redactor", "SecretPattern", "patterns_for"]
