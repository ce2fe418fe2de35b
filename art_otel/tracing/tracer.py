"""Tracer: who makes our spans, by the provider that the app has at the moment.

Invariant: only OTel's API is used, so without its SDK spans record nothing and cost next to nothing.
"""

from typing import Final

from opentelemetry import trace
from opentelemetry.trace import Tracer, TracerProvider

SCOPE: Final = "art_otel"

_known: tuple[TracerProvider | None, Tracer | None] = (None, None)


def tracer() -> Tracer:
    """Our tracer."""
    global _known  # noqa: PLW0603 # one a provider; making a tracer costs more than a span
    provider = trace.get_tracer_provider()
    known, found = _known
    if found is None or known is not provider:
        found = provider.get_tracer(SCOPE)
        _known = (provider, found)
    return found
