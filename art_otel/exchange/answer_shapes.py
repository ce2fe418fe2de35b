"""Answer shapes: what a server sampled and parsed, as the answer of a dialect; Chat Completions and Completions here.

Invariant: one parsing, of the server, makes all of them: a chat completion whole, or the choices of its chunks one by
one. A shape adds what its dialect has around that, field by field as vLLM 0.32 or 0.33 answers itself, but for ids and
times.

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
"""The first status that says that the server is to blame."""

AnswerFields: TypeAlias = dict[str, Value]


@dataclass(frozen=True, kw_only=True, slots=True)
class Asking:
    """What an agent asked, as far as its answer says it again.

    `since_0_33` says that the server answers as vLLM 0.33 does, `is_translated` that it has not the dialect: the answer
    is as the API's own servers have it.
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
        """Whether a stream of OpenAI's says at its end what it used."""
        return bool(self._stream_options.get("include_usage"))

    def running_usage(self, choice: AnswerFields) -> AnswerFields:
        """What the chunk of a choice says of that, where it was asked to."""
        if not (self.usage_asked and self._stream_options.get("continuous_usage_stats")):
            return {}
        prompt, sampled = len(self.prompt_ids), choice.get("sampled", 0)
        return {"usage": {"prompt_tokens": prompt, "total_tokens": prompt + sampled, "completion_tokens": sampled}}

    @property
    def _stream_options(self) -> Mapping[str, Value]:
        return values.mapping(self.request.get("stream_options")) or {}


def error_body(status: int, message: str, said: Value = None, field: Value = None) -> AnswerFields:
    """An error as OpenAI's servers send it. `said` is that of another server, if there is one."""
    kind = "invalid_request_error" if status < _FIRST_OF_SERVER else "server_error"
    return {"error": {"type": kind, "code": None, "param": field, **(values.mapping(said) or {}), "message": message}}


class AnswerShape(Protocol):
    """The answer of one dialect."""

    def __init__(self, asking: Asking) -> None: ...

    def whole(self, completion: AnswerFields) -> AnswerFields:
        """The answer that a chat completion makes."""
        ...

    def begin(self) -> bytes:
        """The events before anything is sampled."""
        ...

    def piece(self, choice: AnswerFields) -> bytes:
        """The events of a choice of a chunk. Its `sampled` counts the tokens of the choice up to here."""
        ...

    def end(self, usage: AnswerFields) -> bytes:
        """The events when all is sampled. What ends the stream comes last."""
        ...

    def failed(self, error: AnswerFields) -> bytes:
        """The events where the sampling broke off, of an error as OpenAI has them."""
        ...


class ChatShape:
    """Chat Completions."""

    def __init__(self, asking: Asking) -> None:
        self._asking = asking
        self._has_ids = bool(asking.request.get("return_token_ids"))

    def whole(self, completion: AnswerFields) -> AnswerFields:
        """The chat completion as it is."""
        return {**completion, "prompt_token_ids": [*self._asking.prompt_ids] if self._has_ids else None}

    def begin(self) -> bytes:
        """The chunk that says the role."""
        choices = [
            {"index": index, "delta": {"role": "assistant", "content": ""}, "logprobs": None, "finish_reason": None}
            for index in range(self._asking.n)
        ]
        prompt_ids = [*self._asking.prompt_ids] if self._has_ids else None
        more = {"prompt_token_ids": prompt_ids, "prompt_text": None, **self._asking.running_usage({})}
        return b"".join(self._chunk([choice], more) for choice in choices)

    def piece(self, choice: AnswerFields) -> bytes:
        """A chunk, where there is something to say."""
        delta = _filled(values.mapping(choice.get("delta")) or {})
        delta.pop("role", None)
        is_end = choice.get("finish_reason") is not None
        if not (delta or is_end or choice.get("logprobs") or self._has_ids):
            return b""
        if delta.get("tool_calls"):
            delta = {"content": None, **delta}
        made = {
            "index": choice["index"],
            "delta": delta,
            "logprobs": choice.get("logprobs"),
            "finish_reason": choice.get("finish_reason"),
            **({"stop_reason": choice.get("stop_reason")} if is_end else {}),
            "token_ids": choice.get("token_ids") if self._has_ids else None,
            **_weights(self._asking, choice),
        }
        return self._chunk([made], self._asking.running_usage(choice))

    def end(self, usage: AnswerFields) -> bytes:
        """The usage, where it was asked for, and the end."""
        chunk = self._chunk([], {"usage": usage}) if self._asking.usage_asked else b""
        return chunk + _DONE

    def failed(self, error: AnswerFields) -> bytes:
        """The error, and the end."""
        return _data({"error": error}) + _DONE

    def _chunk(self, choices: Sequence[AnswerFields], more: AnswerFields) -> bytes:
        asking = self._asking
        chunk = {"object": "chat.completion.chunk", "created": asking.created, "model": asking.model}
        return _data({"id": asking.answer_id, **chunk, "choices": choices, **more})


class CompletionShape:
    """Completions. Their choices have a text, and are not parsed."""

    def __init__(self, asking: Asking) -> None:
        self._asking = asking
        self._has_ids = bool(asking.request.get("return_token_ids"))
        self._offsets: dict[int, int] = {}

    def whole(self, completion: AnswerFields) -> AnswerFields:
        """A completion of the choices."""
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
        return _data({**self._around(), "choices": [self._choice(choice)], **self._asking.running_usage(choice)})

    def end(self, usage: AnswerFields) -> bytes:
        """The usage, where it was asked for, and the end."""
        chunk = _data({**self._around(), "choices": [], "usage": usage}) if self._asking.usage_asked else b""
        return chunk + _DONE

    def failed(self, error: AnswerFields) -> bytes:
        """The error, and the end."""
        return _data({"error": error}) + _DONE

    def _around(self) -> AnswerFields:
        asking = self._asking
        around = {"object": "text_completion", "created": asking.created, "model": asking.model}
        return {"id": asking.answer_id, **around}

    def _choice(self, choice: AnswerFields) -> AnswerFields:
        index = choice["index"]
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
            "prompt_token_ids": [*self._asking.prompt_ids] if self._has_ids and is_first else None,
            "token_ids": choice.get("token_ids") if self._has_ids else None,
            **_weights(self._asking, choice),
        }


_DONE: Final = b"data: [DONE]\n\n"


def _data(fields: AnswerFields) -> bytes:
    return b"data: " + _ENCODE(fields) + b"\n\n"


def event(fields: AnswerFields) -> bytes:
    """An event that is named by its type."""
    return b"event: " + str(fields["type"]).encode() + b"\n" + _data(fields)


def _weights(asking: Asking, choice: AnswerFields) -> AnswerFields:
    """The versions of the weights that sampled a choice, or null, where the server has a field for them."""
    return {"weight_versions": choice.get("weight_versions")} if asking.since_0_33 else {}


def _filled(delta: Mapping[str, Value]) -> AnswerFields:
    """A delta without what is null in it."""
    made: AnswerFields = {name: value for name, value in delta.items() if value is not None and value != []}
    if "tool_calls" in made:
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
    """The logprobs of Completions, of those of Chat Completions, and the offset behind them: tokens count, not text."""
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
