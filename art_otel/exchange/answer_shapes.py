"""Answer shapes: write a chat completion as the answer of a dialect; here those of Chat Completions and Completions.

Invariant: the server's parsers make a chat completion, or the choices of its chunks, and all shapes start from that. A
shape writes the same fields as vLLM 0.32 or 0.33 would in the dialect; only ids and times differ.

Source: answers of vLLM 0.32 and 0.33
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

import msgspec

from art_otel.conventions import values
from art_otel.exchange.assembly import WireDialect
from art_otel.spans import Value

_ENCODE: Final = msgspec.json.Encoder().encode
_FIRST_OF_SERVER: Final = 500
"""Statuses from here on are errors of the server, below they are errors of the request."""

AnswerFields: TypeAlias = dict[str, Value]


@dataclass(frozen=True, kw_only=True, slots=True)
class RequestFacts:
    """The facts about a request that its answer needs.

    `request` is the agent's request, `sampling` the settings of the sampling. `since_0_33`: the answer has the fields
    of vLLM 0.33. `is_translated`: the server lacks the dialect, so the answer follows the API's own servers, not vLLM.
    """

    answer_id: str
    created: int
    model: str
    dialect: WireDialect
    request: AnswerFields
    sampling: AnswerFields
    prompt_ids: Sequence[int]
    since_0_33: bool = False
    is_translated: bool = False

    @property
    def n(self) -> int:
        """How many choices there are."""
        return values.integer(self.sampling.get("n")) or 1

    @property
    def usage_asked(self) -> bool:
        """Whether the agent asked for the usage at the end of its stream."""
        return bool(self._stream_options.get("include_usage"))

    def running_usage(self, choice: AnswerFields) -> AnswerFields:
        """The running usage for a chunk, if the agent asked for one in every chunk; else {}."""
        if not (self.usage_asked and self._stream_options.get("continuous_usage_stats")):
            return {}
        prompt, sampled = len(self.prompt_ids), choice.get("sampled", 0)
        return {"usage": {"prompt_tokens": prompt, "total_tokens": prompt + sampled, "completion_tokens": sampled}}

    @property
    def _stream_options(self) -> Mapping[str, Value]:
        return values.mapping(self.request.get("stream_options")) or {}


def error_body(status: int, message: str, said: Value = None, field: Value = None) -> AnswerFields:
    """An error as OpenAI's servers send it. `said` has fields of the server's own error, if there is one."""
    kind = "invalid_request_error" if status < _FIRST_OF_SERVER else "server_error"
    return {"error": {"type": kind, "code": None, "param": field, **(values.mapping(said) or {}), "message": message}}


class AnswerShape(Protocol):
    """Writes the answer of one dialect: `whole`, or `begin`, `piece` for each choice of each chunk, and `end`."""

    def __init__(self, facts: RequestFacts) -> None: ...

    def whole(self, completion: AnswerFields) -> AnswerFields:
        """The answer for a whole chat completion."""
        ...

    def begin(self) -> bytes:
        """The events before anything is sampled."""
        ...

    def piece(self, choice: AnswerFields) -> bytes:
        """The events for a choice of a chunk. The choice's `sampled` is the number of its tokens so far."""
        ...

    def end(self, usage: AnswerFields) -> bytes:
        """The events after everything is sampled; the last one ends the stream."""
        ...

    def failed(self, error: AnswerFields) -> bytes:
        """The events for sampling that broke off. `error` has the fields of OpenAI's errors."""
        ...


class ChatShape:
    """Writes answers as Chat Completions."""

    def __init__(self, facts: RequestFacts) -> None:
        self._facts = facts
        self._has_ids = bool(facts.request.get("return_token_ids"))

    def whole(self, completion: AnswerFields) -> AnswerFields:
        """The chat completion itself, with the ids of the prompt if the agent asked for ids."""
        return {**completion, "prompt_token_ids": [*self._facts.prompt_ids] if self._has_ids else None}

    def begin(self) -> bytes:
        """A chunk with the role for each choice."""
        choices = [
            {"index": index, "delta": {"role": "assistant", "content": ""}, "logprobs": None, "finish_reason": None}
            for index in range(self._facts.n)
        ]
        prompt_ids = [*self._facts.prompt_ids] if self._has_ids else None
        more = {"prompt_token_ids": prompt_ids, "prompt_text": None, **self._facts.running_usage({})}
        return b"".join(self._chunk([choice], more) for choice in choices)

    def piece(self, choice: AnswerFields) -> bytes:
        """A chunk; b"" where it would be empty."""
        delta = _filled(values.mapping(choice.get("delta")) or {})
        delta.pop("role", None)
        is_end = choice.get("finish_reason") is not None
        if not (delta or is_end or choice.get("logprobs") or self._has_ids):
            return b""
        if delta.get("tool_calls"):
            # vLLM sends a null content beside tool calls.
            delta = {"content": None, **delta}
        made = {
            "index": choice["index"],
            "delta": delta,
            "logprobs": choice.get("logprobs"),
            "finish_reason": choice.get("finish_reason"),
            **({"stop_reason": choice.get("stop_reason")} if is_end else {}),
            "token_ids": choice.get("token_ids") if self._has_ids else None,
            **_weights(self._facts, choice),
        }
        return self._chunk([made], self._facts.running_usage(choice))

    def end(self, usage: AnswerFields) -> bytes:
        """The usage, if the agent asked for it, and `[DONE]`."""
        chunk = self._chunk([], {"usage": usage}) if self._facts.usage_asked else b""
        return chunk + _DONE

    def failed(self, error: AnswerFields) -> bytes:
        """The error, and the end."""
        return _data({"error": error}) + _DONE

    def _chunk(self, choices: Sequence[AnswerFields], more: AnswerFields) -> bytes:
        facts = self._facts
        chunk = {"object": "chat.completion.chunk", "created": facts.created, "model": facts.model}
        return _data({"id": facts.answer_id, **chunk, "choices": choices, **more})


