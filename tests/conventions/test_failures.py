"""Which failed calls are the policy's doing: by the words of servers, whoever recorded them, and never by a guess."""

import pytest
from msgspec.structs import replace

from art_otel.conventions import parse_call
from art_otel.conventions.failures import CONTEXT_WORDS
from art_otel.spans import Event
from art_otel.testing import SpanBuilder
from tests.conventions.recorded import MODES, calls

OVERFLOW = "This model's maximum context length is 8192 tokens."


def failure(message="", error_type="BadRequestError", events=(), **attributes):
    """The kind of the failure of a call of which this was recorded."""
    builder = SpanBuilder()
    asked = builder.chat(builder.rollout("r"), [], [])
    told = {**asked.attributes, **attributes} | ({"error.type": error_type} if error_type else {})
    span = replace(asked, attributes=told, status="error", status_message=message, events=tuple(events))
    call = parse_call(span)
    assert call.failed
    return call.failure


def raised(kind, message):
    return Event(name="exception", time_ns=1, attributes={"exception.type": kind, "exception.message": message})


@pytest.mark.parametrize("words", CONTEXT_WORDS, ids=lambda words: words.servers)
def test_the_words_of_each_server_are_known_as_clients_write_them(words):
    assert failure(words.example) == "context exceeded"
    assert (
        failure(f"Error code: 400 - {{'error': {{'message': {words.example!r}, 'code': 400}}}}") == "context exceeded"
    )
    assert failure("", None, [raised("openai.BadRequestError", words.example)]) == "context exceeded"
    assert failure("refused", "openai.BadRequestError", [raised("x", words.example)]) == "context exceeded"


def test_a_code_is_enough():
    assert failure("no", "context_length_exceeded") == "context exceeded"
    assert failure("", "ContextWindowExceededError") == "context exceeded"


@pytest.mark.parametrize(
    ("message", "error_type", "attributes"),
    [
        (OVERFLOW, "500", {}),
        (OVERFLOW, "openai.InternalServerError", {}),
        (f"Error code: 500 - {{'message': '{OVERFLOW}'}}", None, {}),
        (f"{{'message': '{OVERFLOW}', 'code': 503}}", "APIStatusError", {}),
        (OVERFLOW, "APIStatusError", {"http.response.status_code": 502}),
        (f"{OVERFLOW}", "openai.APITimeoutError", {}),
        (f"Connection error: {OVERFLOW}", "openai.APIConnectionError", {}),
        ("the context is rather full today", "BadRequestError", {}),
        ("invalid tool schema", "400", {}),
        ("", "CancelledError", {}),
    ],
)
def test_what_is_an_outage_or_in_no_table_is_not_the_policys_doing(message, error_type, attributes):
    assert failure(message, error_type, **attributes) is None


@pytest.mark.parametrize("mode", MODES)
def test_recordings_of_each_instrumentor(mode):
    """A 400 that names the context, a 429 before a success, a 500, a refused connection, and the first two again."""
    failed = [call for call in calls(mode, "error_retry") if call.failed]
    named = ["context exceeded" if "maximum context" in call.error else None for call in failed]
    assert [call.failure for call in failed] == named
    assert named.count("context exceeded") == 2
