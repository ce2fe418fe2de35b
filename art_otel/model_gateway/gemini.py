"""Gemini: requests of `generateContent` and the answers to them, whole or as a stream, as they pass the gateway.

Invariant: what a client may take for the end of a stream waits until the server has sent everything: the event with the
last finish reason, or the bracket that closes an array. All other bytes pass as they came.

    POST /v1beta/models/MODEL:generateContent                    one response
    POST /v1beta/models/MODEL:streamGenerateContent?alt=sse      a response an event
    POST /v1beta/models/MODEL:streamGenerateContent              an array of responses
    POST /v1beta1/projects/P/locations/L/publishers/google/models/MODEL:generateContent     Vertex AI's

The API gives no token ids of prompts. `logprobsResult` has ids of Gemini's own vocabulary, and none of thoughts: no
model that can be trained reads them, so they are not recorded.

Sources: https://ai.google.dev/api/generate-content, google-genai 1.x (`_api_client.py`).
"""

import re
from collections.abc import Iterator
from json import JSONDecodeError, JSONDecoder
from typing import Final
from urllib.parse import unquote

import msgspec

from art_otel import attributes as names
from art_otel.conventions import request_attributes, values
from art_otel.conventions.attributes import AttributeReader
from art_otel.conventions.bodies.gemini import read_request
from art_otel.conventions.facts import NO_FACTS
from art_otel.spans import Value

PATH: Final = re.compile(
    r"/(?:models|tunedModels|endpoints)/(?P<model>[^/:]+):(?P<method>generateContent|streamGenerateContent)$"
)
_STREAM: Final = "streamGenerateContent"
_VERTEX: Final = "/projects/"
RESPONSE_ID: Final = "responseId"
_HEAD: Final = (RESPONSE_ID, "modelVersion", "promptFeedback", "usageMetadata")
_WITH_CONTENT: Final = ("STOP", "MAX_TOKENS")
"""Finish reasons of candidates that may be empty: all was thought, or nothing was said."""


def asked_in_path(path: str) -> dict[str, Value]:
    """The fields of a request that stand in its path: the model, and whether the answer streams."""
    match = PATH.search(path)
    if match is None:
        return {}
    return {"model": unquote(match["model"]), "stream": match["method"] == _STREAM}


def is_array(path: str, query: str) -> bool:
    """Whether the answer to a request is one array of responses."""
    return bool(asked_in_path(path).get("stream")) and "alt=sse" not in query


def provider(path: str) -> str:
    """GenAI's name of the service that a path is of."""
    return "gcp.vertex_ai" if _VERTEX in path else "gcp.gemini"


def asked_attributes(request: dict[str, Value]) -> dict[str, Value]:
    """The attributes that say what a request asks, its parameters and tools in OpenAI's words."""
    facts = read_request(AttributeReader({}), "", request) or NO_FACTS
    tools = [_with_type(values.mapping(tool) or {}) for tool in facts.tools or ()]
    kept = {
        **{name: request[name] for name in ("model", "stream") if name in request},
        **({"tools": tools} if tools else {}),
        **facts.parameters,
    }
    return {**request_attributes(request), names.REQUEST_PARAMETERS: msgspec.json.encode(kept).decode()}


def _with_type(tool: dict[str, Value]) -> dict[str, Value]:
    """A tool of the server's own, which its one key names."""
    return tool if "type" in tool else {"type": next(iter(tool), "unknown"), **tool}


def refusal_of(answer: dict[str, Value]) -> tuple[str, str] | None:
    """Why an answer has no content, and what is said of that; None where it has any.

    The prompt was blocked, or a candidate was: what the model said is not shown.
    """
    candidates = [values.mapping(candidate) or {} for candidate in values.items(answer.get("candidates")) or ()]
    feedback = values.mapping(answer.get("promptFeedback")) or {}
    if not candidates and (reason := values.text(feedback.get("blockReason"))) is not None:
        return reason, values.text(feedback.get("blockReasonMessage")) or "the prompt was blocked"
    for candidate in candidates:
        reason = values.text(candidate.get("finishReason"))
        parts = (values.mapping(candidate.get("content")) or {}).get("parts")
        if reason is not None and reason not in _WITH_CONTENT and not parts:
            return reason, values.text(candidate.get("finishMessage")) or "the candidate has no content"
    return None


class JoinedContents:
    """Joins the responses of a stream to one. Texts in a row are one part, if both or neither are thoughts."""

    def __init__(self) -> None:
        self._head: dict[str, Value] = {}
        self._candidates: dict[int, _Candidate] = {}

    def add(self, response: dict[str, Value]) -> None:
        """Add the next response."""
        self._head |= {name: response[name] for name in _HEAD if response.get(name) is not None}
        for position, entry in enumerate(values.items(response.get("candidates")) or ()):
            fields = values.mapping(entry) or {}
            self._candidates.setdefault(values.place_of(fields, position), _Candidate()).add(fields)

    @property
    def may_be_whole(self) -> bool:
        """Whether each candidate that has begun has ended."""
        return bool(self._candidates) and all(one.has_ended for one in self._candidates.values())

    def body(self) -> dict[str, Value]:
        """The response so far."""
        candidates = [{"index": index, **self._candidates[index].fields()} for index in sorted(self._candidates)]
        return {**self._head, "candidates": candidates} if candidates else dict(self._head)


class _Candidate:
    def __init__(self) -> None:
        self._fields: dict[str, Value] = {}
        self._parts: list[dict[str, Value]] = []
        self._texts: list[str] = []
        """The pieces of the last part, where that is a text."""

    @property
    def has_ended(self) -> bool:
        return self._fields.get("finishReason") is not None

    def add(self, candidate: dict[str, Value]) -> None:
        self._fields |= {name: value for name, value in candidate.items() if name != "content" and value is not None}
        for part in values.items((values.mapping(candidate.get("content")) or {}).get("parts")) or ():
            self._add_part(values.mapping(part) or {})

    def _add_part(self, part: dict[str, Value]) -> None:
        piece = part.get("text")
        if isinstance(piece, str) and self._texts and part.get("thought") == self._parts[-1].get("thought"):
            self._texts.append(piece)
            return
        self._end_text()
        self._parts.append(part)
        self._texts = [piece] if isinstance(piece, str) else []

    def _end_text(self) -> None:
        if self._texts:
            self._texts = ["".join(self._texts)]
            self._parts[-1] = {**self._parts[-1], "text": self._texts[0]}

    def fields(self) -> dict[str, Value]:
        self._end_text()
        content = {"content": {"role": "model", "parts": [*self._parts]}} if self._parts else {}
        return {**self._fields, **content}


_JSON: Final = JSONDecoder(strict=False)


def responses_in(array: bytes) -> Iterator[dict[str, Value]]:
    """The responses that an array of JSON has as far as it came."""
    text, at = array.decode(errors="replace"), 0
    while (begins := text.find("{", at)) >= 0:
        try:
            response, at = _JSON.raw_decode(text, begins)
        except (JSONDecodeError, RecursionError):  # it broke off here
            return
        yield response


def length_before_end(array: bytes) -> int:
    """How much of the bytes that came of an array may be passed on before it is whole."""
    kept = array.rstrip()
    return len(kept) - 1 if kept.endswith(b"]") else len(array)
