"""Bodies of answers: what they say of a failure, and whether they say how the answer ended."""

from typing import Final, NamedTuple

from art_otel.conventions import values
from art_otel.spans import Value

RESPONSE_MESSAGES: Final = ("input_messages", "output_messages")
"""Where vLLM's Responses have token ids, if they are asked for with `enable_response_messages`."""

FAILED: Final = "failed"
"""The status that a body of the Responses API has where its call failed."""

_UNNAMED_FAILURE: Final = "APIError"
"""What openai's client raises for an error in the middle of a stream."""

LONGEST_MESSAGE: Final = 1000
"""Characters of an error's message that are kept."""


class CallFailure(NamedTuple):
    """Why a call failed. `type` is a status, an error's code or the name of an exception; `message` what was said."""

    type: str
    message: str = ""


def failure_of(said: dict[str, Value]) -> CallFailure:
    """The failure that an event or a body with an error says."""
    error = values.mapping((values.mapping(said.get("response")) or said).get("error")) or said
    return CallFailure(values.text(error.get("code")) or _UNNAMED_FAILURE, failure_message(said))


def failure_message(body: dict[str, Value]) -> str:
    """What a body or an event with an error says: its message, and its code where the message has none.

    As OpenAI, Anthropic, FastAPI and TGI write them. The code is that of `conventions.failures`, too.
    """
    said = values.mapping(body.get("response")) or body
    error = values.mapping(said.get("error")) or said
    message = values.text(error.get("message")) or values.text(said.get("detail")) or values.text(said.get("error"))
    code = values.text(error.get("code")) or values.text(error.get("type"))
    if message is None or code is None or code in message:
        return (message or "")[:LONGEST_MESSAGE]
    return f"{message[:LONGEST_MESSAGE]} ({code[:LONGEST_MESSAGE]})"


def response_failure(body: dict[str, Value]) -> CallFailure | None:
    """The failure of a body of the Responses API whose status says that it failed; None for any other body."""
    return failure_of(body) if body.get("status") == FAILED else None


_RUNNING: Final = (None, "queued", "in_progress")


def is_unfinished(body: dict[str, Value]) -> bool:
    """Whether the body of an answer does not say how it ended."""
    if "output" in body:
        return body.get("status") in _RUNNING
    choices = [values.mapping(choice) or {} for choice in values.items(body.get("choices")) or ()]
    return not choices or any(choice.get("finish_reason") is None for choice in choices)
