"""API dialects: the APIs in which completions are asked for, one row each, with all that other modules need of one.

    the gateway, the client's hook     the dialect of a path, what is asked for beside it, how its stream is joined,
                                       and how the span of its call is named
    translation                        its request as Chat Completions has it, its answers and errors
    grading                            where a server has it, and its name

Invariant: other modules read a dialect's row and do not ask for its name, with these exceptions. Gemini has its model
in the path, and streams without an end (`exchange`). Completions have no messages to render and none to show (`exact`,
`exact_answers`, `id_server`). Responses may be stored by the server (`exact`), and have no finish reason for a refusal
(`translation`). Each dialect's requests, answers and errors are in a module of `exchange/`, the ends of its streams in
`exchange`, and the meaning of its bodies in `conventions/bodies/`.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Final, NamedTuple
from urllib.parse import unquote, urlsplit

from art_otel.conventions.bodies.chunks import JoinedChunks
from art_otel.conventions.dialects.genai import API_TYPE, OPERATION_NAME, PROVIDERS, REQUEST_MODEL, RESPONSES
from art_otel.exchange import generate_content, messages, responses
from art_otel.exchange.answer_shapes import AnswerFields, AnswerShape, ChatShape, CompletionShape, error_body
from art_otel.exchange.assembly import (
    AnswerAssembler,
    GeminiAssembler,
    MessagesAssembler,
    ResponsesAssembler,
    WireDialect,
)
from art_otel.exchange.chat_request import ChatRequest, as_it_is
from art_otel.exchange.response_shape import ResponseShape
from art_otel.spans import Value


class TokenRequest(NamedTuple):
    """The fields of a body, and the headers, that make a server return token ids and logprobs."""

    fields: Mapping[str, object]
    headers: Mapping[str, str]


NOTHING: Final = TokenRequest({}, {})


class TokenCount(NamedTuple):
    """The dialect's request that counts the tokens of a prompt: the end of its path, and the field of its answer."""

    path_end: str
    field: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ApiDialect:
    """One API.

    - `path`: where servers have it; `{model}` stands for the model. `path_end`: how its paths end, after any prefix.
    - `provider`, `operation`: values of the GenAI conventions for the span of a call.
    - `asks`: what makes servers return token ids. `is_rendered`: vLLM's `/render` knows the dialect.
    - `assembler`: joins the events of a stream. `shape`: writes answers.
    - `error`: writes an error, from a status, a message, an error of Chat Completions (or None), and the path of the
      wrong field (or None).
    - `chat_request`: writes a request as Chat Completions, and raises UntranslatableError; None for a dialect that is
      not translated. `chat_settings`: the settings for the server's parsers.
    - `counts`: the request that counts tokens, where the dialect has one.
    - `headers`: those that have a meaning only in this dialect; the first one has the API key.
    """

    name: WireDialect
    title: str
    path: str
    path_end: re.Pattern[str]
    provider: str = "openai"
    operation: str = "chat"
    asks: TokenRequest = NOTHING
    is_rendered: bool = True
    assembler: Callable[[], AnswerAssembler] = JoinedChunks
    shape: type[AnswerShape]
    error: Callable[[int, str, Value, Value], AnswerFields] = error_body
    chat_request: Callable[[Mapping[str, Value]], ChatRequest] | None = None
    chat_settings: Callable[[Mapping[str, Value]], AnswerFields] = responses.chat_settings
    counts: TokenCount | None = None
    headers: tuple[bytes, ...] = ()


_GEMINI_PATH: Final = re.compile(
    r"/(?:models|tunedModels|endpoints)/(?P<model>[^/:]+):(?P<method>generateContent|streamGenerateContent)$"
)
"""How the path of a request to Gemini says what is asked for; a body is never needed for that.

    POST /v1beta/models/MODEL:generateContent                    one response
    POST /v1beta/models/MODEL:streamGenerateContent?alt=sse      a response an event
    POST /v1beta/models/MODEL:streamGenerateContent              an array of responses
    POST /v1beta1/projects/P/locations/L/publishers/google/models/MODEL:generateContent     Vertex AI's

The API gives no token ids of prompts. `logprobsResult` has ids of Gemini's own vocabulary, and none of thoughts: no
model that can be trained reads them, so they are not recorded.

Sources: https://ai.google.dev/api/generate-content, google-genai 1.x (`_api_client.py`).
"""
_GEMINI_STREAM: Final = "streamGenerateContent"

