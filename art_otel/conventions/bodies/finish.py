"""Finish reasons in OpenAI's words: stop, length, tool_calls, content_filter.

Invariant: a word that nobody defined stays as it was, and an unknown reason is None. `error` is no finish reason:
the call failed.
"""

from typing import Final

from art_otel.conventions.attributes import values
from art_otel.spans import Value

ERROR_FINISH_REASON: Final = "error"
"""What is written instead of a reason when a stream broke."""

_RESPONSE_IDS: Final = "resp_"
"""The prefix of the ids of the Responses API, of OpenAI and of servers that offer it."""

_WORDS: Final = {
    "tool_call": "tool_calls",
    "tool-call": "tool_calls",
    "tool-calls": "tool_calls",
    "tool_use": "tool_calls",
    "function_calls": "tool_calls",
    "finishreason.tool_calls": "tool_calls",
    "finishreason.stop": "stop",
    "finishreason.length": "length",
    "finishreason.content_filter": "content_filter",
    "max_tokens": "length",
    "max_output_tokens": "length",
    "end_turn": "stop",
    "stop_sequence": "stop",
    "completed": "stop",
    "safety": "content_filter",
    "content-filter": "content_filter",
    "unknown": None,
    "finish_reason_unspecified": None,
}


def finish_reason(value: Value) -> str | None:
    """Translate a finish reason to OpenAI's word."""
    reason = values.text(value)
    if reason is None:
        return None
    word = reason.lower()
    return _WORDS.get(word, word)


def is_responses_api_id(response_id: str | None) -> bool:
    """Whether the response id comes from the Responses API."""
    return response_id is not None and response_id.startswith(_RESPONSE_IDS)


_NAMES_NO_TOOL_CALLS: Final = ("google", "gemini", "gcp.", "vertex")
"""How the providers are named whose API has `STOP` for answers with tool calls, too."""


def names_no_tool_calls(provider: str | None, operation_name: str, response_id: str | None) -> bool:
    """Whether the API says that an answer with tool calls just stopped (the Responses API, Gemini)."""
    if operation_name == "generate_content" or is_responses_api_id(response_id):
        return True
    return provider is not None and provider.lower().startswith(_NAMES_NO_TOOL_CALLS)


def completed_reason(*, tool_calls: bool) -> str:
    """The finish reason of a completed response of the Responses API."""
    return "tool_calls" if tool_calls else "stop"


def response_finish_reason(response: dict[str, Value], *, tool_calls: bool) -> str | None:
    """The finish reason of a Responses API response, by its status and, when incomplete, its details."""
    status = response.get("status")
    if status == "completed":
        return completed_reason(tool_calls=tool_calls)
    if status == "incomplete":
        return finish_reason((values.mapping(response.get("incomplete_details")) or {}).get("reason"))
    return None
