"""Answer shapes: what a server sampled and parsed, as the answer of Chat Completions, Completions or Messages.

Invariant: one parsing, of the server, makes all of them: a chat completion whole, or the choices of its chunks one by
one. A shape adds what its dialect has around that, field by field as vLLM 0.32 or 0.33 answers itself, but for ids and
times.

Sources: answers of vLLM 0.32 and 0.33; https://docs.anthropic.com/en/api/messages-streaming
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias
from uuid import uuid4

import msgspec

from art_otel.conventions import values
from art_otel.exchange.assembly import WireDialect
from art_otel.spans import Value

_ENCODE: Final = msgspec.json.Encoder().encode

AnswerFields: TypeAlias = dict[str, Value]


@dataclass(frozen=True, kw_only=True, slots=True)
class Asking:
    """What an agent asked, as far as its answer says it again.

    `since_0_33` says that the server answers as vLLM 0.33 does.
    """

    answer_id: str
    created: int
    model: str
    dialect: WireDialect
    request: AnswerFields
    sampling: AnswerFields
    prompt_ids: Sequence[int]
    since_0_33: bool = False

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


class MessageShape:
    """Anthropic's Messages: blocks of thinking, text and tool calls, one behind the other."""

    def __init__(self, asking: Asking) -> None:
        self._asking = asking
        self._index = -1
        self._block: str | None = None
        self._call = -1
        self._arguments: list[str] = []
        self._text_behind: list[str] = []
        self._end: AnswerFields = {}

    def whole(self, completion: AnswerFields) -> AnswerFields:
        """A message of the first choice."""
        choice = completion["choices"][0]
        message: AnswerFields = choice["message"]
        calls: list[AnswerFields] = message.get("tool_calls") or []
        blocks: list[AnswerFields] = []
        if message.get("reasoning"):
            blocks.append({"type": "thinking", "thinking": message["reasoning"], "signature": uuid4().hex})
        if message.get("content"):
            blocks.append({"type": "text", "text": message["content"]})
        blocks += [
            {
                "type": "tool_use",
                "id": call["id"],
                "name": call["function"]["name"],
                "input": json.loads(call["function"]["arguments"]),
            }
            for call in calls
        ]
        reason, sequence = _stop_reason(choice, has_calls=bool(calls), are_whole=bool(calls))
        said = {"stop_reason": reason, "stop_sequence": sequence}
        return {
            **self._message(),
            "content": blocks or [{"type": "text", "text": ""}],
            **{name: value for name, value in said.items() if value is not None},
            "usage": _anthropic_usage(values.mapping(completion.get("usage")) or {}),
        }

    def begin(self) -> bytes:
        """The message without content."""
        start = {"prompt_tokens": len(self._asking.prompt_ids), "completion_tokens": 0}
        none = {"stop_reason": None, "stop_sequence": None}
        message: AnswerFields = {**self._message(), "content": [], **none, "usage": _anthropic_usage(start)}
        return event({"type": "message_start", "message": message})

    def piece(self, choice: AnswerFields) -> bytes:
        """The events of a delta."""
        if choice.get("finish_reason") is not None:
            self._end = choice
        delta = values.mapping(choice.get("delta")) or {}
        events = b""
        if delta.get("reasoning"):
            events += self._within("thinking", {"thinking": ""})
            events += self._delta({"type": "thinking_delta", "thinking": delta["reasoning"]})
        if delta.get("content"):
            if self._block == "tool_use":  # it waits until the call has ended
                self._text_behind.append(delta["content"])
            else:
                events += self._within("text", {"text": ""})
                events += self._delta({"type": "text_delta", "text": delta["content"]})
        for call in delta.get("tool_calls") or ():
            events += self._of_call(call)
        return events

    def end(self, usage: AnswerFields) -> bytes:
        """The reason to stop, the usage and the end."""
        events = self._close()
        has_calls = self._call >= 0
        reason, sequence = _stop_reason(self._end, has_calls=has_calls, are_whole=has_calls and self._is_whole())
        delta = {"stop_reason": reason, "stop_sequence": sequence}
        events += event({"type": "message_delta", "delta": delta, "usage": _anthropic_usage(usage)})
        return events + event({"type": "message_stop"})

    def failed(self, error: AnswerFields) -> bytes:
        """The error, which is the end."""
        return event({"type": "error", "error": {"type": "internal_error", "message": error["message"]}})

    def _message(self) -> AnswerFields:
        asking = self._asking
        return {"id": asking.answer_id, "type": "message", "role": "assistant", "model": asking.model}

    def _of_call(self, call: AnswerFields) -> bytes:
        function = values.mapping(call.get("function")) or {}
        events = b""
        if call.get("id") is not None and function.get("name") is not None:
            events += self._close()
            self._call, self._arguments = call.get("index", 0), []
            events += self._open("tool_use", {"id": call["id"], "name": function["name"], "input": {}})
        if function.get("arguments") and self._block == "tool_use" and call.get("index", 0) == self._call:
            self._arguments.append(function["arguments"])
            events += self._delta({"type": "input_json_delta", "partial_json": function["arguments"]})
        return events

    def _within(self, block: str, fields: AnswerFields) -> bytes:
        return b"" if self._block == block else self._close() + self._open(block, fields)

    def _open(self, block: str, fields: AnswerFields) -> bytes:
        self._index += 1
        self._block = block
        block_of = {"type": block, **fields}
        return event({"type": "content_block_start", "content_block": block_of, "index": self._index})

    def _delta(self, delta: AnswerFields) -> bytes:
        return event({"type": "content_block_delta", "delta": delta, "index": self._index})

    def _close(self) -> bytes:
        if self._block is None:
            return b""
        events = b""
        if self._block == "thinking":
            events += self._delta({"type": "signature_delta", "signature": uuid4().hex})
        events += event({"type": "content_block_stop", "index": self._index})
        self._block = None
        if self._text_behind:
            events += self._open("text", {"text": ""})
            events += self._delta({"type": "text_delta", "text": "".join(self._text_behind)})
            self._text_behind = []
            events += self._close()
        return events

    def _is_whole(self) -> bool:
        try:
            json.loads("".join(self._arguments))
        except ValueError:
            return False
        return True


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


def _stop_reason(choice: AnswerFields, *, has_calls: bool, are_whole: bool) -> tuple[str | None, str | None]:
    """Anthropic's reason to stop, and the text that stopped."""
    finish, stop = choice.get("finish_reason"), choice.get("stop_reason")
    if finish == "length":
        return "max_tokens", None
    if finish not in ("stop", "tool_calls"):
        return None, None
    if are_whole:
        return "tool_use", None
    if isinstance(stop, str):
        return "stop_sequence", stop
    return "tool_use" if finish == "tool_calls" or has_calls else "end_turn", None


def _anthropic_usage(usage: Mapping[str, Value]) -> AnswerFields:
    prompt, completion = usage.get("prompt_tokens") or 0, usage.get("completion_tokens") or 0
    cached = (values.mapping(usage.get("prompt_tokens_details")) or {}).get("cached_tokens")
    if cached is None:
        return {"input_tokens": prompt, "output_tokens": completion}
    return {"input_tokens": prompt - cached, "output_tokens": completion, "cache_read_input_tokens": cached}


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
