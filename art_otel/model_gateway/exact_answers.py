"""The answer of a server that samples from ids, in the dialect of the agent.

Invariant: it is read like an answer of the server, and what was sampled is known before its last piece is. Pieces pass
as they are sampled; while one is being parsed, those that come meanwhile are gathered to the next. Where a text may
stop the sampling, all is held until it has, because the parsers know ids only.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import suppress
from typing import Final

import msgspec

from art_otel import attributes as names
from art_otel.conventions import encode_ids, encode_logprobs, values
from art_otel.conventions.bodies.token_facts import fact_attributes
from art_otel.conventions.bodies.tokens import parse_ids, parse_logprobs
from art_otel.model_gateway.answer_shapes import (
    Asking,
    ChatShape,
    CompletionShape,
    Fields,
    MessageShape,
    Shape,
    parsing_request,
)
from art_otel.model_gateway.exchanges import Dialect, events_of
from art_otel.model_gateway.id_server import IdServer, read, said
from art_otel.model_gateway.response_shape import ResponseShape
from art_otel.model_gateway.splice import Splice, Turn
from art_otel.model_gateway.upstreams import Answer, BrokenOffError, FailedError, RawHeaders, UpstreamError
from art_otel.spans import Value

_SHAPES: Final[Mapping[Dialect, type[Shape]]] = {
    "chat": ChatShape,
    "completions": CompletionShape,
    "messages": MessageShape,
    "responses": ResponseShape,
}
_OK: Final = 200
_ERROR: Final[Fields] = {"message": "", "type": "InternalServerError", "param": None, "code": 500}
"""An error as vLLM has it."""

_ENCODE: Final = msgspec.json.Encoder().encode
_OBJECT: Final = msgspec.json.Decoder(Fields)
_STREAM_TYPE: Final = (b"content-type", b"text/event-stream; charset=utf-8")
_JSON_TYPE: Final = (b"content-type", b"application/json")
_OF_BODY: Final = frozenset({b"content-length", b"content-type", b"transfer-encoding"})


class Sampled:
    """What a call was sampled from, and what was sampled, choice by choice."""

    def __init__(self, spliced: Splice) -> None:
        self._spliced = spliced
        self.choices: dict[int, Fields] = {}
        self.reasoning: dict[int, str] = {}

    @property
    def outcome(self) -> str:
        """What became of the prompt."""
        return self._spliced.outcome

    def attributes(self) -> dict[str, Value]:
        """What the span of the call says of it."""
        spliced = self._spliced
        made: dict[str, Value] = {
            names.PROMPT_TOKENS: encode_ids(parse_ids([*spliced.prompt])),
            names.PROMPT: self.outcome,
        }
        if spliced.reason:
            made[names.PROMPT_REASON] = spliced.reason
        if spliced.is_reasoning_kept:
            made[names.KEPT_REASONING] = True
        for index, choice in self.choices.items():
            ids: list[int] = choice["token_ids"]
            if ids:
                made[f"{names.COMPLETION_TOKENS_PREFIX}{index}"] = encode_ids(parse_ids(ids))
            made |= fact_attributes(index, choice)
            logprobs = [entry["logprob"] for entry in _entries(choice)]
            if ids and len(logprobs) == len(ids):
                made[f"{names.COMPLETION_LOGPROBS_PREFIX}{index}"] = encode_logprobs(parse_logprobs(logprobs))
        return made

    def turns(self) -> Iterator[Turn]:
        """The turns that prompts may continue."""
        for index, choice in self.choices.items():
            if choice["token_ids"]:
                is_stopped = choice.get("finish_reason") == "stop" and not isinstance(choice.get("stop_reason"), str)
                reasoning = self.reasoning.get(index, "")
                yield self._spliced.sampled(choice["token_ids"], is_stopped=is_stopped, reasoning=reasoning)


class ExactAnswer:
    """The answer to a request in its dialect, like one of the server. It is read once, and then it is closed."""

    status: Final = _OK

    def __init__(
        self, server: IdServer, asking: Asking, answered: Answer, sampled: Sampled, over: Callable[[Sampled], None]
    ) -> None:
        self.sampled: Final = sampled
        self._server = server
        self._over = over
        self._asking = asking
        self._answered = answered
        self._shape = _SHAPES[self._asking.dialect](asking)
        self._parsing = parsing_request(self._asking.request, self._asking.dialect)
        self._prompt = msgspec.Raw(_ENCODE([*asking.prompt_ids]))  # every parsing names it
        self._usage: Fields = {}
        self._states: dict[int, Value] = {}
        self.is_stream = bool(self._asking.request.get("stream"))
        headers = [(name, value) for name, value in answered.raw_headers if name.lower() not in _OF_BODY]
        self.raw_headers: RawHeaders = [*headers, _STREAM_TYPE if self.is_stream else _JSON_TYPE]
        lower = {name.lower(): value for name, value in answered.headers.items()}
        self.headers = {**lower, "content-type": self.raw_headers[-1][1].decode()}

    async def pieces(self) -> AsyncIterator[bytes]:
        """The body, as it is sampled and parsed. Raises UpstreamError where the server breaks off, or answers oddly."""
        try:
            if not self.is_stream:
                yield await self._whole()
                return
            yield self._shape.begin()
            async for choices in self._gathered():
                for choice in choices:
                    if piece := await self._piece(choice):
                        yield piece
            self._over(self.sampled)
            yield self._shape.end(self._usage)
        except (
            AttributeError,
            KeyError,
            TypeError,
            ValueError,
        ) as error:  # another version; ValueError has JSON's errors
            raise BrokenOffError(f"its answer has another form: {type(error).__name__}: {error}") from error

    def failed(self, error: UpstreamError) -> bytes:
        """What the agent has to get where a stream broke off: the error, as its dialect has it."""
        said: Mapping[str, Value] = error.said if isinstance(error, FailedError) else {}
        message = str(error) if said else f"the model server broke off: {error}"
        return self._shape.failed({**_ERROR, **said, "message": message})

    def close(self) -> None:
        """Leave the server, whether it has ended or not."""
        self._answered.close()

    async def _whole(self) -> bytes:
        body: Fields = _OBJECT.decode(await read(self._answered))
        self._usage = _usage(body.get("usage"))
        for choice in body["choices"]:
            self._take(choice)
        completion = await self._completion(body)
        self._over(self.sampled)
        try:
            return _ENCODE(self._shape.whole(completion))
        except ValueError as error:
            raise BrokenOffError(f"the arguments of a tool call are no JSON: {error}") from error

    async def _completion(self, body: Fields) -> Fields:
        """The chat completion that the server's parsers make; of Completions the choices as they are."""
        choices: list[Fields] = body["choices"]
        if self._asking.dialect == "completions":
            return {"choices": [self._plain(choice) for choice in choices], "usage": self._usage}
        parsed_ids = [await self._seen_ids(choice) for choice in choices]
        generated = {
            "request_id": self._asking.answer_id,
            "prompt_token_ids": self._prompt,
            "choices": [
                {
                    "index": choice["index"],
                    "finish_reason": choice.get("finish_reason"),
                    "stop_reason": choice.get("stop_reason"),
                    "token_ids": ids,
                }
                for choice, ids in zip(choices, parsed_ids, strict=True)
                if ids
            ],
        }
        parsed: dict[int, Fields] = {}
        completion: Fields = {}
        if generated["choices"]:
            completion = await self._server.parse({**self._asks(), "generate_response": generated})
            parsed = {choice["index"]: choice for choice in completion["choices"]}
        made = [self._parsed(choice, parsed.get(choice["index"])) for choice in choices]
        around = {"id": self._asking.answer_id, "object": "chat.completion", "created": self._asking.created}
        return {**completion, **around, "model": self._asking.model, "choices": made, "usage": self._usage}

    def _parsed(self, choice: Fields, parsed: Fields | None) -> Fields:
        message = {"role": "assistant", "content": ""} if parsed is None else parsed["message"]
        message = {name: value for name, value in message.items() if not (name == "tool_calls" and not value)}
        finish = choice.get("finish_reason")
        named = values.mapping(self._parsing.get("tool_choice")) is not None
        if finish == "stop" and message.get("tool_calls") and not named:
            finish = "tool_calls"
        self.sampled.reasoning[choice["index"]] = message.get("reasoning") or ""
        return {
            **(parsed or {}),
            **self._plain(choice),
            "message": message,
            "finish_reason": finish,
            "routed_experts": None,
        }

    def _plain(self, choice: Fields) -> Fields:
        """A choice without what was not asked for."""
        has_ids = self._asking.request.get("return_token_ids")
        made: Fields = {
            "index": choice["index"],
            "logprobs": self._logprobs(choice),
            "finish_reason": choice.get("finish_reason"),
            "stop_reason": choice.get("stop_reason"),
            "token_ids": choice.get("token_ids") if has_ids else None,
        }
        return {**made, "text": choice.get("text")} if self._asking.dialect == "completions" else made

    def _logprobs(self, choice: Fields) -> Value:
        asked = self._asking.request.get("logprobs")
        if asked is None or asked is False or choice.get("logprobs") is None:
            return None
        if self._asking.dialect == "completions":
            return choice["logprobs"]
        count = values.integer(self._asking.request.get("top_logprobs")) or 0
        content = choice["logprobs"]["content"]
        return {"content": [{**entry, "top_logprobs": entry["top_logprobs"][:count]} for entry in content]}

    async def _gathered(self) -> AsyncIterator[list[Fields]]:
        """The choices of the chunks that came since the last were taken, of each index one."""
        chunks: asyncio.Queue[Fields | BaseException | None] = asyncio.Queue()
        reading = asyncio.create_task(self._read_chunks(chunks))
        holds = _stops_at_text(self._asking.sampling)
        gathered: dict[int, Fields] = {}
        is_over = False
        try:
            while not is_over:
                came = [await chunks.get()]
                while not chunks.empty():
                    came.append(chunks.get_nowait())
                for chunk in came:
                    if isinstance(chunk, BaseException):
                        raise chunk
                    if chunk is None:
                        is_over = True
                        continue
                    self._usage = _usage(chunk.get("usage")) or self._usage
                    for choice in chunk["choices"]:
                        self._take(choice)
                        _join(gathered, choice)
                if gathered and (is_over or not holds):
                    yield [*gathered.values()]
                    gathered = {}
        finally:
            reading.cancel()
            with suppress(asyncio.CancelledError):
                await reading

    async def _read_chunks(self, chunks: "asyncio.Queue[Fields | BaseException | None]") -> None:
        try:
            async for chunk in self._chunks():
                chunks.put_nowait(chunk)
            chunks.put_nowait(None)
        except Exception as error:  # noqa: BLE001 # whatever it is, the agent that waits has to hear it
            is_known = isinstance(error, UpstreamError)
            chunks.put_nowait(error if is_known else BrokenOffError(f"generate: {type(error).__name__}: {error}"))

    async def _chunks(self) -> AsyncIterator[Fields]:
        """What the server sampled, as it comes. Raises BrokenOffError where it does not end."""
        async for data in events_of(self._answered.pieces()):
            if data.startswith(b"[DONE]"):
                return
            chunk = _OBJECT.decode(data)
            if "choices" not in chunk:
                error = values.mapping(chunk.get("error"))
                raise BrokenOffError(f"generate: {said(data)}") if error is None else FailedError(error)
            yield chunk
        raise BrokenOffError("generate ended without its end")

    async def _piece(self, choice: Fields) -> bytes:
        plain = self._plain(choice)
        if self._asking.dialect == "completions":
            return self._shape.piece(plain)
        index = choice["index"]
        chunk = {
            "request_id": self._asking.answer_id,
            "choices": [
                {
                    "index": index,
                    "finish_reason": choice.get("finish_reason"),
                    "stop_reason": choice.get("stop_reason"),
                    "token_ids": await self._seen_ids(choice),
                }
            ],
        }
        asks = {**self._asks(), "stream": True, "prompt_token_ids": self._prompt, "generate_chunk": chunk}
        parsed = await self._server.parse({**asks, "stream_state": self._states.get(index)})
        self._states[index] = parsed["stream_state"]
        (made,) = parsed["chunk"]["choices"]
        reasoning = (values.mapping(made.get("delta")) or {}).get("reasoning")
        self.sampled.reasoning[index] = self.sampled.reasoning.get(index, "") + (reasoning or "")
        return self._shape.piece({**plain, "delta": made["delta"], "finish_reason": made["finish_reason"]})

    def _asks(self) -> Fields:
        prompt = self._asking.prompt_ids
        return {"model": self._asking.model, "prompt_tokens": len(prompt), "chat_request": self._parsing}

    async def _seen_ids(self, choice: Fields) -> list[int]:
        """The ids of what the agent may see: without the text that stopped it, unless that was asked for."""
        is_cut = isinstance(choice.get("stop_reason"), str) and _stops_at_text(self._asking.sampling)
        if not is_cut:
            return choice.get("token_ids") or []
        return await self._server.encode(self._asking.model, choice["text"]) if choice.get("text") else []

    def _take(self, choice: Fields) -> None:
        _join(self.sampled.choices, {name: value for name, value in choice.items() if name != "text"})


