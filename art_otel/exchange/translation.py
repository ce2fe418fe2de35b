"""Translation: a request of an agent's dialect goes to a server as Chat Completions, and the answer comes back.

    agent ─ Messages, Responses, generateContent ─► Translation.body ─► server
    agent ◄─ events, one for one ── take(piece) ◄── chunks of a chat completion
    agent ◄─ an answer, an error ── rest(body) ◄── a chat completion, an error

Invariant: each chunk gives at once what the dialect says of it. What ends the agent's stream comes when the server's
ends, with the usage. A stream that ends without an end is an error to the agent, never an answer.
"""

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final
from uuid import uuid4

import msgspec

from art_otel.conventions import values
from art_otel.exchange import generate_content, messages, responses
from art_otel.exchange.answer_shapes import (
    AnswerFields,
    AnswerShape,
    Asking,
    ChatShape,
    CompletionShape,
)
from art_otel.exchange.assembly import WireDialect
from art_otel.exchange.chat_request import ChatRequest, UntranslatableError, mapping_of
from art_otel.exchange.exchange import EventSplitter, data_of
from art_otel.exchange.response_shape import ResponseShape
from art_otel.spans import Value

CHAT_PATH: Final = "/v1/chat/completions"
OK: Final = 200
FIRST_ERROR: Final = 400
BAD_GATEWAY: Final = 502
SHAPES: Final[Mapping[WireDialect, type[AnswerShape]]] = {
    "chat": ChatShape,
    "completions": CompletionShape,
    "messages": messages.MessageShape,
    "responses": ResponseShape,
    "gemini": generate_content.ContentShape,
}
_REQUESTS: Final[Mapping[WireDialect, Callable[[Mapping[str, Value]], ChatRequest]]] = {
    "messages": messages.chat_request,
    "responses": responses.chat_request,
    "gemini": generate_content.chat_request,
}
_DONE: Final = b"[DONE]"
_GEMINI_DATA: Final = re.compile(rb"data: (.*)\r\n\r\n")
_SHOWN: Final = 300
_ENCODE: Final = msgspec.json.Encoder().encode
_OBJECT: Final = msgspec.json.Decoder(AnswerFields)
_JSON_TYPE: Final = "application/json"
_STREAM_TYPE: Final = "text/event-stream; charset=utf-8"


def is_translatable(dialect: WireDialect) -> bool:
    """Whether requests of a dialect can go to a server as Chat Completions."""
    return dialect in _REQUESTS


