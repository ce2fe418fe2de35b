"""Logfire's spans of the Responses API, whose messages in GenAI's attributes are its items, several of one message.

Source of the format: `logfire/_internal/integrations/llm_providers`. Invariant: a span is one of these only by what
Logfire writes for this API and no other.
"""

from typing import Final

from art_otel.spans import Span

_REQUEST_SPAN: Final = "Responses API with "
_STREAM_SPAN: Final = "streaming response from "
_REQUEST: Final = "request_data"

LOGFIRE_SPANS: Final = (_REQUEST_SPAN, _STREAM_SPAN)
"""How the names of these spans begin."""


def is_logfire_responses(span: Span) -> bool:
    """Whether Logfire recorded a call of the Responses API, or the answer of its stream."""
    return span.name.startswith(_REQUEST_SPAN) or (span.name.startswith(_STREAM_SPAN) and _shows_stream(span))


def _shows_stream(span: Span) -> bool:
    """Whether the request is shown as for this API only: the model, and whether it streams."""
    request = span.attributes.get(_REQUEST)
    return isinstance(request, str) and '"stream"' in request and '"messages"' not in request