def _stops_at_text(sampling: Fields) -> bool:
    return bool(sampling.get("stop")) and not sampling.get("include_stop_str_in_output")


def _join(choices: dict[int, Fields], choice: Fields) -> None:
    """Add what came of a choice to what had come of it, in place: answers may be long."""
    ids: list[int] = choice.get("token_ids") or []
    entries = _entries(choice)
    masks = [*(values.items(choice.get("sampling_mask")) or ())]
    before = choices.get(choice["index"])
    if before is None:
        logprobs = {"content": entries} if entries else choice.get("logprobs")
        choices[choice["index"]] = {**choice, "token_ids": [*ids], "sampling_mask": masks or None, "logprobs": logprobs}
        return
    joined: Fields = {name: before[name] for name in ("token_ids", "sampling_mask", "logprobs")}
    joined["token_ids"].extend(ids)
    if joined["sampling_mask"] is None:
        joined["sampling_mask"] = masks or None
    else:
        joined["sampling_mask"].extend(masks)
    if joined["logprobs"] is None:
        joined["logprobs"] = {"content": entries} if entries else None
    else:
        joined["logprobs"]["content"].extend(entries)
    joined["text"] = (before.get("text") or "") + (choice.get("text") or "")
    before.update({name: value for name, value in choice.items() if value is not None})
    before.update(joined)


def _usage(usage: Value) -> Fields:
    return dict(values.mapping(usage) or {})


def _entries(choice: Fields) -> list[Fields]:
    """The logprobs of a choice, token by token."""
    logprobs = values.mapping(choice.get("logprobs")) or {}
    return [*(logprobs.get("content") or ())]
