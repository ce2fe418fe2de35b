"""The answer of a server that samples from ids, in the dialect of the agent.

Invariant: it is read like an answer of the server, and what was sampled is known before its last piece is. Pieces pass
as they are sampled; while one is being parsed, and some time behind it, those that come are gathered to the next,
because the server's parsers begin anew with the whole answer for each. Tool calls come when an answer has ended: some
parsers for streams lose calls in pieces of several tokens, those for whole answers do not. Where a text may stop the
sampling, all is held until it has, because the parsers know ids only. What is held when the sampling breaks off comes
before the error.
"""

import asyncio
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

import msgspec

from art_otel.conventions import values
from art_otel.exchange.answer_shapes import AnswerFields, Asking
from art_otel.exchange.api_dialects import API_DIALECTS
from art_otel.exchange.exchange import data_in
from art_otel.model_gateway.id_server import IdServer, read, said
from art_otel.model_gateway.sampled_choices import Generated, SampledCall, SampledChoice, StreamedCalls, joined
from art_otel.model_gateway.upstreams import Answer, BrokenOffError, FailedError, RawHeaders, UpstreamError
from art_otel.spans import Value

_OK: Final = 200
_ERROR: Final[AnswerFields] = {"message": "", "type": "InternalServerError", "param": None, "code": 500}
"""An error as vLLM has it."""

_ENCODE: Final = msgspec.json.Encoder().encode
_GENERATED: Final = msgspec.json.Decoder(Generated)
_RESTS: Final = 3.0
"""Of what a parsing took: a stream keeps the server's parsers busy for a quarter of the time."""

_STREAM_TYPE: Final = (b"content-type", b"text/event-stream; charset=utf-8")
_JSON_TYPE: Final = (b"content-type", b"application/json")
_OF_BODY: Final = frozenset({b"content-length", b"content-type", b"transfer-encoding"})


class _Came(NamedTuple):
    """What came of the choices, of each index one, whether that is the end, or why there is none."""

    choices: Sequence[SampledChoice]
    is_over: bool
    failure: UpstreamError | None


