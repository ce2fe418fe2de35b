"""Failure: whether a span failed, and with which error."""

from typing import Final

from art_otel.conventions.attributes.reader import AttributeReader
from art_otel.spans import Span

ERROR_TYPE: Final = "error.type"


def is_cancellation(error_type: str) -> bool:
    """Whether an error type is a cancellation, of asyncio, concurrent.futures or trio."""
    return error_type.rsplit(".", 1)[-1] == "CancelledError" or error_type == "trio.Cancelled"


def failure_of(span: Span) -> tuple[str | None, str | None]:
    """The error's type and message, both None for a call that did not fail.

    It failed when its status is an error or it has `error.type`. An exception event alone is no failure: it may have
    been handled.
    """
    if span.status != "error" and ERROR_TYPE not in span.attributes:
        return None, None
    error_type = AttributeReader(span.attributes).text(ERROR_TYPE)
    if span.status != "error" and error_type is None:
        return None, None
    exceptions = [AttributeReader(event.attributes) for event in span.events if event.name == "exception"]
    raised = exceptions[-1] if exceptions else AttributeReader({})
    error_type = error_type or raised.text("exception.type")
    message = span.status_message or raised.text("exception.message")
    return error_type, message or (None if error_type else "the span's status is an error")
