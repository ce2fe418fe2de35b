"""Translation: turns an agent's request into Chat Completions for its server, and the answer back.

    agent ─ Messages, Responses, generateContent ─► Translation.body ─► server
    agent ◄─ events, one for one ── take(piece) ◄── chunks of a chat completion
    agent ◄─ an answer, an error ── rest(body) ◄── a chat completion, an error

Invariant: each chunk of the server becomes the agent's events at once. The events that end the agent's stream come when
the server's stream ends, with the usage. A stream that breaks off gives the agent an error, never a whole answer.
"""

import re
import time
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final
from uuid import uuid4

import msgspec

from art_otel.conventions import values
from art_otel.exchange.answer_shapes import AnswerFields, AnswerShape, RequestFacts
from art_otel.exchange.api_dialects import API_DIALECTS
from art_otel.exchange.assembly import WireDialect
from art_otel.exchange.chat_request import STREAMED, UntranslatableError, mapping_of
from art_otel.exchange.exchange import FIRST_ERROR, EventSplitter, data_of
from art_otel.spans import Value

OK: Final = 200
BAD_GATEWAY: Final = 502
_DONE: Final = b"[DONE]"
_GEMINI_DATA: Final = re.compile(rb"data: (.*)\r\n\r\n")
_SHOWN: Final = 300
_ENCODE: Final = msgspec.json.Encoder().encode
_OBJECT: Final = msgspec.json.Decoder(AnswerFields)
_JSON_TYPE: Final = "application/json"
_STREAM_TYPE: Final = "text/event-stream; charset=utf-8"


