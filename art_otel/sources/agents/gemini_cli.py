"""Sessions of Gemini CLI: `~/.gemini/tmp/PROJECT/chats/session-*.jsonl`; older ones are one object with `messages`.

A line is a message, which stands again when there is more of it, or changes the session: `$set` its fields (messages
too, as after a compression), `$rewindTo` takes messages back. A message of the type `gemini` is the answer of one call;
those before it when it came are its prompt, the user's in a row as one. A sub-agent has a session of its own.
Invariant: no call is known whole: the log has neither the system prompt nor the tools, and the CLI leaves out of a
prompt what it thinks invalid.

Source of the format: `packages/core/src/services/chatRecordingService.ts` and `utils/sessionUtils.ts`
(https://github.com/google-gemini/gemini-cli), recordings of 0.61.
"""

import io
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from art_otel.sources.agents.session import (
    LogLines,
    Missing,
    Session,
    SessionCall,
    SessionTool,
    body_text,
    without_secrets,
)
from art_otel.sources.backends.values import text_to_ns
from art_otel.sources.format import Reading, Record, SourceFormat, converted
from art_otel.sources.json_documents import encode, head_detector, is_list, is_object, text_or_none
from art_otel.spans import Span, Value

_NAME: Final = "gemini-cli"
_MISSING: Final[Sequence[Missing]] = ("system instructions", "tools", "messages")
_PROVIDER: Final = {"gen_ai.provider.name": "gemini"}


