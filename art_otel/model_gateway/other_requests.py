"""Other requests: what agents ask a model server beside completions, and in dialects that the gateway does not know.

The rule: a POST that is in no row of `WITHOUT_COMPLETION` may ask a model for a completion. Where the server takes it,
its rollout lacks a call, and says so; what the server refuses was not sampled. All of it passes as it came.

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
"""How the paths end of POSTs that sample nothing."""

_WITHOUT: Final = re.compile(f"(?:{'|'.join(WITHOUT_COMPLETION)})$")

_NAMES: Final = re.compile(r"[a-z]+[0-9]?(?:[._-][a-z]+)*", re.IGNORECASE)
"""A part of a path that is no id."""


def may_sample(method: str, path: str, body: bytes, encoding: str) -> bool:
    """Whether a request of no known dialect may ask for a completion, by its plain path and its body."""
    if method != "POST" or not path or _WITHOUT.search(path):
        return False
    return bool(encoding) or values.mapping(json_object(body)) is not None  # forms and other bytes ask for none


def pattern_of(path: str) -> str:
    """A path with `*` for names of models and ids in it: `/model/*/converse`."""
    *front, last = path.split("/")
    name, colon, method = last.rpartition(":")
    shown = [part if _NAMES.fullmatch(part) or not part else "*" for part in front]
    return "/".join([*shown, f"*{colon}{method}" if name else last])


class UnreadRequests:
    """Says of each pattern of paths once that its calls are not recorded."""

    def __init__(self) -> None:
        self._said: set[str] = set()

    def warn(self, path: str) -> str:
        """Say it, if it was not said of such a path. Gives the pattern."""
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
