"""Exact answers: the answer of a server that samples from ids, in the dialect of the agent.

Invariant: `ExactAnswer` is read like an answer of the server, and the sampled ids are known before its last piece is.

- **Pieces are gathered.** The server's parsers begin anew with the whole answer for each piece. So pieces that come
  while one is being parsed, and for some time after that, are parsed together as the next piece.
- **Tool calls come at the end.** Some of the server's parsers for streams lose a call in a piece of several tokens;
  those for whole answers do not, so the whole answer is parsed once it has ended.
- **With stop texts everything is held** until the sampling ends: the parsers know ids only, and the last token may
  reach beyond the stop text.
- **If the sampling breaks off**, the held pieces come first, and then the error.
"""

import asyncio
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

import msgspec

from art_otel.conventions import values
from art_otel.exchange.answer_shapes import AnswerFields, RequestFacts
from art_otel.exchange.api_dialects import API_DIALECTS
from art_otel.exchange.exchange import EventSplitter
from art_otel.model_gateway.id_server import IdServer, read, said
from art_otel.model_gateway.sampled_choices import Generated, SampledCall, SampledChoice, StreamedCalls, joined
from art_otel.model_gateway.upstreams import Answer, BrokenOffError, FailedError, RawHeaders, UpstreamError
from art_otel.spans import Value

_OK: Final = 200
_ERROR: Final[AnswerFields] = {"message": "", "type": "InternalServerError", "param": None, "code": 500}
"""The fields of an error as vLLM writes it."""

_ENCODE: Final = msgspec.json.Encoder().encode
_GENERATED: Final = msgspec.json.Decoder(Generated)
_RESTS: Final = 3.0
"""The pause after each parsing, as a multiple of its duration: so a stream takes a quarter of the parsers' time."""

_STREAM_TYPE: Final = (b"content-type", b"text/event-stream; charset=utf-8")
_JSON_TYPE: Final = (b"content-type", b"application/json")
_OF_BODY: Final = frozenset({b"content-length", b"content-type", b"transfer-encoding"})


class _Came(NamedTuple):
    """What was gathered: one piece for each choice; `is_over` if the answer has ended, `failure` if it broke off."""

    choices: Sequence[SampledChoice]
    is_over: bool
    failure: UpstreamError | None


