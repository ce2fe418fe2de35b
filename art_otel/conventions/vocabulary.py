"""Vocabulary: translate operations to GenAI's words and finish reasons to OpenAI's words; and whether a span failed.

    acompletion (LiteLLM)        ->  chat             max_tokens (Anthropic)   ->  length
    openai.chat (OpenLLMetry)    ->  chat             end_turn (Anthropic)     ->  stop

Finish reasons are stop, length, tool_calls, content_filter, and Anthropic's refusal. Invariant: an unknown word stays
as it is, and an unknown reason is None. `error` is no finish reason: the call failed.
"""

import re
from typing import Final

from art_otel.conventions import values
from art_otel.conventions.attributes import AttributeReader
from art_otel.spans import Span, Value

TEXT_COMPLETION: Final = "text_completion"
LIVE_OPERATIONS: Final = ("generate_live_content", "realtime_inference")
"""Operations in a live session: only the server has the earlier messages."""
UNKNOWN_ROLE: Final = "unknown"
"""The role that OpenLLMetry writes if it does not know a message's role."""

_WORDS: Final = {
    "completion": TEXT_COMPLETION,
    "embedding": "embeddings",
    "acompletion": "chat",
    "atext_completion": TEXT_COMPLETION,
    "aembedding": "embeddings",
    "responses": "chat",
    "aresponses": "chat",
    "anthropic_messages": "chat",
    "agenerate_content": "generate_content",
    "interactions.create": "generate_content",
}
"""The operation for the words of OpenLLMetry and Gemini, and for LiteLLM's methods (async ones begin with `a`)."""

_NAMES: Final = {
    "chat": "chat",
    "chatcompletion": "chat",
    "chat.completion": "chat",
    "response": "chat",
    "messages": "chat",
    "generate_content": "generate_content",
    "interactions.create": "generate_content",
    "completion": TEXT_COMPLETION,
    "text_completion": TEXT_COMPLETION,
    "embedding": "embeddings",
    "embeddings": "embeddings",
    "createembeddings": "embeddings",
    "rerank": "rerank",
    "invoke_agent": "invoke_agent",
    "execute_tool": "execute_tool",
}


def operation(word: str) -> str:
    """Translate the operation that an attribute names to GenAI's word."""
    return _WORDS.get(word.lower(), word)


def operation_of_name(span_name: str) -> str | None:
    """The operation in a span's name; None for a name that no instrumentor writes."""
    first, _, _ = span_name.partition(" ")
    *_, last_but_one, last = ("", *first.lower().split("."))
    return _NAMES.get(f"{last_but_one}.{last}") or _NAMES.get(last)


ERROR_FINISH_REASON: Final = "error"
"""The finish reason that recorders write for a broken stream."""

OTHER_FINISH_REASON: Final = "other"
"""The AI SDK's finish reason if the server gave none or an unknown one. Also a reason of Gemini's."""

EARLY_ENDS: Final = ("length", "content_filter")
"""Finish reasons of an answer that was ended before the model ended it."""

REFUSAL: Final = "refusal"
"""Anthropic's finish reason of an answer in which Claude refuses, which may be whole."""

COMPACTION: Final = "compaction"
"""Anthropic's finish reason of an answer that is only a compaction."""

_RESPONSE_IDS: Final = "resp_"
"""The prefix of the ids of the Responses API, of OpenAI and of servers that offer it."""

_REASONS: Final = {
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
    "model_context_window_exceeded": "length",
    "model_length": "length",  # Mistral
    "end_turn": "stop",
    "stop_sequence": "stop",
    "completed": "stop",
    "safety": "content_filter",
    "recitation": "content_filter",
    "blocklist": "content_filter",
    "prohibited_content": "content_filter",
    "spii": "content_filter",
    "image_safety": "content_filter",
    "content-filter": "content_filter",
    "content_filtered": "content_filter",
    "guardrail_intervened": "content_filter",
    "sensitive": "content_filter",  # GLM
    "unknown": None,
    "finish_reason_unspecified": None,
}


def finish_reason(value: Value) -> str | None:
    """Translate a finish reason to OpenAI's word."""
    reason = values.text(value)
    if reason is None:
        return None
    word = reason.lower()
    return _REASONS.get(word, word)


def is_responses_api_id(response_id: str | None) -> bool:
    """Whether the response id comes from the Responses API."""
    return response_id is not None and response_id.startswith(_RESPONSE_IDS)


def has_no_names(provider: str | None, response_id: str | None) -> bool:
    """Whether the API of a call has no participant names (the Responses API, Anthropic's API)."""
    return provider == "anthropic" or is_responses_api_id(response_id)


_GEMINI: Final = ("google", "gemini", "gcp.", "vertex")
"""Prefixes of the names that recorders use for providers of the Gemini API."""


def is_gemini(provider: str | None, operation_name: str) -> bool:
    """Whether a call is of the Gemini API, by provider or operation: some recorders name another provider."""
    return operation_name == "generate_content" or (provider is not None and provider.lower().startswith(_GEMINI))


def names_no_tool_calls(provider: str | None, operation_name: str, response_id: str | None) -> bool:
    """Whether the API gives answers with tool calls the finish reason `stop` (the Responses API, Gemini)."""
    return is_gemini(provider, operation_name) or is_responses_api_id(response_id)


_CALLS_WITH_OBJECTS: Final = re.compile(r"anthropic|claude|bedrock|gemini")
"""Names of providers and models whose APIs have tool arguments as objects, not as text."""


def calls_with_objects(provider: str | None, model: str | None) -> bool:
    """Whether the API has tool arguments as objects, so that empty arguments in a stream mean an empty object.

    With other APIs the model may really have sampled an empty text.
    """
    return any(name is not None and _CALLS_WITH_OBJECTS.search(name.lower()) for name in (provider, model))


NOTHING_OF_CLAUDE: Final = 3
"""The most tokens that Anthropic counts for an empty answer: its begin and its end."""


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


ERROR_TYPE: Final = "error.type"
INSTANCE: Final = "service.instance.id"
"""The resource attribute that identifies one process of a service."""


def is_cancellation(error_type: str) -> bool:
    """Whether an error type is a cancellation, of asyncio, concurrent.futures or trio."""
    return error_type.rsplit(".", 1)[-1] == "CancelledError" or error_type == "trio.Cancelled"


def failure_of(span: Span) -> tuple[str | None, str | None]:
    """The type and message of a span's error; both None if the span did not fail.

    A span failed if its status is an error, or if it has `error.type`. An exception event alone is no failure, because
    the app may have handled the exception.
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
