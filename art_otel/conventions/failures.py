"""Failures: which failed calls are the policy's doing, by the words and codes of model servers.

The rule: a call failed with `context exceeded` if what was recorded of its error has a code or words of the table, and
does not also say that the server, the connection or the time failed. So a 400 "maximum context length is 8192 tokens"
is the policy's doing, and a 500 that names the context is an outage. What is not in the table is an outage, too.

To add the words of another server: a row with an example, as the server answers it.
"""

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from art_otel.calls import FailureKind
from art_otel.conventions import values
from art_otel.conventions.attributes import AttributeReader
from art_otel.conventions.vocabulary import failure_of
from art_otel.spans import Span


class Words(NamedTuple):
    """What servers say of a context that was exceeded: a regex without regard to case, and an example."""

    servers: str
    regex: str
    example: str


CONTEXT_WORDS: Final = (
    Words("OpenAI, LiteLLM and others, as a code", r"\bcontext_length_exceeded\b", "context_length_exceeded"),
    Words("llama.cpp, as a type", r"\bexceed_context_size_error\b", "exceed_context_size_error"),
    Words("LiteLLM, as an exception", r"\bContextWindowExceededError\b", "litellm.ContextWindowExceededError"),
    Words(
        "vLLM, SGLang, OpenAI, OpenRouter, Mistral",
        "maximum context length",
        "This model's maximum context length is 8192 tokens. However, your request has 8195 input tokens.",
    ),
    Words(
        "vLLM",
        r"model\W{1,2}s context length is only \d+ tokens",
        "You passed 8195 input tokens and requested 1 output tokens. However, the model's context length is only 8192"
        " tokens",
    ),
    Words(
        "vLLM's engine",
        "longer than the maximum model length",
        "The decoder prompt (length 8357) is longer than the maximum model length of 8192.",
    ),
    Words(
        "SGLang, Together",
        r"longer than the model\W{1,2}s context length",  # an apostrophe may be escaped
        "The input (8195 tokens) is longer than the model's context length (8192 tokens).",
    ),
    Words(
        "OpenAI's Responses",
        "input exceeds the context window",
        "Your input exceeds the context window of this model. Please adjust your input and try again.",
    ),
    Words("Anthropic", r"prompt is too long: \d+ tokens", "prompt is too long: 215000 tokens > 200000 maximum"),
    Words(
        "Anthropic",
        "exceed context limit",
        "input length and `max_tokens` exceed context limit: 188240 + 21333 > 200000",
    ),
    Words(
        "llama.cpp",
        "exceeds the available context size",
        "request (9412 tokens) exceeds the available context size (8192 tokens), try increasing it",
    ),
    Words(
        "Gemini",
        r"input token count\b.{0,40}\bexceeds the maximum number of tokens",
        "The input token count (1300000) exceeds the maximum number of tokens allowed (1048576).",
    ),
    Words(
        "TGI",
        r"`?inputs`? (?:tokens \+ `?max_new_tokens`? must be <=|must have less than) \d+",
        "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 2048. Given: 1218 `inputs` tokens and"
        " 1500 `max_new_tokens`",
    ),
    Words(
        "xAI",
        r"maximum prompt length is \d+",
        "This model's maximum prompt length is 131072 but the request contains 537812 tokens",
    ),
    Words("Bedrock", "input is too long for requested model", "Input is too long for requested model."),
)
"""The table. Sources: the servers' own code and documentation, and answers that clients' trackers quote."""

_EXCEEDED: Final = re.compile("|".join(words.regex for words in CONTEXT_WORDS), re.IGNORECASE)

_OUTAGE: Final = re.compile(
    r"(?:code|status)\W{1,4}5\d\d\b"  # "Error code: 500", "'code': 503"
    r"|^5\d\d$"  # the gateway's error.type
    r"|InternalServer|ServiceUnavailable|ConnectionError|ConnectError|ProtocolError|Timeout|TimedOut",
    re.IGNORECASE | re.MULTILINE,
)

_REFUSED: Final = re.compile(
    r"(?:code|status)\W{1,4}4(?!08|99)\d\d\b"  # "Error code: 400", "status_code: 422"
    r"|^4(?!08|99)\d\d$"
    r"|BadRequest|invalid_request_error|UnprocessableEntity|RateLimit|PermissionDenied|AuthenticationError|NotFoundError",
    re.MULTILINE,
)
"""What is said of a request that a server took none of: a time-out (408, 499) may have sampled something."""

_STATUS: Final = ("http.response.status_code", "http.status_code")
_FIRST_OF_SERVER: Final = 500


def failure_kind(span: Span) -> FailureKind | None:
    """Why the call that failed did, where that is known and the policy's doing; None for every other."""
    said = "\n".join(_said(span))
    if not _EXCEEDED.search(said) or _OUTAGE.search(said):
        return None
    status = next((number for name in _STATUS if (number := values.integer(span.attributes.get(name)))), 0)
    return None if status >= _FIRST_OF_SERVER else "context exceeded"


def is_refusal(error_type: str | None, error: str | None) -> bool:
    """Whether a call failed because the server refused its request, so that nothing was sampled."""
    said = "\n".join(filter(None, (error_type, error)))
    return _REFUSED.search(said) is not None and not _OUTAGE.search(said)


def _said(span: Span) -> Iterator[str]:
    """What the span says of its error: type and message, and those of its last exception, of which it may have less."""
    error_type, error = failure_of(span)
    exceptions = [event for event in span.events if event.name == "exception"]
    raised = AttributeReader(exceptions[-1].attributes if exceptions else {})
    said = (error_type, error, raised.text("exception.type"), raised.text("exception.message"))
    return (text for text in said if text is not None)