class Translation:
    """One request, and its answer on the way back.

    `request` has the fields of the agent's request. `is_array` says that the stream of Gemini's answer is one array,
    not events. `left_out` names the fields of the agent's request that the server is not sent. `failure` says why the
    agent got an error where the server did not say one. Raises UntranslatableError.
    """

    def __init__(self, dialect: WireDialect, request: Mapping[str, Value], *, is_array: bool = False) -> None:
        chat = _REQUESTS[dialect](request)
        self.dialect: Final = dialect
        self.left_out: Final = chat.left_out
        self.body: Final = _ENCODE(chat.body)
        self.is_array: Final = is_array
        self.failure: str | None = None
        self._request = request
        self._chat = chat.body
        self._splitter = EventSplitter()
        self._shape: AnswerShape | None = None
        self._usage: AnswerFields = {}
        self._calls: dict[tuple[int, int], str] = {}
        """The ids of streamed tool calls by their choice and index; the last one is open."""
        self._has_finished = False
        self._is_over = False
        self._passed = 0

    @property
    def stream_type(self) -> str:
        """The content type of a stream."""
        return _JSON_TYPE if self.is_array else _STREAM_TYPE

    def take(self, piece: bytes) -> bytes:
        """Take what the server sent next of a stream, and give the agent's events."""
        return self._events(b"".join(self._read(event.data) for event in self._splitter.take(piece)))

    def rest(self, status: int, rest: bytes, *, is_stream: bool) -> tuple[int, bytes]:
        """The agent's status, and what is left for it, where the server has sent everything."""
        return (status, self.take(rest) + self.end()) if is_stream else self._whole(status, rest)

    def end(self) -> bytes:
        """The last events of a stream: an error if the server's has no end."""
        events = b"" if self._is_over else self._read(data_of(self._splitter.begun))
        if not self._is_over:
            events += self._close() if self._has_finished else self._fail("the answer ended before it was whole")
        return self._events(events) + (b"]" if self.is_array else b"")

    def _whole(self, status: int, body: bytes) -> tuple[int, bytes]:
        """The answer that is no stream: its status and body."""
        try:
            fields = _OBJECT.decode(body)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            fields = {}
        if status >= FIRST_ERROR or (fields.get("error") and not fields.get("choices")):
            status = status if status >= FIRST_ERROR else BAD_GATEWAY
            return status, error_body(self.dialect, status, _message(fields, body), fields.get("error"))
        try:
            choices = [self._choice(choice, "message") for choice in fields["choices"]]
            shape = SHAPES[self.dialect](self._asking(fields))
            return status, _ENCODE(shape.whole({**fields, "choices": choices}))
        except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:  # it is no chat completion
            self.failure = why = f"the model server's answer has another form: {type(error).__name__}: {error}"
            return BAD_GATEWAY, error_body(self.dialect, BAD_GATEWAY, why)

    def _read(self, data: bytes) -> bytes:
        """The events of the data of one event of the server."""
        if not data or self._is_over:
            return b""
        if data.startswith(_DONE):
            if self._has_finished:
                return self._close()
            return self._fail("the answer ended before it was whole")
        try:
            chunk = _OBJECT.decode(data)
            if chunk.get("error"):
                return self._fail(_message(chunk, data))
            return self._of_chunk(chunk)
        except (AttributeError, KeyError, TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
            return self._fail(f"a chunk has another form: {type(error).__name__}: {error}")

    def _of_chunk(self, chunk: AnswerFields) -> bytes:
        self._usage = chunk.get("usage") or self._usage
        events = b""
        if self._shape is None:
            self._shape = SHAPES[self.dialect](self._asking(chunk))
            events = self._shape.begin()
        for choice in chunk.get("choices") or ():
            made = self._choice(choice, "delta")
            self._has_finished = self._has_finished or made.get("finish_reason") is not None
            events += self._shape.piece(made)
        return events

    def _choice(self, choice: AnswerFields, name: str) -> AnswerFields:
        """A choice, whole or of a chunk, in the words that shapes read: those of vLLM."""
        index, said = choice.get("index", 0), dict(mapping_of(choice.get(name)))
        said["reasoning"] = said.get("reasoning") or said.get("reasoning_content")
        said["content"] = said.get("content") or said.get("refusal")
        calls = [dict(call) for call in said.get("tool_calls") or ()]
        for position, call in enumerate(calls):
            if name == "message":
                call["id"] = call.get("id") or _new_call_id()
            else:
                self._identify(call, index, position)
        said["tool_calls"] = calls
        stop = choice.get("stop_reason", choice.get("matched_stop"))  # vLLM's, SGLang's
        return {**choice, "index": index, name: said, "stop_reason": stop}

    def _identify(self, call: AnswerFields, choice: int, position: int) -> None:
        """See that the first piece of a call has an id, and no other: some servers repeat it, some have none.

        Raises ValueError for a piece of a call behind which another has begun: no dialect can go back to it.
        """
        key, function = (choice, call.get("index", position)), mapping_of(call.get("function"))
        call_id, known = call.get("id"), self._calls.get(key)
        if known is None or (call_id and function.get("name") and call_id != known):
            call["id"] = self._calls[key] = call_id or _new_call_id()
        elif key != next(one for one in reversed(self._calls) if one[0] == choice):
            raise ValueError("pieces of several tool calls are mixed")
        else:
            call["id"] = None

    def _close(self) -> bytes:
        self._is_over = True
        return b"" if self._shape is None else self._shape.end(self._usage)

    def _fail(self, message: str) -> bytes:
        self._is_over = True
        self.failure = message
        shape = self._shape or SHAPES[self.dialect](self._asking({}))
        return shape.failed({"message": message, "type": "server_error", "code": None, "param": None})

    def _asking(self, answer: AnswerFields) -> Asking:
        counted = mapping_of(answer.get("usage")).get("prompt_tokens") or 0
        return Asking(
            answer_id=str(answer.get("id") or f"chatcmpl-{uuid4().hex}"),
            created=values.integer(answer.get("created")) or int(time.time()),
            model=str(answer.get("model") or self._request.get("model")),
            dialect=self.dialect,
            request=dict(self._request),
            sampling=self._chat,
            prompt_ids=range(counted),  # their number is all that is said of them
            since_0_33=True,
        )

    def _events(self, events: bytes) -> bytes:
        """Events as the agent reads them: where it asked for an array, as its elements."""
        if not self.is_array:
            return events
        elements: list[bytes] = []
        for data in _GEMINI_DATA.findall(events):
            elements.append((b",\r\n" if self._passed else b"[") + data)
            self._passed += 1
        return b"".join(elements)


def _new_call_id() -> str:
    return f"call_{uuid4().hex[:24]}"


_ANTHROPIC_ERRORS: Final = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    422: "invalid_request_error",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
    529: "overloaded_error",
}


