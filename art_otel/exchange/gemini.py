"""Gemini: how requests of `generateContent` are recognized, and which of their answers are refusals.

Invariant: only the path says what is asked for; a body is never needed for that.

    POST /v1beta/models/MODEL:generateContent                    one response
    POST /v1beta/models/MODEL:streamGenerateContent?alt=sse      a response an event
    POST /v1beta/models/MODEL:streamGenerateContent              an array of responses
    POST /v1beta1/projects/P/locations/L/publishers/google/models/MODEL:generateContent     Vertex AI's

The API gives no token ids of prompts. `logprobsResult` has ids of Gemini's own vocabulary, and none of thoughts: no
model that can be trained reads them, so they are not recorded.

Sources: https://ai.google.dev/api/generate-content, google-genai 1.x (`_api_client.py`).
"""

import re
from typing import Final
from urllib.parse import unquote

from art_otel.conventions import values
from art_otel.spans import Value

PATH: Final = re.compile(
    r"/(?:models|tunedModels|endpoints)/(?P<model>[^/:]+):(?P<method>generateContent|streamGenerateContent)$"
)
_STREAM: Final = "streamGenerateContent"
_WITH_CONTENT: Final = ("STOP", "MAX_TOKENS")
"""Finish reasons with which an empty candidate is no refusal: the model only thought, or said nothing."""


def asked_in_path(path: str) -> dict[str, Value]:
    """The fields of a request that are in its path: `{"model": "gemini-2.5-pro", "stream": False}`; {} without any."""
    match = PATH.search(path)
    if match is None:
        return {}
    return {"model": unquote(match["model"]), "stream": match["method"] == _STREAM}


def is_array(path: str, query: str) -> bool:
    """Whether the answer to a request is a stream in the form of one JSON array of responses."""
    return bool(asked_in_path(path).get("stream")) and "alt=sse" not in query


def refusal_of(answer: dict[str, Value]) -> tuple[str, str] | None:
    """The reason and the message of an answer whose prompt, or whose candidate, was blocked; None for any other."""
    candidates = [values.mapping(candidate) or {} for candidate in values.items(answer.get("candidates")) or ()]
    feedback = values.mapping(answer.get("promptFeedback")) or {}
    if not candidates and (reason := values.text(feedback.get("blockReason"))) is not None:
        return reason, values.text(feedback.get("blockReasonMessage")) or "the prompt was blocked"
    for candidate in candidates:
        reason = values.text(candidate.get("finishReason"))
        parts = (values.mapping(candidate.get("content")) or {}).get("parts")
        # A blocked candidate may have parts that came before: then the answer is cut, and no refusal.
        if reason is not None and reason not in _WITH_CONTENT and not parts:
            return reason, values.text(candidate.get("finishMessage")) or "the candidate has no content"
    return None