_ROWS: Final = (
    ApiDialect(
        name="chat",
        title="Chat Completions",
        path="/v1/chat/completions",
        path_end=re.compile("/chat/completions$"),
        asks=TokenRequest({"logprobs": True, "return_token_ids": True, "return_weight_versions": True}, {}),
        shape=ChatShape,
        chat_request=as_it_is,
    ),
    ApiDialect(
        name="completions",
        title="Completions",
        operation="text_completion",
        path="/v1/completions",
        path_end=re.compile("(?<!/chat)/completions$"),
        asks=TokenRequest({"logprobs": 1, "return_token_ids": True, "return_weight_versions": True}, {}),
        shape=CompletionShape,
    ),
    ApiDialect(
        name="responses",
        title="Responses",
        path="/v1/responses",
        path_end=re.compile("/responses$"),
        asks=TokenRequest({"enable_response_messages": True}, {}),
        assembler=ResponsesAssembler,
        shape=ResponseShape,
        chat_request=responses.chat_request,
    ),
    ApiDialect(
        name="messages",
        title="Messages",
        provider="anthropic",
        path="/v1/messages",
        path_end=re.compile("/messages$"),
        assembler=MessagesAssembler,
        shape=messages.MessageShape,
        error=messages.error_body,
        chat_request=messages.chat_request,
        chat_settings=messages.chat_settings,
        counts=TokenCount("/messages/count_tokens", "input_tokens"),
        headers=(b"x-api-key", b"anthropic-version", b"anthropic-beta"),
    ),
    ApiDialect(
        name="gemini",
        title="generateContent",
        provider="gcp.gemini",
        operation="generate_content",
        path="/v1beta/models/{model}:generateContent",
        path_end=_GEMINI_PATH,
        is_rendered=False,
        assembler=GeminiAssembler,
        shape=generate_content.ContentShape,
        error=generate_content.error_body,
        chat_request=generate_content.chat_request,
        counts=TokenCount(":countTokens", "totalTokens"),
        headers=(b"x-goog-api-key", b"x-goog-api-client"),
    ),
)
UNTRAINED_HEADER: Final = "x-art-untrained"
"""By this header a request marks its call as untrained, and the gateway an answer that no model gave."""
API_DIALECTS: Final[Mapping[WireDialect, ApiDialect]] = {row.name: row for row in _ROWS}
CHAT: Final = API_DIALECTS["chat"]

_OF_THREAD: Final = re.compile(r"/threads/[^/]+/messages$")
"""A path of OpenAI's Assistants that ends like Anthropic's Messages: it only adds a message to a thread."""


@lru_cache(maxsize=256)  # agents ask at few paths, again and again
def dialect_of(path: str) -> WireDialect | None:
    """The dialect in which a POST to a (plain) path asks for a completion; None where it asks for something else."""
    if _OF_THREAD.search(path):
        return None
    return next((name for name, dialect in API_DIALECTS.items() if dialect.path_end.search(path)), None)


def asked_in_path(path: str) -> dict[str, Value]:
    """The fields of a request that are in its path: `{"model": "gemini-2.5-pro", "stream": False}`; {} without any."""
    match = _GEMINI_PATH.search(path)
    if match is None:
        return {}
    return {"model": unquote(match["model"]), "stream": match["method"] == _GEMINI_STREAM}


def is_array(path: str, query: str) -> bool:
    """Whether the answer to a request is a stream in the form of one JSON array of responses."""
    return bool(asked_in_path(path).get("stream")) and "alt=sse" not in query


@lru_cache(maxsize=256)  # an app asks the same servers for the same models, again and again
def call_identity(dialect: WireDialect, path: str, model: str | None, server: str) -> tuple[str, Mapping[str, Value]]:
    """The name of a call's span, and its attributes before the bodies are read. `server` is a URL or a host."""
    operation = API_DIALECTS[dialect].operation
    attributes = {
        OPERATION_NAME: operation,
        PROVIDERS[0]: _provider(dialect, path),
        **({} if model is None else {REQUEST_MODEL: model}),
        **({API_TYPE: RESPONSES} if dialect == "responses" else {}),
        "server.address": _host(server),
    }
    return operation if model is None else f"{operation} {model}", MappingProxyType(attributes)


def _provider(dialect: WireDialect, path: str) -> str:
    # Vertex AI has the same API below the path of a Google Cloud project.
    if dialect == "gemini" and "/projects/" in path:
        return "gcp.vertex_ai"
    return API_DIALECTS[dialect].provider


@lru_cache(maxsize=64)
def _host(server: str) -> str:
    return urlsplit(server).hostname or server