class ExactAnswer:
    """The answer to a request in the agent's dialect, with the interface of `Answer`. Read it once, and then close it.

    `over` is called with the sampled call when the answer is whole.
    """

    status: Final = _OK

    def __init__(
        self,
        server: IdServer,
        facts: RequestFacts,
        answered: Answer,
        sampled: SampledCall,
        over: Callable[[SampledCall], None],
    ) -> None:
        self.sampled: Final = sampled
        self._server = server
        self._over = over
        self._facts = facts
        self._answered = answered
        self._shape = API_DIALECTS[self._facts.dialect].shape(facts)
        self._parsing = _parsing_request(self._facts)
        self._prompt = msgspec.Raw(_ENCODE([*facts.prompt_ids]))  # encoded once: every parsing sends it
        self._parsed_seconds = 0.0
        """How long the server took to parse the last piece."""
        self._states: dict[int, Value] = {}
        self._has_tools = bool(self._parsing.get("tools")) and self._parsing.get("tool_choice") != "none"
        self._shown_ids: defaultdict[int, list[int]] = defaultdict(list)
        self._calls: defaultdict[int, StreamedCalls] = defaultdict(StreamedCalls)
        self.is_stream = bool(self._facts.request.get("stream"))
        headers = [(name, value) for name, value in answered.raw_headers if name.lower() not in _OF_BODY]
        self.raw_headers: RawHeaders = [*headers, _STREAM_TYPE if self.is_stream else _JSON_TYPE]
        self.headers = {**answered.headers, b"content-type": self.raw_headers[-1][1]}

    async def pieces(self) -> AsyncIterator[bytes]:
        """Iterate over the body, as it is sampled and parsed. Raises UpstreamError if the server breaks off."""
        try:
            if not self.is_stream:
                yield await self._whole()
                return
            yield self._shape.begin()
            async for came in self._gathered():
                began = time.monotonic()
                try:
                    events = b"".join([await self._piece(choice) for choice in came.choices])
                except UpstreamError as error:  # mostly the server is gone as a whole: the sampling's error says why
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
        """The event that tells the agent that the stream broke off, in its dialect."""
        said: Mapping[str, Value] = error.said if isinstance(error, FailedError) else {}
        message = str(error) if said else f"the model server broke off the connection: {error}"
        return self._shape.failed({**_ERROR, **said, "message": message})

    def close(self) -> None:
        """Close the answer of the server; if it has not ended, the server stops sampling."""
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
        """The chat completion that the server's parsers make of the choices; for Completions nothing is parsed."""
        if self._facts.dialect == "completions":
            return {"choices": [self._plain(choice) for choice in choices], "usage": self.sampled.usage}
        shown = [await self._shown(choice) for choice in choices]
        parsed: dict[int, AnswerFields] = {}
        completion: AnswerFields = {}
        if seen := [choice for choice in shown if choice["token_ids"]]:
            asked = {"request_id": self._facts.answer_id, "prompt_token_ids": self._prompt, "choices": seen}
            completion = await self._server.parse({**self._asks(), "generate_response": asked})
            parsed = {choice["index"]: choice for choice in completion["choices"]}
        made = [self._parsed(choice, parsed.get(choice.index)) for choice in choices]
        around = {"id": self._facts.answer_id, "object": "chat.completion", "created": self._facts.created}
        return {**completion, **around, "model": self._facts.model, "choices": made, "usage": self.sampled.usage}

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
        """The fields of a choice besides its message, with only those extras that the agent asked for."""
        made: AnswerFields = {
            "index": choice.index,
            "logprobs": self._logprobs(choice),
            "finish_reason": choice.finish_reason,
            "stop_reason": choice.stop_reason,
            "token_ids": choice.token_ids if self._facts.request.get("return_token_ids") else None,
        }
        if self._facts.since_0_33:
            has_versions = self._facts.request.get("return_weight_versions")
            made["weight_versions"] = choice.weight_versions if has_versions else None
        return {**made, "text": choice.text} if self._facts.dialect == "completions" else made

    def _logprobs(self, choice: SampledChoice) -> Value:
        asked = self._facts.request.get("logprobs")
        if asked is None or asked is False or choice.logprobs is None:
            return None
        entries = choice.logprobs.entries
        if self._facts.dialect == "completions":
            return {"content": entries}
        count = values.integer(self._facts.request.get("top_logprobs")) or 0
        return {"content": [{**entry, "top_logprobs": entry["top_logprobs"][:count]} for entry in entries]}

    async def _gathered(self) -> AsyncIterator[_Came]:
        """Iterate over what was sampled, each time with all that has come since the last time.

        The piece that ends the last choice waits for the end of the stream: an agent may hang up as soon as it has a
        finish reason, and the usage would be lost.
        """
        chunks: asyncio.Queue[Generated | UpstreamError | None] = asyncio.Queue()
        reading = asyncio.create_task(self._read_chunks(chunks))
        holds = bool(self._facts.sampling.get("stop"))
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
                if is_done or (gathered and not holds and self.sampled.finished < self._facts.n):
                    yield _Came([joined(pieces) for pieces in gathered.values() if pieces], is_over, failure)
                    rest = _RESTS * self._parsed_seconds
                    await asyncio.wait((reading,), timeout=rest)  # ends early when the answer has ended
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
        except Exception as error:  # noqa: BLE001 # whatever it is, the waiting agent must not wait for ever
            is_known = isinstance(error, UpstreamError)
            chunks.put_nowait(error if is_known else BrokenOffError(f"generate: {type(error).__name__}: {error}"))

    async def _chunks(self) -> AsyncIterator[Generated]:
        """Iterate over the chunks of the server. Raises UpstreamError if the stream does not end as it should."""
        splitter = EventSplitter()
        async for piece in self._answered.pieces():
            for data in (event.data for event in splitter.take(piece) if event.data):
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
        if self._facts.dialect == "completions":
            return self._shape.piece(plain)
        shown = await self._shown(choice)
        chunk = {"request_id": self._facts.answer_id, "choices": [shown]}
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
        """The tool calls that the server's parser for whole answers finds in a choice."""
        ids = self._shown_ids[ended["index"]]
        if not ids:
            return ()
        whole = {**ended, "token_ids": ids}
        asked = {"request_id": self._facts.answer_id, "prompt_token_ids": self._prompt, "choices": [whole]}
        completion = await self._server.parse({**self._asks(), "generate_response": asked})
        (parsed,) = completion["choices"]
        return parsed["message"].get("tool_calls") or ()

    def _asks(self) -> AnswerFields:
        prompt = self._facts.prompt_ids
        return {"model": self._facts.model, "prompt_tokens": len(prompt), "chat_request": self._parsing}

    async def _shown(self, choice: SampledChoice) -> AnswerFields:
        """The part of a choice that the parsers get.

        It is without the text or token that stopped the choice, unless the agent asked to see that.
        """
        ids = choice.ids
        if choice.stop_text is not None:  # the last token may reach beyond the stop text, so the shown text is encoded
            ids = await self._server.encode(self._facts.model, choice.text) if choice.text else []
        elif choice.finish_reason == "stop" and not self._facts.sampling.get("include_stop_str_in_output"):
            ids = ids[:-1]
        ended = {"finish_reason": choice.finish_reason, "stop_reason": choice.stop_reason}
        return {"index": choice.index, **ended, "token_ids": ids}


def _parsing_request(facts: RequestFacts) -> AnswerFields:
    """The chat request for the server's parsers: tools and settings, which they need, with an empty message."""
    request = facts.request
    if facts.dialect == "chat":
        left = {"messages", "stream", "stream_options", "n", "prompt_logprobs", "stop"}
        left |= {"continue_final_message", "add_generation_prompt"}  # which want messages
        made = {name: value for name, value in request.items() if name not in left}
    else:
        made = API_DIALECTS[facts.dialect].chat_settings(request)
        kept = ("model", "chat_template_kwargs", "include_reasoning")
        made |= {name: request[name] for name in kept if request.get(name) is not None}
    return {**made, "messages": [{"role": "user", "content": ""}]}


def _unfinished(pieces: Sequence[SampledChoice]) -> list[SampledChoice]:
    """The pieces of a choice without the one that ends it: after a failure a choice must not look finished."""
    return [piece for piece in pieces if piece.finish_reason is None]