class ExactAnswer:
    """The answer to a request in its dialect, like one of the server. It is read once, and then it is closed."""

    status: Final = _OK

    def __init__(
        self,
        server: IdServer,
        asking: Asking,
        answered: Answer,
        sampled: SampledCall,
        over: Callable[[SampledCall], None],
    ) -> None:
        self.sampled: Final = sampled
        self._server = server
        self._over = over
        self._asking = asking
        self._answered = answered
        self._shape = API_DIALECTS[self._asking.dialect].shape(asking)
        self._parsing = _parsing_request(self._asking)
        self._prompt = msgspec.Raw(_ENCODE([*asking.prompt_ids]))  # every parsing names it
        self._parsed_seconds = 0.0
        """How long the server's parsers took for the last piece."""
        self._states: dict[int, Value] = {}
        self._has_tools = bool(self._parsing.get("tools")) and self._parsing.get("tool_choice") != "none"
        self._shown_ids: defaultdict[int, list[int]] = defaultdict(list)
        self._calls: defaultdict[int, StreamedCalls] = defaultdict(StreamedCalls)
        self.is_stream = bool(self._asking.request.get("stream"))
        headers = [(name, value) for name, value in answered.raw_headers if name.lower() not in _OF_BODY]
        self.raw_headers: RawHeaders = [*headers, _STREAM_TYPE if self.is_stream else _JSON_TYPE]
        self.headers = {**answered.headers, b"content-type": self.raw_headers[-1][1]}

    async def pieces(self) -> AsyncIterator[bytes]:
        """The body, as it is sampled and parsed. Raises UpstreamError where the server breaks off, or answers oddly."""
        try:
            if not self.is_stream:
                yield await self._whole()
                return
            yield self._shape.begin()
            async for came in self._gathered():
                began = time.monotonic()
                try:
                    events = b"".join([await self._piece(choice) for choice in came.choices])
                except UpstreamError as error:  # the parsers are gone, too
                    raise came.failure or error from None
                self._parsed_seconds = time.monotonic() - began
                if came.is_over:
                    self._over(self.sampled)
                    events += self._shape.end(self.sampled.usage)
                yield events
                if came.failure is not None:
                    raise came.failure
        except (
            AttributeError,
            KeyError,
            TypeError,
            ValueError,
        ) as error:  # another version; ValueError has JSON's errors
            raise BrokenOffError(f"its answer has an unexpected form: {type(error).__name__}: {error}") from error

    def failed(self, error: UpstreamError) -> bytes:
        """What the agent has to get where a stream broke off: the error, as its dialect has it."""
        said: Mapping[str, Value] = error.said if isinstance(error, FailedError) else {}
        message = str(error) if said else f"the model server broke off the connection: {error}"
        return self._shape.failed({**_ERROR, **said, "message": message})

    def close(self) -> None:
        """Leave the server, whether it has ended or not."""
        self._answered.close()

    async def _whole(self) -> bytes:
        generated = _GENERATED.decode(await read(self._answered))
        if generated.error is not None:
            raise FailedError(generated.error)
        if not generated.choices:
            raise BrokenOffError("generate: no choices")
        self.sampled.usage, choices = generated.usage or {}, generated.choices
        for choice in choices:
            self.sampled.take(choice)
        completion = await self._completion(choices)
        self._over(self.sampled)
        return _ENCODE(self._shape.whole(completion))

    async def _completion(self, choices: Sequence[SampledChoice]) -> AnswerFields:
        """The chat completion that the server's parsers make; of Completions the choices as they are."""
        if self._asking.dialect == "completions":
            return {"choices": [self._plain(choice) for choice in choices], "usage": self.sampled.usage}
        shown = [await self._shown(choice) for choice in choices]
        parsed: dict[int, AnswerFields] = {}
        completion: AnswerFields = {}
        if seen := [choice for choice in shown if choice["token_ids"]]:
            asked = {"request_id": self._asking.answer_id, "prompt_token_ids": self._prompt, "choices": seen}
            completion = await self._server.parse({**self._asks(), "generate_response": asked})
            parsed = {choice["index"]: choice for choice in completion["choices"]}
        made = [self._parsed(choice, parsed.get(choice.index)) for choice in choices]
        around = {"id": self._asking.answer_id, "object": "chat.completion", "created": self._asking.created}
        return {**completion, **around, "model": self._asking.model, "choices": made, "usage": self.sampled.usage}

    def _parsed(self, choice: SampledChoice, parsed: AnswerFields | None) -> AnswerFields:
        message = {"role": "assistant", "content": ""} if parsed is None else parsed["message"]
        message = {name: value for name, value in message.items() if not (name == "tool_calls" and not value)}
        finish = choice.finish_reason
        named = values.mapping(self._parsing.get("tool_choice")) is not None
        if finish == "stop" and message.get("tool_calls") and not named:
            finish = "tool_calls"
        self.sampled.reasoning[choice.index] = message.get("reasoning") or ""
        return {
            **(parsed or {}),
            **self._plain(choice),
            "message": message,
            "finish_reason": finish,
            "routed_experts": None,
        }

    def _plain(self, choice: SampledChoice) -> AnswerFields:
        """A choice without what was not asked for."""
        made: AnswerFields = {
            "index": choice.index,
            "logprobs": self._logprobs(choice),
            "finish_reason": choice.finish_reason,
            "stop_reason": choice.stop_reason,
            "token_ids": choice.token_ids if self._asking.request.get("return_token_ids") else None,
        }
        if self._asking.since_0_33:
            has_versions = self._asking.request.get("return_weight_versions")
            made["weight_versions"] = choice.weight_versions if has_versions else None
        return {**made, "text": choice.text} if self._asking.dialect == "completions" else made

    def _logprobs(self, choice: SampledChoice) -> Value:
        asked = self._asking.request.get("logprobs")
        if asked is None or asked is False or choice.logprobs is None:
            return None
        entries = choice.logprobs.entries
        if self._asking.dialect == "completions":
            return {"content": entries}
        count = values.integer(self._asking.request.get("top_logprobs")) or 0
        return {"content": [{**entry, "top_logprobs": entry["top_logprobs"][:count]} for entry in entries]}

    async def _gathered(self) -> AsyncIterator[_Came]:
        """What came since the last was taken.

        What ends the last choice waits for the end: an agent may leave when it has that.
        """
        chunks: asyncio.Queue[Generated | UpstreamError | None] = asyncio.Queue()
        reading = asyncio.create_task(self._read_chunks(chunks))
        holds = bool(self._asking.sampling.get("stop"))
        gathered: dict[int, list[SampledChoice]] = {}
        is_over, failure = False, None
        try:
            while not is_over and failure is None:
                came = [await chunks.get()]
                while not chunks.empty():
                    came.append(chunks.get_nowait())
                for chunk in came:
                    if isinstance(chunk, UpstreamError):
                        failure = chunk
                        gathered = {index: _unfinished(pieces) for index, pieces in gathered.items()}
                    elif chunk is None:
                        is_over = True
                    else:
                        self.sampled.usage = chunk.usage or self.sampled.usage
                        for choice in chunk.choices or ():
                            self.sampled.take(choice)
                            gathered.setdefault(choice.index, []).append(choice)
                is_done = is_over or failure is not None
                if is_done or (gathered and not holds and self.sampled.finished < self._asking.n):
                    yield _Came([joined(pieces) for pieces in gathered.values() if pieces], is_over, failure)
                    rest = _RESTS * self._parsed_seconds
                    await asyncio.wait((reading,), timeout=rest)  # the end of the answer waits for nothing
                    gathered = {}
        finally:
            reading.cancel()
            with suppress(asyncio.CancelledError):
                await reading

    async def _read_chunks(self, chunks: "asyncio.Queue[Generated | UpstreamError | None]") -> None:
        try:
            async for chunk in self._chunks():
                chunks.put_nowait(chunk)
            chunks.put_nowait(None)
        except Exception as error:  # noqa: BLE001 # whatever it is, the agent that waits has to hear it
            is_known = isinstance(error, UpstreamError)
            chunks.put_nowait(error if is_known else BrokenOffError(f"generate: {type(error).__name__}: {error}"))

    async def _chunks(self) -> AsyncIterator[Generated]:
        """What the server sampled, as it comes. Raises BrokenOffError where it does not end."""
        async for data in data_in(self._answered.pieces()):
            if data.startswith(b"[DONE]"):
                return
            chunk = _GENERATED.decode(data)
            if chunk.error is not None:
                raise FailedError(chunk.error)
            if chunk.choices is None:
                raise BrokenOffError(f"generate: {said(data)}")
            yield chunk
        raise BrokenOffError("the stream of generate ended too early")

    async def _piece(self, choice: SampledChoice) -> bytes:
        plain = self._plain(choice)
        index = choice.index
        plain["sampled"] = self.sampled.count(index)
        if self._asking.dialect == "completions":
            return self._shape.piece(plain)
        shown = await self._shown(choice)
        chunk = {"request_id": self._asking.answer_id, "choices": [shown]}
        asks = {**self._asks(), "stream": True, "prompt_token_ids": self._prompt, "generate_chunk": chunk}
        parsed = await self._server.parse({**asks, "stream_state": self._states.get(index)})
        self._states[index] = parsed["stream_state"]
        (made,) = parsed["chunk"]["choices"]
        delta, finish = dict(made["delta"]), choice.finish_reason
        self.sampled.reasoning[index] = self.sampled.reasoning.get(index, "") + (delta.get("reasoning") or "")
        if not self._has_tools:
            return self._shape.piece({**plain, "delta": delta, "finish_reason": finish})
        self._shown_ids[index] += shown["token_ids"]
        streamed = self._calls[index]
        delta = streamed.take(delta)
        if finish is None:
            return self._shape.piece({**plain, "delta": delta})
        calls = streamed.or_else(await self._whole_calls(shown))
        is_named = values.mapping(self._parsing.get("tool_choice")) is not None
        finish = "tool_calls" if finish == "stop" and calls and not is_named else finish
        events = self._shape.piece({**plain, "delta": {**delta, "tool_calls": calls}, "finish_reason": None})
        ended = {**plain, "logprobs": None, "token_ids": None}
        return events + self._shape.piece(
            {**ended, "delta": {"content": streamed.text_behind}, "finish_reason": finish}
        )

    async def _whole_calls(self, ended: AnswerFields) -> Sequence[AnswerFields]:
        """The tool calls that the parsers for whole answers find in a choice."""
        ids = self._shown_ids[ended["index"]]
        if not ids:
            return ()
        whole = {**ended, "token_ids": ids}
        asked = {"request_id": self._asking.answer_id, "prompt_token_ids": self._prompt, "choices": [whole]}
        completion = await self._server.parse({**self._asks(), "generate_response": asked})
        (parsed,) = completion["choices"]
        return parsed["message"].get("tool_calls") or ()

    def _asks(self) -> AnswerFields:
        prompt = self._asking.prompt_ids
        return {"model": self._asking.model, "prompt_tokens": len(prompt), "chat_request": self._parsing}

    async def _shown(self, choice: SampledChoice) -> AnswerFields:
        """What the parsers get of a choice: not what stopped it, a text or a token, unless that was asked for."""
        ids = choice.ids
        if choice.stop_text is not None:  # the last token may have more than the text that stopped it
            ids = await self._server.encode(self._asking.model, choice.text) if choice.text else []
        elif choice.finish_reason == "stop" and not self._asking.sampling.get("include_stop_str_in_output"):
            ids = ids[:-1]
        ended = {"finish_reason": choice.finish_reason, "stop_reason": choice.stop_reason}
        return {"index": choice.index, **ended, "token_ids": ids}


def _parsing_request(asking: Asking) -> AnswerFields:
    """The chat request that tells the server's parsers what they need: its tools and settings, and no messages."""
    request = asking.request
    if asking.dialect == "chat":
        left = {"messages", "stream", "stream_options", "n", "prompt_logprobs", "stop"}
        left |= {"continue_final_message", "add_generation_prompt"}  # which want messages
        made = {name: value for name, value in request.items() if name not in left}
    else:
        made = API_DIALECTS[asking.dialect].chat_settings(request)
        kept = ("model", "chat_template_kwargs", "include_reasoning")
        made |= {name: request[name] for name in kept if request.get(name) is not None}
    return {**made, "messages": [{"role": "user", "content": ""}]}


def _unfinished(pieces: Sequence[SampledChoice]) -> list[SampledChoice]:
    """The pieces of a choice that end it not."""
    return [piece for piece in pieces if piece.finish_reason is None]