class Translation:
    """One translated request, and its answer on the way back. Raises UntranslatableError.

    - `request`: the fields of the agent's request. `body`: the request for the server.
    - `is_array`: the agent gets Gemini's stream as one JSON array instead of events.
    - `is_held`: the agent asked for a stream, the server for a whole answer; all events then come at once.
    - `left_out`: the fields of the agent's request that the server does not get.
    - `failure`: why the agent got an error, where the server did not report one.
    """

    def __init__(
        self, dialect: WireDialect, request: Mapping[str, Value], *, is_array: bool = False, is_held: bool = False
    ) -> None:
        self._api = API_DIALECTS[dialect]
        if self._api.chat_request is None:
            raise UntranslatableError("", f"{self._api.title} go to a server as they are")
        chat = self._api.chat_request(request)
        self.dialect: Final = dialect
        self.left_out: Final = chat.left_out
        asked = {name: value for name, value in chat.body.items() if not (is_held and name in STREAMED)}
        self.body: Final = _ENCODE(asked)
        self.is_array: Final = is_array
        self.is_held: Final = is_held
        self.failure: str | None = None
        self._request = request
        self._chat = chat.body
        self._splitter = EventSplitter()
        self._shape: AnswerShape | None = None
        self._usage: AnswerFields = {}
        self._calls: defaultdict[int, _CallsInOrder] = defaultdict(_CallsInOrder)
        self._refused: set[int] = set()
        self._has_finished = False
        self._is_over = False
        self._passed = 0
        self._begun = ""
        """The beginning of a message that the model was to continue. llama.cpp (known by `timings`) repeats it in whole
        answers, and it is cut off there."""

    @property
    def stream_type(self) -> str:
        """The content type of the agent's stream."""
        return _JSON_TYPE if self.is_array else _STREAM_TYPE

    def held_type(self, status: int) -> str | None:
        """The content type for a stream made from a whole answer; None where the server's own type stays."""
        return self.stream_type if self.is_held and status < FIRST_ERROR else None

    def take(self, piece: bytes) -> bytes:
        """Take the next bytes of the server's stream, and return the agent's events."""
        return self._events(b"".join(self._read(event.data) for event in self._splitter.take(piece)))

    def rest(self, status: int, rest: bytes, *, is_stream: bool) -> tuple[int, bytes]:
        """The agent's status, and its remaining bytes, when the server has sent everything."""
        return (status, self.take(rest) + self.end()) if is_stream else self._whole(status, rest)

    def end(self) -> bytes:
        """The last events of a stream; an error if the server's stream did not end as it should."""
        events = b"" if self._is_over else self._read(data_of(self._splitter.begun))
        if not self._is_over:
            events += self._close() if self._has_finished else self._fail("the answer ended too early")
        return self._events(events) + self._last

    @property
    def _last(self) -> bytes:
        """The bytes after the last event: the closing bracket of an array."""
        return b"]" if self.is_array else b""

    def _whole(self, status: int, body: bytes) -> tuple[int, bytes]:
        """The status and the body of a whole answer, or of an error."""
        try:
            fields = _OBJECT.decode(body)
        except values.UNREADABLE:
            fields = {}
        if status >= FIRST_ERROR or (fields.get("error") and not fields.get("choices")):
            # Some servers send an error with a status of success.
            status = status if status >= FIRST_ERROR else BAD_GATEWAY
            return status, _ENCODE(self._api.error(status, _message(fields, body), fields.get("error"), None))
        if "timings" in fields and self._chat.get("continue_final_message"):
            self._begun = str(self._chat["messages"][-1]["content"])
        try:
            if self.is_held:
                return status, self._events(self._at_once(fields)) + self._last
            choices = [self._choice(choice, "message") for choice in fields["choices"]]
            shape = self._api.shape(self._facts(fields))
            return status, _ENCODE(shape.whole({**fields, "choices": choices}))
        except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:  # it is no chat completion
            self.failure = why = f"the model server's answer has an unexpected form: {type(error).__name__}: {error}"
            return BAD_GATEWAY, _ENCODE(self._api.error(BAD_GATEWAY, why, None, None))

    def _at_once(self, completion: AnswerFields) -> bytes:
        """The events for a whole answer. Raises ValueError where it has no finish reason."""
        choices: list[AnswerFields] = []
        for choice in completion["choices"]:
            message = choice["message"]
            calls: list[AnswerFields] = list(message.get("tool_calls") or ())
            indexed = [{**call, "index": index} for index, call in enumerate(calls)]
            choices.append({**choice, "delta": {**message, "tool_calls": indexed}})
        events = self._of_chunk({**completion, "choices": choices})
        if not self._has_finished:
            raise ValueError("it has no finish reason")
        return events + self._close()

    def _read(self, data: bytes) -> bytes:
        """The agent's events for the data of one event of the server."""
        if not data or self._is_over:
            return b""
        if data.startswith(_DONE):
            if self._has_finished:
                return self._close()
            return self._fail("the answer ended too early")
        try:
            chunk = _OBJECT.decode(data)
            if chunk.get("error"):
                return self._fail(_message(chunk, data))
            return self._of_chunk(chunk)
        except (AttributeError, KeyError, TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
            return self._fail(f"a chunk has an unexpected form: {type(error).__name__}: {error}")

    def _of_chunk(self, chunk: AnswerFields) -> bytes:
        self._usage = chunk.get("usage") or self._usage
        events = b""
        if self._shape is None:
            self._shape = self._api.shape(self._facts(chunk))
            events = self._shape.begin()
        for choice in chunk.get("choices") or ():
            made = self._choice(choice, "delta")
            self._has_finished = self._has_finished or made.get("finish_reason") is not None
            events += self._shape.piece(made)
        return events

    def _choice(self, choice: AnswerFields, name: str) -> AnswerFields:
        """A choice, whole or of a chunk, with vLLM's names of fields, which the shapes read."""
        index, said = choice.get("index", 0), dict(mapping_of(choice.get(name)))
        # vLLM's name, and that of SGLang, llama.cpp and older servers.
        said["reasoning"] = said.get("reasoning") or said.get("reasoning_content")
        # A refusal is passed on as the text of the answer.
        said["content"] = said.get("content") or said.get("refusal")
        said["content"] = str(said["content"] or "").removeprefix(self._begun) or None
        calls, finish = said.get("tool_calls") or (), choice.get("finish_reason")
        if name == "message":
            # Some servers send no ids, without which an agent cannot return results.
            said["tool_calls"] = [{**call, "id": call.get("id") or _new_call_id()} for call in calls]
        else:
            said["tool_calls"] = self._calls[index].take(calls, is_end=finish is not None)
        if said.get("refusal"):
            self._refused.add(index)
        # Responses has no finish reason for a refusal; the other dialects have.
        if finish == "stop" and index in self._refused and self.dialect != "responses":
            finish = "content_filter"
        stop = choice.get("stop_reason", choice.get("matched_stop"))  # vLLM's, SGLang's
        return {**choice, "index": index, name: said, "finish_reason": finish, "stop_reason": stop}

    def _close(self) -> bytes:
        self._is_over = True
        return b"" if self._shape is None else self._shape.end(self._usage)

    def _fail(self, message: str) -> bytes:
        self._is_over = True
        self.failure = message
        shape = self._shape or self._api.shape(self._facts({}))
        return shape.failed({"message": message, "type": "server_error", "code": None, "param": None})

    def _facts(self, answer: AnswerFields) -> RequestFacts:
        counted = mapping_of(answer.get("usage")).get("prompt_tokens") or 0
        return RequestFacts(
            answer_id=str(answer.get("id") or f"chatcmpl-{uuid4().hex}"),
            created=values.integer(answer.get("created")) or int(time.time()),
            model=str(answer.get("model") or self._request.get("model")),
            dialect=self.dialect,
            request=dict(self._request),
            sampling=self._chat,
            prompt_ids=range(counted),  # only their number is used: in the usage of the answer
            since_0_33=True,
            is_translated=True,
        )

    def _events(self, events: bytes) -> bytes:
        """The events as they are, or as elements of an array, if the agent asked for that."""
        if not self.is_array:
            return events
        elements: list[bytes] = []
        for data in _GEMINI_DATA.findall(events):
            elements.append((b",\r\n" if self._passed else b"[") + data)
            self._passed += 1
        return b"".join(elements)


class _CallsInOrder:
    """Puts the pieces of the tool calls of one choice in order: one call after the other, as most dialects need it.

        0: look {"at"   1: look {}   0: : 1}      from the server
        0: look {"at"   0: : 1}   1: look {}      to the agent

    A call waits until the arguments of the call before it are whole JSON, or the answer ends.
    """

    def __init__(self) -> None:
        self._calls: dict[int, _StreamedCall] = {}
        self._open: deque[_StreamedCall] = deque()

    def take(self, pieces: Sequence[AnswerFields], *, is_end: bool) -> list[AnswerFields]:
        """Take pieces, and return those whose turn it is.

        Only the first piece of a call gets an id; some servers repeat the id in all pieces, others send none. Raises
        ValueError for a piece of a call that has ended.
        """
        for position, piece in enumerate(pieces):
            place, function = piece.get("index", position), mapping_of(piece.get("function"))
            call, call_id, arguments = self._calls.get(place), piece.get("id"), function.get("arguments") or ""
            is_first = call is None or (call_id and function.get("name") and call_id != call.id)
            if call is None or is_first:  # some servers count no index
                call = self._calls[place] = _StreamedCall(call_id or _new_call_id())
                self._open.append(call)
            elif call not in self._open and arguments.strip():
                raise ValueError("a tool call continues after its end")
            call.arguments += arguments
            call.pieces.append({**piece, "id": call.id if is_first else None})
        given: list[AnswerFields] = []
        while self._open:
            first = self._open[0]
            given += first.pieces
            first.pieces.clear()
            if len(self._open) == 1 or not (is_end or _is_json(first.arguments)):
                break
            self._open.popleft()
        return given


@dataclass(eq=False, slots=True)
class _StreamedCall:
    id: str
    arguments: str = ""
    pieces: list[AnswerFields] = field(default_factory=list[AnswerFields])
    """The pieces that wait for their turn."""


def _is_json(text: str) -> bool:
    try:
        msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return False
    return True


def _new_call_id() -> str:
    return f"call_{uuid4().hex[:24]}"


def _message(fields: AnswerFields, body: bytes) -> str:
    """The message of an error. Old versions of vLLM have no `error` object around it, some servers a text there."""
    said = fields.get("error")
    message = mapping_of(said).get("message") or fields.get("message") or (said if isinstance(said, str) else None)
    return str(message or body[:_SHOWN].decode(errors="replace"))


@dataclass(frozen=True, kw_only=True, slots=True)
class LastAnswer:
    """An answer of the gateway's own that ends an agent's loop: a text without tool calls."""

    content_type: str
    body: bytes


def last_answer(dialect: WireDialect, request: Mapping[str, Value], text: str, *, is_array: bool = False) -> LastAnswer:
    """An answer with `text` in the agent's dialect that ends the agent's loop: no tool calls, and a usual end.

    It is no error, because clients try again after errors and agents report the error instead of their result. Its
    finish reason is not `length`, because some agents then ask the model to continue.
    """
    usage = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
    facts = RequestFacts(
        answer_id=f"chatcmpl-{uuid4().hex}",
        created=int(time.time()),
        model=str(request.get("model")),
        dialect=dialect,
        request=dict(request),
        sampling={},
        prompt_ids=(),
        since_0_33=True,
        is_translated=True,
    )
    shape, about = API_DIALECTS[dialect].shape(facts), {"index": 0, "logprobs": None, "text": text}
    if request.get("stream"):
        said = shape.piece({**about, "delta": {"content": text}, "finish_reason": None})
        ended = shape.piece({**about, "delta": {}, "text": "", "finish_reason": "stop"})
        body = shape.begin() + said + ended + shape.end(usage)
        if is_array:
            return LastAnswer(content_type=_JSON_TYPE, body=b"[" + b",".join(_GEMINI_DATA.findall(body)) + b"]")
        return LastAnswer(content_type=_STREAM_TYPE, body=body)
    choice = {**about, "message": {"role": "assistant", "content": text}, "finish_reason": "stop", "stop_reason": None}
    completion = {"id": facts.answer_id, "object": "chat.completion", "created": facts.created, "model": facts.model}
    made = shape.whole({**completion, "choices": [choice], "usage": usage})
    return LastAnswer(content_type=_JSON_TYPE, body=_ENCODE(made))


def translated(
    dialect: WireDialect, request: Mapping[str, Value], *, is_array: bool = False, is_held: bool = False
) -> Translation | UntranslatableError:
    """The translation of a request, or why there is none."""
    try:
        return Translation(dialect, request, is_array=is_array, is_held=is_held)
    except UntranslatableError as refused:
        return refused
    except RecursionError:
        return UntranslatableError("body", "nested too deep")
