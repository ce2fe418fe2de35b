"""Failures: why a call failed, as its connection, its status or its answer says.

Invariant: an answer with a status of success may be a failure: OpenRouter sends errors in it, the Responses API has a
status in the body, and Gemini blocks prompts and candidates.

Sources: https://platform.openai.com/docs/guides/error-codes, https://docs.anthropic.com/en/api/errors,
https://ai.google.dev/api/generate-content
"""

from typing import Final, NamedTuple

from art_otel.conventions import values
from art_otel.exchange.assembly import SAMPLED
from art_otel.spans import Value

FAILED_STATUS: Final = "failed"
"""The status of a failed response in the body of the Responses API."""

_UNNAMED_FAILURE: Final = "APIError"
"""The exception of openai's client for an error in the middle of a stream."""

LONGEST_MESSAGE: Final = 1000
"""Characters of an error's message that are kept."""


class CallFailure(NamedTuple):
    """Why a call failed: `type` is a status ("500"), an error's code or an exception's name; `message` its text."""

    type: str
    message: str = ""


_WITH_CONTENT: Final = ("STOP", "MAX_TOKENS")
"""Finish reasons with which an empty candidate is no refusal: the model only thought, or said nothing."""


def failure_in(answer: dict[str, Value]) -> CallFailure | None:
    """The failure in a whole answer that has a status of success; None where it did not fail."""
    is_error = bool(answer.get("error")) and not any(name in answer for name in SAMPLED)
    return failure_of(answer) if is_error or answer.get("status") == FAILED_STATUS else _refusal_of_gemini(answer)


def failure_of(said: dict[str, Value]) -> CallFailure:
    """The failure that an event, or a body, with an error describes."""
    error = values.mapping((values.mapping(said.get("response")) or said).get("error")) or said
    return CallFailure(values.text(error.get("code")) or _UNNAMED_FAILURE, failure_message(said))


def failure_message(body: dict[str, Value]) -> str:
    """The message of an error, with its code in brackets where the message does not name the code.

    Reads the forms of OpenAI, Anthropic, FastAPI and TGI. `conventions.failures` looks for the code in the message.
    """
    said = values.mapping(body.get("response")) or body
    error = values.mapping(said.get("error")) or said
    message = values.text(error.get("message")) or values.text(said.get("detail")) or values.text(said.get("error"))
    code = values.text(error.get("code")) or values.text(error.get("type"))
    if message is None or code is None or code in message:
        return (message or "")[:LONGEST_MESSAGE]
    return f"{message[:LONGEST_MESSAGE]} ({code[:LONGEST_MESSAGE]})"


def _refusal_of_gemini(answer: dict[str, Value]) -> CallFailure | None:
    """The failure of an answer whose prompt, or whose candidate, was blocked; None for any other."""
    candidates = [values.mapping(candidate) or {} for candidate in values.items(answer.get("candidates")) or ()]
    feedback = values.mapping(answer.get("promptFeedback")) or {}
    if not candidates and (reason := values.text(feedback.get("blockReason"))) is not None:
        return CallFailure(reason, values.text(feedback.get("blockReasonMessage")) or "the prompt was blocked")
    for candidate in candidates:
        reason = values.text(candidate.get("finishReason"))
        parts = (values.mapping(candidate.get("content")) or {}).get("parts")
        # A blocked candidate may have parts that came before: then the answer is cut, and no refusal.
        if reason is not None and reason not in _WITH_CONTENT and not parts:
            return CallFailure(reason, values.text(candidate.get("finishMessage")) or "the candidate has no content")
    return None