def error_body(dialect: WireDialect, status: int, message: str, said: Value = None, field: Value = None) -> bytes:
    """An error as a dialect's own server sends it. `said` is that of Chat Completions, if there is one."""
    if dialect == "messages":
        kind = _ANTHROPIC_ERRORS.get(status, "api_error")
        return _ENCODE({"type": "error", "error": {"type": kind, "message": message}})
    if dialect == "gemini":
        return _ENCODE(generate_content.error_body(status, message))
    kind = "invalid_request_error" if status < 500 else "server_error"  # HTTP's own line
    return _ENCODE({"error": {"type": kind, "code": None, "param": field, **mapping_of(said), "message": message}})


def _message(fields: AnswerFields, body: bytes) -> str:
    """What an error says. vLLM of old has no object around it, some servers a text in its place."""
    said = fields.get("error")
    message = mapping_of(said).get("message") or fields.get("message") or (said if isinstance(said, str) else None)
    return str(message or body[:_SHOWN].decode(errors="replace"))


@dataclass(frozen=True, kw_only=True, slots=True)
class LastAnswer:
    """An answer of the gateway's own that ends an agent's loop: a text, and nothing to do."""

    content_type: str
    body: bytes


def last_answer(dialect: WireDialect, request: Mapping[str, Value], text: str, *, is_array: bool = False) -> LastAnswer:
    """Say `text` in the agent's dialect, as the last thing that a model says: no tool calls, and a usual end.

    Not an error: clients try those again, and agents report them in place of what they did. Not `length`: some agents
    ask to go on.
    """
    usage = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
    asking = Asking(
        answer_id=f"chatcmpl-{uuid4().hex}",
        created=int(time.time()),
        model=str(request.get("model")),
        dialect=dialect,
        request=dict(request),
        sampling={},
        prompt_ids=(),
        since_0_33=True,
    )
    shape, about = SHAPES[dialect](asking), {"index": 0, "logprobs": None, "text": text}
    if request.get("stream"):
        said = shape.piece({**about, "delta": {"content": text}, "finish_reason": None})
        ended = shape.piece({**about, "delta": {}, "text": "", "finish_reason": "stop"})
        body = shape.begin() + said + ended + shape.end(usage)
        if is_array:
            return LastAnswer(content_type=_JSON_TYPE, body=b"[" + b",".join(_GEMINI_DATA.findall(body)) + b"]")
        return LastAnswer(content_type=_STREAM_TYPE, body=body)
    choice = {**about, "message": {"role": "assistant", "content": text}, "finish_reason": "stop", "stop_reason": None}
    completion = {"id": asking.answer_id, "object": "chat.completion", "created": asking.created, "model": asking.model}
    made = shape.whole({**completion, "choices": [choice], "usage": usage})
    return LastAnswer(content_type=_JSON_TYPE, body=_ENCODE(made))


def translated(
    dialect: WireDialect, request: Mapping[str, Value], *, is_array: bool = False
) -> Translation | UntranslatableError:
    """The translation of a request, or why there is none."""
    try:
        return Translation(dialect, request, is_array=is_array)
    except UntranslatableError as refused:
        return refused
