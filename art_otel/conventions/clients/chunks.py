"""JoinedChunks: the chunks of a streamed Chat Completion or Completion as the body it has without streaming.

Invariant: what never came is absent, and token ids of which some are missing are left out whole.

Source of the format: https://platform.openai.com/docs/api-reference/chat-streaming; `prompt_token_ids` and `token_ids`
are vLLM's, `sglext` is SGLang's.
"""

from typing import Final

from art_otel.conventions.attributes import values
from art_otel.conventions.bodies.server_tokens import choice_tokens
from art_otel.conventions.clients.joining import join, place_of, whole
from art_otel.spans import Value

_HEAD: Final = ("id", "model", "prompt_token_ids", "sglext")
_APART: Final = frozenset({"index", "delta", "token_ids", "logprobs"})
_SAMPLED: Final = ("content", "reasoning_content", "reasoning", "refusal", "tool_calls", "function_call", "text")


class JoinedChunks:
    """What a stream has sent so far."""

    def __init__(self) -> None:
        self._head: dict[str, Value] = {}
        self._usage: dict[str, Value] = {}
        self._choices: dict[int, _JoinedChoice] = {}

    def add(self, chunk: dict[str, Value]) -> None:
        """Join the next chunk."""
        for name in _HEAD:
            if name not in self._head and chunk.get(name) is not None:
                self._head[name] = chunk[name]
        if chunk.get("usage") is not None:
            self._usage = {"usage": chunk["usage"]}  # some servers count up with each chunk
        for position, entry in enumerate(values.items(chunk.get("choices")) or ()):
            fields = values.mapping(entry) or {}
            index = place_of(fields, position)
            choice = self._choices.get(index)
            if choice is None:
                choice = self._choices[index] = _JoinedChoice()
            choice.add(fields)

    def body(self) -> dict[str, Value]:
        """The body so far."""
        choices = [{"index": index, **self._choices[index].fields()} for index in sorted(self._choices)]
        return {**self._head, **self._usage, "choices": choices}


class _JoinedChoice:
    def __init__(self) -> None:
        self._fields: dict[str, Value] = {}
        self._message: dict[str, Value] = {}
        self._ids: list[Value] = []
        self._logprobs: list[Value] = []
        self._has_gap = False

    def add(self, fields: dict[str, Value]) -> None:
        ids, logprobs = choice_tokens(fields)
        self._ids += values.items(ids) or ()
        self._logprobs += values.items(logprobs) or ()
        message = values.mapping(fields.get("delta"))
        if message:
            join(self._message, message)
        for name, value in fields.items():
            if value is not None and name not in _APART:
                join(self._fields, {name: value})
        if not ids and not self._has_gap:
            content = message or fields
            self._has_gap = any(content.get(name) for name in _SAMPLED)

    def fields(self) -> dict[str, Value]:
        choice: dict[str, Value] = {"finish_reason": None, **whole(self._fields)}
        if self._message:
            choice["message"] = whole(self._message)
        if self._logprobs:
            choice["logprobs"] = {"token_logprobs": self._logprobs}
        if self._ids and not self._has_gap:
            choice["token_ids"] = self._ids
        return choice
