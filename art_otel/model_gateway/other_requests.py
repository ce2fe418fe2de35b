"""Other requests: requests that ask for no completion, or for one in a dialect that the gateway does not know.

The rule: a POST whose path matches no row of `WITHOUT_COMPLETION` may ask for a completion. If the server accepts such
a request, its rollout lacks a call and is marked as incomplete. All these requests are passed on unchanged, but
for counts of tokens that the server cannot make in the agent's dialect: `translating` answers those.

Sources: https://platform.openai.com/docs/api-reference, https://docs.anthropic.com/en/api,
https://ai.google.dev/api, https://docs.cohere.com/reference, vLLM's, SGLang's, llama.cpp's and Ollama's servers.
"""

import logging
import re
from typing import Final

from art_otel.conventions import values
from art_otel.conventions.values import json_object

logger = logging.getLogger(__name__)

_MAX_PATTERNS: Final = 1000

WITHOUT_COMPLETION: Final = (
    # vectors, scores and counts of a text
    *(
        "/embeddings",
        "/embedding",
        "/embed",
        "/moderations",
        "/rerank",
        "/reranking",
        "/score",
        "/classify",
        "/pooling",
    ),
    *("/encode", "/tokenize", "/detokenize", "/apply-template", "/render", "/derender"),
    *("/count_tokens", "/input_tokens", ":countTokens", ":computeTokens"),
    *(":embedContent", ":batchEmbedContents", ":asyncBatchEmbedContent"),
    # what is stored, fetched or cancelled
    *("/files", "/uploads", "/uploads/[^/]+/(?:parts|complete)", "/cancel", ":cancel", "/skills", "/containers"),
    *("/assistants(?:/[^/]+)?", "/threads(?:/(?!runs)[^/]+(?:/messages)?)?", "/vector_stores(?:/[^/]+)?", "/search"),
    *("/file_batches", "/conversations(?:/[^/]+)?", "/items", "/cachedContents", "/responses/compact"),
    # other media
    *("/images/[a-z]+", "/audio/[a-z]+", "/videos"),
    # the server itself, its weights and its models
    *("/load_lora_adapter", "/unload_lora_adapter", "/lora-adapters", "/models/(?:load|unload)", "/props"),
    *("/api/(?:show|pull|push|create|copy|me)", "/api/blobs/[^/]+", "/slots/[0-9]+", "/abort_requests?", "/healthz?"),
    *("/sleep", "/wake_up", "/pause", "/resume", "/(?:reset|flush)_[a-z_]*cache", "/collective_rpc"),
    "/(?:init|update|start|stop|get|set|release|resume|destroy|open|close)_[a-z_]+",
    # what agents report of themselves
    *("/event_logging/batch", "/metrics", "/telemetry"),
)
"""The ends of paths (regular expressions) to which a POST samples nothing."""

_WITHOUT: Final = re.compile(f"(?:{'|'.join(WITHOUT_COMPLETION)})$")

_NAMES: Final = re.compile(r"[a-z]+[0-9]?(?:[._-][a-z]+)*", re.IGNORECASE)
"""A part of a path that is a word and no id, such as `chat` or `v1`."""


def may_sample(method: str, path: str, body: bytes, encoding: str) -> bool:
    """Whether a request of no known dialect may ask for a completion, by its plain path and its body.

    `encoding` is the Content-Encoding; a compressed body cannot be looked into, so it may.
    """
    if method != "POST" or not path or _WITHOUT.search(path):
        return False
    return bool(encoding) or values.mapping(json_object(body)) is not None  # forms and other bytes ask for none


def pattern_of(path: str) -> str:
    """A path with `*` in the place of ids and names of models: `/model/gpt-4.1/converse` gives `/model/*/converse`."""
    *front, last = path.split("/")
    name, colon, method = last.rpartition(":")
    shown = [part if _NAMES.fullmatch(part) or not part else "*" for part in front]
    return "/".join([*shown, f"*{colon}{method}" if name else last])


class UnreadRequests:
    """Warns once for each pattern of paths that such calls are not recorded."""

    def __init__(self) -> None:
        self._said: set[str] = set()

    def warn(self, path: str) -> str:
        """Warn, if there was no warning for the pattern of this path. Returns the pattern."""
        pattern = pattern_of(path)
        if pattern not in self._said and len(self._said) < _MAX_PATTERNS:
            self._said.add(pattern)
            logger.warning(
                "art-otel: POST %s is passed on without being recorded, because it may ask for a completion in a "
                "dialect that the gateway does not know; rollouts with such requests are incomplete (request "
                "unread). Let the agent ask for"
                " /v1/chat/completions, /v1/responses, /v1/messages or Gemini's :generateContent",
                pattern,
            )
        return pattern
