"""RQ's job; it has no instrumentor of OpenTelemetry's own, so the function is decorated."""

from conversation import converse

import art_otel


@art_otel.rollout
def answer(question: str) -> str:
    """Answer a question."""
    return converse(question)