class _ToolCall(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    name: str
    args: dict[str, Value] = {}
    result: Value = None
    status: str | None = None
    timestamp: str | None = None


class _Message(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    id: str
    timestamp: str
    type: str
    content: Value = None
    thoughts: list[dict[str, Value]] = []
    tool_calls: list[_ToolCall] = []
    tokens: dict[str, Value] | None = None
    model: str | None = None

    @property
    def time_ns(self) -> int:
        """When it was recorded. Raises Refused."""
        return text_to_ns(self.timestamp, "timestamp")


class _Answer(msgspec.Struct, kw_only=True):
    """A message of the model as it was last, its prompt as JSON texts, and when that was there."""

    message: _Message
    prompt: tuple[str, ...]
    start_ns: int


def _detects(value: dict[str, Value]) -> bool:
    return value.keys() >= {"sessionId", "projectHash", "startTime"}


def _reads(stream: io.BufferedReader, reading: Reading) -> Iterator[Record]:
    log = LogLines(stream, reading)
    first = log.first(_detects)
    if first is None:
        yield from log.quarantined(None)
        return
    session = Session(_NAME, str(first["sessionId"]), agent=_NAME)
    conversation = _Conversation()
    log.feed(conversation.add)
    yield from log.quarantined(session.trace_id)
    yield from conversation.spans(session, {"kind": first.get("kind"), "project": first["projectHash"]})


class _Conversation:
    """The messages of a session as they are at a line, and the answers so far."""

    def __init__(self) -> None:
        self._messages: dict[str, _Message] = {}
        self._answers: dict[str, _Answer] = {}
        self._times: list[int] = []

    def add(self, line: dict[str, Value]) -> None:
        """Add a line. Raises Refused."""
        fields = line.get("$set", line)
        messages = fields.get("messages") if is_object(fields) else None
        if "$rewindTo" in line:
            ids = list(self._messages)
            at = ids.index(line["$rewindTo"]) if line["$rewindTo"] in ids else 0
            for message_id in ids[at:]:
                del self._messages[message_id]
        elif is_list(messages):
            parsed = converted(messages, list[_Message])
            self._messages = {}
            for message in parsed:
                self._add(message)
        elif "id" in line and "type" in line:
            self._add(converted(line, _Message))

    def spans(self, session: Session, metadata: dict[str, Value]) -> Iterator[Span]:
        """The spans of the calls, of tools that have a result, and of the session."""
        for answer in self._answers.values():
            yield session.call(_call(answer))
            for call in answer.message.tool_calls:
                if call.result is not None:
                    yield session.tool(_tool(call, answer.message.time_ns))
        yield session.rollout(min(self._times, default=0), max(self._times, default=0), metadata=metadata)

    def _add(self, message: _Message) -> None:
        start_ns = max(self._times, default=message.time_ns)
        self._times += (message.time_ns, *(_ended(call, message.time_ns) for call in message.tool_calls))
        if message.type == "gemini":
            if message.id in self._answers:
                self._answers[message.id].message = message
            else:
                prompt = tuple(encode(content) for content in self._contents())
                self._answers[message.id] = _Answer(message=message, prompt=prompt, start_ns=start_ns)
        if message.type in ("user", "gemini"):
            self._messages[message.id] = message

    def _contents(self) -> list[dict[str, Value]]:
        """The messages as Gemini's contents. Results of tools stand on their calls too, in older logs only there."""
        answered = {response["id"] for one in self._messages.values() for response in _responses(one)}
        contents: list[dict[str, Value]] = []
        for message in self._messages.values():
            results = [part for call in message.tool_calls if call.id not in answered for part in _results(call)]
            if message.type == "gemini":
                contents.append({"role": "model", "parts": _parts(message)})
            for parts in (results, _parts(message) if message.type == "user" else []):
                if parts and contents and contents[-1]["role"] == "user":
                    contents[-1]["parts"] += parts
                elif parts:
                    contents.append({"role": "user", "parts": [*parts]})
        return contents


def _call(answer: _Answer) -> SessionCall:
    message, tokens = answer.message, answer.message.tokens or {}
    usage = {
        "promptTokenCount": tokens.get("input"),
        "candidatesTokenCount": tokens.get("output"),
        "thoughtsTokenCount": tokens.get("thoughts"),
        "cachedContentTokenCount": tokens.get("cached"),
    }
    content = {"role": "model", "parts": _parts(message)}
    response = {"candidates": [{"index": 0, "content": content}], "usageMetadata": usage, "modelVersion": message.model}
    return SessionCall(
        key=f"call {message.id}",
        model=message.model,
        start_ns=min(answer.start_ns, message.time_ns),
        end_ns=message.time_ns,
        request=body_text({"model": message.model}, answer.prompt, "contents"),
        response=encode(response),
        missing=_MISSING,
        extra=_PROVIDER,
    )


def _tool(call: _ToolCall, start_ns: int) -> SessionTool:
    end_ns = _ended(call, start_ns)
    return SessionTool(
        key=f"tool {call.id}",
        name=call.name,
        call_id=call.id,
        start_ns=min(start_ns, end_ns),
        end_ns=end_ns,
        arguments=call.args,
        result=call.result,
        failed=call.status == "error",
    )


def _ended(call: _ToolCall, otherwise: int) -> int:
    return otherwise if call.timestamp is None else text_to_ns(call.timestamp, "toolCalls.timestamp")


def _parts(message: _Message) -> list[Value]:
    """The parts of a message as the API has them: an answer's thoughts, text and tool calls stand apart in the log."""
    content = message.content if is_list(message.content) else [message.content] if message.content else []
    parts: list[Value] = [{"text": part} if isinstance(part, str) else part for part in content]
    if message.type != "gemini" or any(
        is_object(part) and ("functionCall" in part or part.get("thought")) for part in parts
    ):
        return parts
    subjects = [(thought.get("subject"), thought.get("description") or "") for thought in message.thoughts]
    thoughts = [f"**{subject}** {description}" if subject else description for subject, description in subjects]
    calls = [{"functionCall": {"id": call.id, "name": call.name, "args": call.args}} for call in message.tool_calls]
    return [*({"text": thought, "thought": True} for thought in thoughts), *parts, *calls]


def _responses(message: _Message) -> Iterator[dict[str, Value]]:
    """What tools answered, in a user's message."""
    for part in message.content if is_list(message.content) and message.type == "user" else ():
        response = part.get("functionResponse") if is_object(part) else None
        if is_object(response) and text_or_none(response.get("id")) is not None:
            yield response


def _results(call: _ToolCall) -> list[Value]:
    """What a tool answered, as it stands on its call."""
    if isinstance(call.result, str):
        return [{"functionResponse": {"id": call.id, "name": call.name, "response": {"output": call.result}}}]
    return call.result if is_list(call.result) else []


FORMAT: Final = SourceFormat(
    name=_NAME,
    detects=head_detector(_detects),
    reads=without_secrets(_reads),
    not_in_format=("system prompt", "tools", "finish reasons", "token ids", "failed requests"),
)