class CompletionShape:
    """Writes answers as Completions, whose choices are plain texts and need no parsing."""

    def __init__(self, facts: RequestFacts) -> None:
        self._facts = facts
        self._has_ids = bool(facts.request.get("return_token_ids"))
        self._offsets: dict[int, int] = {}

    def whole(self, completion: AnswerFields) -> AnswerFields:
        """The completion with these choices."""
        choices = [
            {**self._choice(choice), "prompt_logprobs": None, "routed_experts": None}
            for choice in completion["choices"]
        ]
        around = {"service_tier": None, "usage": completion["usage"], "kv_transfer_params": None}
        return {**self._around(), "choices": choices, **around, "ec_transfer_params": None, "metrics": None}

    def begin(self) -> bytes:
        """Nothing comes before the first text."""
        return b""

    def piece(self, choice: AnswerFields) -> bytes:
        """A chunk."""
        return _data({**self._around(), "choices": [self._choice(choice)], **self._facts.running_usage(choice)})

    def end(self, usage: AnswerFields) -> bytes:
        """The usage, where it was asked for, and the end."""
        chunk = _data({**self._around(), "choices": [], "usage": usage}) if self._facts.usage_asked else b""
        return chunk + _DONE

    def failed(self, error: AnswerFields) -> bytes:
        """The error, and the end."""
        return _data({"error": error}) + _DONE

    def _around(self) -> AnswerFields:
        facts = self._facts
        around = {"object": "text_completion", "created": facts.created, "model": facts.model}
        return {"id": facts.answer_id, **around}

    def _choice(self, choice: AnswerFields) -> AnswerFields:
        index = choice["index"]
        # The ids of the prompt come once, with the first piece of each choice.
        is_first = index not in self._offsets
        offset, logprobs = self._offsets.setdefault(index, 0), None
        if choice.get("logprobs") is not None:
            logprobs, self._offsets[index] = _text_logprobs(choice["logprobs"], offset)
        return {
            "index": index,
            "text": choice.get("text") or "",
            "logprobs": logprobs,
            "finish_reason": choice.get("finish_reason"),
            "stop_reason": choice.get("stop_reason"),
            "prompt_token_ids": [*self._facts.prompt_ids] if self._has_ids and is_first else None,
            "token_ids": choice.get("token_ids") if self._has_ids else None,
            **_weights(self._facts, choice),
        }


_DONE: Final = b"data: [DONE]\n\n"


def _data(fields: AnswerFields) -> bytes:
    return b"data: " + _ENCODE(fields) + b"\n\n"


def event(fields: AnswerFields) -> bytes:
    """A server-sent event with the field `type` as its name."""
    return b"event: " + str(fields["type"]).encode() + b"\n" + _data(fields)


def _weights(facts: RequestFacts, choice: AnswerFields) -> AnswerFields:
    """The field with the versions of the weights that sampled a choice (or null); {} before vLLM 0.33."""
    return {"weight_versions": choice.get("weight_versions")} if facts.since_0_33 else {}


def _filled(delta: Mapping[str, Value]) -> AnswerFields:
    """A delta without its null fields and empty lists."""
    made: AnswerFields = {name: value for name, value in delta.items() if value is not None and value != []}
    if "tool_calls" in made:
        # Only the first piece of a call has an id, and with it the type.
        made["tool_calls"] = [
            {
                name: value if values.mapping(value) is None else _filled(value)
                for name, value in call.items()
                if value is not None and not (name == "type" and call.get("id") is None)
            }
            for call in made["tool_calls"]
        ]
    return made


def _text_logprobs(logprobs: AnswerFields, offset: int) -> tuple[AnswerFields, int]:
    """Turn logprobs of Chat Completions into those of Completions. Also returns the next text offset.

    Offsets add up the lengths of the tokens' texts, which may differ from the text itself, as vLLM's do.
    """
    entries = [*logprobs["content"]]
    offsets: list[int] = []
    for entry in entries:
        offsets.append(offset)
        offset += len(entry["token"])
    made: AnswerFields = {
        "text_offset": offsets,
        "token_logprobs": [entry["logprob"] for entry in entries],
        "tokens": [entry["token"] for entry in entries],
        "top_logprobs": [
            {top["token"]: top["logprob"] for top in entry.get("top_logprobs") or [entry]} for entry in entries
        ],
    }
    return made, offset
