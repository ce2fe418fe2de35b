"""Sessions of opencode, as `opencode export` prints them: `{"info": …, "messages": [{"info", "parts"}]}`.

An assistant's message is one call with its tools and their results. Its prompt is made of the messages before it, as
opencode makes it. Invariant: no call is known whole: the export has no system prompt and no tools, and opencode adds
reminders to messages when it sends them. After a compaction the summary stands for what was before.

Source of the format: `packages/opencode/src/session/message-v2.ts` (https://opencode.ai), recordings of 1.18.
"""

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from art_otel.sources.agents.session import (
    Missing,
    Session,
    SessionCall,
    SessionTool,
    body_text,
    choice_body,
    document_reader,
)
from art_otel.sources.backends.values import as_ns
from art_otel.sources.format import SourceFormat, converted
from art_otel.sources.json_documents import encode, head_detector, is_object
from art_otel.spans import Span, Value

_NAME: Final = "opencode"
_MISSING: Final[Sequence[Missing]] = ("system instructions", "tools", "messages")
_COMPACTED: Final = "What did we do so far?"
_SAID_FOR: Final = {"compaction": _COMPACTED, "subtask": "The following tool was executed by the user"}
"""The text that opencode sends in the place of a part that is no text."""
_INTERRUPTED: Final = "[Tool execution was interrupted]"


class _Time(msgspec.Struct, frozen=True, kw_only=True):
    """When something began and ended, in milliseconds since the epoch."""

    created: int = 0
    completed: int | None = None
    start: int | None = None
    end: int | None = None


class _Cache(msgspec.Struct, frozen=True, kw_only=True):
    read: int = 0
    write: int = 0


class _Tokens(msgspec.Struct, frozen=True, kw_only=True):
    """`input` is without cached tokens, `output` without those of reasoning."""

    input: int
    output: int
    reasoning: int = 0
    cache: _Cache = _Cache()


