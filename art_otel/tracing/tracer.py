"""Tracer: who makes our spans, by the provider that the app has at the moment.

Invariant: only OTel's API is used, so without its SDK spans record nothing and cost next to nothing.
"""

from typing import Final

from opentelemetry import trace
from opentelemetry.trace import Tracer, TracerProvider

SCOPE: Final = "art_otel"

_cached: tuple[TracerProvider | None, Tracer | None] = (None, None)


def tracer() -> Tracer:
    """Return the tracer of art-otel from the current provider."""
    global _cached  # noqa: PLW0603 # one a provider; making a tracer costs more than a span
    provider = trace.get_tracer_provider()
    cached_provider, cached_tracer = _cached
    if cached_tracer is None or cached_provider is not provider:
        cached_tracer = provider.get_tracer(SCOPE)
        _cached = (provider, cached_tracer)
    return cached_tracer