class _Failure(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    data: dict[str, Value] = {}


class _Info(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    role: str
    time: _Time
    model: str | None = msgspec.field(default=None, name="modelID")
    summary: Value = None
    tokens: _Tokens | None = None
    finish: str | None = None
    error: _Failure | None = None


class _State(msgspec.Struct, frozen=True, kw_only=True):
    status: str
    input: Value = None
    raw: str | None = None
    output: str | None = None
    error: str | None = None
    time: _Time = _Time()


class _Part(msgspec.Struct, frozen=True, kw_only=True):
    type: str
    text: str = ""
    ignored: bool = False
    mime: str = ""
    url: str | None = None
    filename: str | None = None
    tool: str = ""
    call_id: str = msgspec.field(default="", name="callID")
    state: _State | None = None


class _Message(msgspec.Struct, frozen=True, kw_only=True):
    info: _Info
    parts: list[_Part]


class _SessionInfo(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    time: _Time
    version: str = ""
    title: str | None = None
    directory: str | None = None
    parent: str | None = msgspec.field(default=None, name="parentID")


class _Export(msgspec.Struct, frozen=True, kw_only=True):
    info: _SessionInfo
    messages: list[_Message]


def _detects(value: dict[str, Value]) -> bool:
    info = value.get("info")
    return is_object(info) and "projectID" in info and str(info.get("id")).startswith("ses_")


def _spans(value: dict[str, Value]) -> Iterator[Span]:
    export = converted(value, _Export)
    info = export.info
    session = Session(_NAME, info.id, agent=_NAME, version=info.version)
    prompt: list[str] = []
    end_ns = start_ns = _ns(info.time.created)
    for message in export.messages:
        if message.info.role == "user":
            prompt += map(encode, _asked(message))
            continue
        for span in (session.call(_call(message, prompt)), *_tools(message, session)):
            end_ns = max(end_ns, span.end_ns or span.start_ns)
            yield span
        if message.info.summary is True and message.info.error is None:
            prompt = [encode({"role": "user", "content": _COMPACTED})]
        if not _is_dropped(message):
            prompt += map(encode, _answered(message))
    metadata = {"title": info.title, "directory": info.directory, "parent_session": info.parent}
    yield session.rollout(start_ns, end_ns, metadata=metadata)


def _call(message: _Message, prompt: list[str]) -> SessionCall:
    info, error = message.info, message.info.error
    choice = choice_body(_answered(message)[0], info.finish)
    response = {"model": info.model, "choices": [choice], "usage": _usage(info.tokens)}
    return SessionCall(
        key=info.id,
        model=info.model,
        start_ns=_ns(info.time.created),
        end_ns=None if info.time.completed is None else _ns(info.time.completed),
        request=body_text({"model": info.model}, prompt),
        response=None if _is_dropped(message) or info.time.completed is None else encode(response),
        missing=_MISSING,
        error=None if error is None else (error.name, str(error.data.get("message") or "")),
    )


def _tools(message: _Message, session: Session) -> Iterator[Span]:
    """Make the executions of the tools that ended."""
    for part in message.parts:
        state = part.state
        if state is None or state.time.start is None or state.time.end is None:
            continue
        tool = SessionTool(
            key=f"tool {part.call_id}",
            name=part.tool,
            call_id=part.call_id,
            start_ns=_ns(state.time.start),
            end_ns=_ns(state.time.end),
            arguments=_arguments(state),
            result=_result(state),
            failed=state.status == "error",
        )
        yield session.tool(tool)


def _is_dropped(message: _Message) -> bool:
    """Whether opencode sends nothing of an answer that failed: one that was aborted it sends as far as it came."""
    error = message.info.error
    has_come = any(part.type not in ("step-start", "reasoning") for part in message.parts)
    return error is not None and not (error.name == "MessageAbortedError" and has_come)


def _asked(message: _Message) -> list[dict[str, Value]]:
    """A user's message in OpenAI's words; nothing for one without parts."""
    content: list[Value] = []
    for part in message.parts:
        text = part.text if part.type == "text" else _SAID_FOR.get(part.type)
        if text is not None and not part.ignored:
            content.append({"type": "text", "text": text})
        elif part.type == "file" and part.mime not in ("text/plain", "application/x-directory"):  # these are texts too
            content.append(_file(part))
    only = content[0] if len(content) == 1 else None
    plain = only["text"] if is_object(only) and only["type"] == "text" else content
    return [{"role": "user", "content": plain}] if content else []


def _file(part: _Part) -> dict[str, Value]:
    if part.mime.startswith("image/"):
        return {"type": "image_url", "image_url": {"url": part.url}}
    return {"type": "file", "file": {"file_data": part.url, "filename": part.filename}}


def _answered(message: _Message) -> list[dict[str, Value]]:
    """Write an answer and the results of its tools as OpenAI's messages."""
    tools = [(part, part.state) for part in message.parts if part.type == "tool" and part.state is not None]
    calls: list[Value] = [
        {"id": part.call_id, "type": "function", "function": {"name": part.tool, "arguments": _arguments(state)}}
        for part, state in tools
    ]
    answer: dict[str, Value] = {"role": "assistant", "content": _text(message, "text")}
    answer |= {"reasoning_content": _text(message, "reasoning"), "tool_calls": calls or None}
    results = [
        {"role": "tool", "tool_call_id": part.call_id, "content": _INTERRUPTED if result_text is None else result_text}
        for part, state in tools
        for result_text in (_result(state),)
    ]
    return [{name: value for name, value in answer.items() if value is not None}, *results]


def _text(message: _Message, kind: str) -> str | None:
    return "".join(part.text for part in message.parts if part.type == kind) or None


def _arguments(state: _State) -> str:
    """The arguments as JSON; as the model wrote them while its answer was not whole."""
    return state.raw if state.status == "pending" and state.raw is not None else encode(state.input)


def _result(state: _State) -> str | None:
    return state.error if state.status == "error" else state.output


def _usage(tokens: _Tokens | None) -> Value:
    if tokens is None:
        return None
    return {
        "prompt_tokens": tokens.input + tokens.cache.read + tokens.cache.write,
        "completion_tokens": tokens.output + tokens.reasoning,
        "prompt_tokens_details": {"cached_tokens": tokens.cache.read},
        "completion_tokens_details": {"reasoning_tokens": tokens.reasoning},
    }


def _ns(milliseconds: int) -> int:
    return as_ns(milliseconds, "time") or 0


FORMAT: Final = SourceFormat(
    name=_NAME,
    detects=head_detector(_detects),
    reads=document_reader(_spans),
    not_in_format=(
        "system prompt",
        "tools",
        "reminders in messages",
        "text of tool call arguments",
        "calls for titles",
    ),
)
