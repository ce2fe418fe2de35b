"""Sessions of Claude Code: `~/.claude/projects/PROJECT/SESSION.jsonl`, and `subagents/agent-ID.jsonl` beside it.

A session is a rollout with the session's id, its sub-agents are agents in it, wherever their lines stand. An answer is
every `assistant` line of one `message.id`, a block or more a line. Lines name the one before them in `parentUuid`; the
results of an answer's tool calls are sent as one message, in the order in which they were logged.

Versions that log their requests give them whole: a request is the first `keep` messages of the request `base` and those
whose hashes stand in `tail`. A hash is SHA-256 of the message as compact JSON with sorted keys, without
`cache_control`, a text being one part. The message itself is an `api-request-blob`, a `user` line, the answers to one
message's tool calls, or an assistant message. Of other versions the conversation is read, and the system prompt and
tools are unknown. Invariant: a request is given as verified only when every message, and its system prompt and tools,
have the hash that it names; a prompt that is not verified says so. The block `x-anthropic-billing-header: …` before the
system prompt is in no hash and in no log: it is outside of both.

Source of the format: recordings of @anthropic-ai/claude-code 2.1.330; there is no public one.
"""

import io
from collections.abc import Iterable, Iterator
from hashlib import sha256
from typing import Final, NamedTuple

import msgspec

from art_otel.sources.agents.session import (
    ROOT,
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

_NAME: Final = "claude-code"
_PROVIDER: Final = {"gen_ai.provider.name": "anthropic"}
_METADATA: Final = {"cwd": "cwd", "gitBranch": "git_branch", "version": "version"}
_REQUEST: Final = "api-request"
_BLOB: Final = "api-request-blob"
_SHAPE: Final = "api-request-shape"
_SYNTHETIC: Final = "<synthetic>"
"""The model of a message that Claude Code wrote itself."""

_Message = dict[str, Value]


def _detects(line: dict[str, Value]) -> bool:
    return line.keys() >= {"sessionId", "parentUuid", "uuid", "type", "timestamp"}


def _reads(stream: io.BufferedReader, reading: Reading) -> Iterator[Record]:
    log = LogLines(stream, reading)
    first = log.first(_detects)
    if first is None:
        yield from log.quarantined(None)
        return
    session = Session(_NAME, str(first["sessionId"]), agent=_NAME, version=str(first.get("version") or ""))
    transcript = _Transcript()
    log.feed(transcript.add)
    requests = _Requests(transcript.request_lines, transcript.messages())
    yield from log.quarantined(session.trace_id)
    yield from _SessionSpans(session, transcript, requests).spans(first)


class _SessionSpans:
    """The spans of one file."""

    def __init__(self, session: Session, transcript: "_Transcript", requests: "_Requests") -> None:
        self._session = session
        self._transcript = transcript
        self._requests = requests
        self._launchers = {
            str(block["input"].get("prompt")): block
            for answer in transcript.answers.values()
            for block in answer.tool_calls()
            if is_object(block.get("input")) and "prompt" in block["input"]
        }

    def spans(self, first: dict[str, Value]) -> Iterator[Span]:
        transcript, session = self._transcript, self._session
        for answer in transcript.answers.values():
            yield session.call(self._call(answer), _key_of(answer.agent))
            yield from self._tools(answer)
        answered = {answer.request_id for answer in transcript.answers.values()}
        for request_id in self._requests.by_id:
            if request_id not in answered:
                yield self._unanswered(request_id, transcript.failures.get(request_id))
        for agent, times in transcript.times.items():
            if agent is None:
                metadata = {name: first.get(field) for field, name in _METADATA.items()}
                yield session.rollout(min(times), max(times), metadata=metadata)
            else:
                yield self._sub_agent(agent, times)

    def _sub_agent(self, agent: str, times: list[int]) -> Span:
        """The span of a sub-agent, below the tool call that ran it, which may stand in another file."""
        named = (answer.agent_name for answer in self._transcript.answers.values() if answer.agent == agent)
        launcher = self._launchers.get(self._transcript.first_texts.get(agent, ""))
        parent = _launcher_key(agent) if launcher is None else self._tool_key(str(launcher.get("id")))
        name = next(filter(None, named), "sub-agent")
        return self._session.sub_agent(name, _key_of(agent), parent, min(times), max(times))

    def _call(self, answer: "_Answer") -> SessionCall:
        request = self._request(answer.request_id, self._transcript.prompt(answer), answer.start_ns)
        model = text_or_none(answer.body.get("model"))
        return SessionCall(
            key=f"call {answer.key}",
            model=model,
            start_ns=min(request.start_ns, answer.end_ns),
            end_ns=answer.end_ns,
            request=body_text({"model": model, **request.fields}, request.messages),
            response=encode(answer.body),
            missing=request.missing if answer.is_whole else (*request.missing, "answer"),
            extra=_PROVIDER,
        )

    def _unanswered(self, request_id: str, failure: "_Failure | None") -> Span:
        """The span of a request that failed, or that the log has no answer to: then it has not ended."""
        request = self._request(request_id, None, 0 if failure is None else failure.time_ns)
        call = SessionCall(
            key=f"request {request_id}",
            model=request.fields.get("model"),
            start_ns=request.start_ns,
            end_ns=None if failure is None else failure.time_ns,
            request=body_text(request.fields, request.messages),
            response=None,
            missing=request.missing,
            error=None if failure is None else failure.error,
            extra=_PROVIDER,
        )
        return self._session.call(call, _key_of(text_or_none(self._requests.by_id[request_id].get("agentId"))))

    def _request(self, request_id: str | None, conversation: tuple[str, ...] | None, start_ns: int) -> "_Request":
        """What was sent: as the log verifies it, else as the conversation tells it."""
        line = self._requests.by_id.get(request_id or "", {})
        prompt = self._requests.prompt(request_id or "")
        shape, params = prompt.shape, line.get("params")
        missing: list[Missing] = [] if shape is not None else ["system instructions", "tools"]
        if prompt.messages is None or "cut" in line:
            missing.append("messages")
        if line.get("withheld"):
            missing.append("parameters")
        return _Request(
            fields={**(params if is_object(params) else {}), **(shape or {})},
            messages=conversation if prompt.messages is None else prompt.messages,
            missing=tuple(missing),
            start_ns=text_to_ns(str(line["timestamp"]), "timestamp") if "timestamp" in line else start_ns,
        )

    def _tools(self, answer: "_Answer") -> Iterator[Span]:
        """The tools that an answer called and that have a result."""
        for block in answer.tool_calls():
            result = self._transcript.results.get(str(block.get("id")))
            if result is None:
                continue
            tool = SessionTool(
                key=self._tool_key(str(block.get("id"))),
                name=str(block.get("name")),
                call_id=block.get("id"),
                start_ns=min(answer.end_ns, result.time_ns),
                end_ns=result.time_ns,
                arguments=block.get("input"),
                result=result.block.get("content"),
                failed=result.block.get("is_error") is True,
            )
            yield self._session.tool(tool, _key_of(answer.agent))

    def _tool_key(self, call_id: str) -> str:
        """The key of a tool's span. One that ran a sub-agent is known by that one, which its own file names too."""
        result = self._transcript.results.get(call_id)
        return f"tool {call_id}" if result is None or result.agent is None else _launcher_key(result.agent)


class _Request(NamedTuple):
    """What was sent: the fields of the body but for its messages, and those as JSON texts; None: unknown."""

    fields: dict[str, Value]
    messages: tuple[str, ...] | None
    missing: tuple[Missing, ...]
    start_ns: int


def _key_of(agent: str | None) -> str:
    return ROOT if agent is None else f"agent {agent}"


def _launcher_key(agent: str) -> str:
    return f"launcher of {agent}"


class _Line(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A line of the conversation."""

    uuid: str
    type: str
    timestamp: str
    message: dict[str, Value] = {}
    parent_uuid: str | None = None
    is_sidechain: bool = False
    agent_id: str | None = None
    attribution_agent: str | None = None
    request_ref: str | None = None
    api_block_index: int | None = None
    is_api_error_message: bool = False
    error: str | None = None
    tool_use_result: Value = None

    @property
    def time_ns(self) -> int:
        """When it was written. Raises Refused."""
        return text_to_ns(self.timestamp, "timestamp")


class _Content(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of a message that are read."""

    role: str
    content: str | list[dict[str, Value]]
    id: str | None = None
    model: str | None = None


class _Answer(msgspec.Struct, kw_only=True):
    """What the model sampled for one request. `body` is that of its last line, with the blocks of all."""

    key: str
    agent: str | None
    request_id: str | None
    parent: str | None
    body: dict[str, Value]
    blocks: list[dict[str, Value]]
    indexes: list[int | None]
    start_ns: int
    end_ns: int
    agent_name: str | None

    @property
    def message(self) -> _Message:
        """The answer as a message of later prompts."""
        return {"role": "assistant", "content": self.blocks}

    @property
    def is_whole(self) -> bool:
        """Whether no block is missing, as far as the log counts them."""
        return self.indexes == [*range(len(self.indexes))] or set(self.indexes) == {None}

    def tool_calls(self) -> Iterator[dict[str, Value]]:
        """The blocks that call tools."""
        return (block for block in self.blocks if block.get("type") == "tool_use")


class _ToolResult(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a tool call, and the sub-agent that gave it."""

    block: dict[str, Value]
    order: int
    time_ns: int
    agent: str | None


class _Failure(NamedTuple):
    """How a request failed, and when."""

    error: tuple[str, str]
    time_ns: int


class _Transcript:
    """Everything that was said, by answer; and the lines that say what was sent."""

    def __init__(self) -> None:
        self.request_lines: list[dict[str, Value]] = []
        self.answers: dict[str, _Answer] = {}
        self.results: dict[str, _ToolResult] = {}
        self.failures: dict[str, _Failure] = {}
        self.times: dict[str | None, list[int]] = {}
        self.first_texts: dict[str | None, str] = {}
        self._lines: dict[str, _Line] = {}
        self._agents: dict[str, str | None] = {}
        self._user_lines: list[_Message] = []
        self._answer_of: dict[str, str] = {}
        self._prompts: dict[str, tuple[str, ...]] = {}

    def add(self, log_line: dict[str, Value]) -> None:
        """Add a line of the log. Raises Refused."""
        if "uuid" not in log_line:
            if log_line.get("type") == _REQUEST:
                text_to_ns(str(log_line.get("timestamp")), "timestamp")
            self.request_lines.append(log_line)
            return
        line = converted(log_line, _Line, strict=True)
        message = converted(line.message, _Content, strict=True) if line.type in ("assistant", "user") else None
        time_ns = line.time_ns
        agent = self._agents[line.uuid] = self._agent_of(line)
        self._lines[line.uuid] = line
        self.times.setdefault(agent, []).append(time_ns)
        if message is not None and line.type == "assistant":
            self._add_answer(line, message, agent, time_ns)
        elif message is not None:
            self._add_user(line, message, agent, time_ns)

    def messages(self) -> Iterator[_Message]:
        """Every message that a request may repeat."""
        yield from self._user_lines
        for answer in self.answers.values():
            yield answer.message
            results = self._results_of(answer)
            if len(results) > 1:
                yield {"role": "user", "content": results}

    def prompt(self, answer: _Answer) -> tuple[str, ...]:
        """List the messages before an answer as JSON texts, as far as the conversation has them."""
        user_messages: list[str] = []
        at, before, seen = answer.parent, None, set[str]()
        while at is not None and before is None and at not in seen:
            seen.add(at)
            before = self.answers.get(self._answer_of.get(at, ""))
            line = self._lines.get(at)
            if before is None and line is not None and line.type == "user" and not _holds_results(line):
                user_messages.append(encode(_sent(line.message)))
            at = None if line is None else line.parent_uuid
        earlier: tuple[str, ...] = ()
        if before is not None:
            results = self._results_of(before)
            earlier = (*self._prompts.get(before.key, ()), encode(before.message))
            earlier += (encode({"role": "user", "content": results}),) if results else ()
        self._prompts[answer.key] = (*earlier, *reversed(user_messages))
        return self._prompts[answer.key]

    def _agent_of(self, line: _Line) -> str | None:
        """The sub-agent whose line this is; older logs name none, so that it is the first of its lines."""
        if not line.is_sidechain:
            return None
        return line.agent_id or self._agents.get(line.parent_uuid or "") or line.uuid

    def _add_answer(self, line: _Line, message: _Content, agent: str | None, time_ns: int) -> None:
        if message.model == _SYNTHETIC or line.is_api_error_message:
            if line.request_ref is not None:
                error = (line.error or "api_error", _text_of(message.content))
                self.failures[line.request_ref] = _Failure(error, time_ns)
            return
        key = message.id or line.uuid
        self._answer_of[line.uuid] = key
        if key not in self.answers:
            self.answers[key] = _Answer(
                key=key,
                agent=agent,
                request_id=line.request_ref,
                parent=line.parent_uuid,
                body=line.message,
                blocks=[],
                indexes=[],
                start_ns=self._time_of(line.parent_uuid, time_ns),
                end_ns=time_ns,
                agent_name=line.attribution_agent,
            )
        answer = self.answers[key]
        answer.blocks += _blocks_of(message.content)
        answer.indexes.append(line.api_block_index)
        answer.body, answer.end_ns = {**line.message, "content": answer.blocks}, max(answer.end_ns, time_ns)

    def _add_user(self, line: _Line, message: _Content, agent: str | None, time_ns: int) -> None:
        self._user_lines.append(_sent(line.message))
        self.first_texts.setdefault(agent, _text_of(message.content))
        outcome = line.tool_use_result
        sub_agent = text_or_none(outcome.get("agentId")) if is_object(outcome) else None
        for block in _blocks_of(message.content):
            if block.get("type") == "tool_result":
                result = _ToolResult(block=block, order=len(self.results), time_ns=time_ns, agent=sub_agent)
                self.results[str(block.get("tool_use_id"))] = result

    def _results_of(self, answer: _Answer) -> list[Value]:
        ids = {str(block.get("id")) for block in answer.tool_calls()}
        results = [self.results[call_id] for call_id in ids if call_id in self.results]
        return [result.block for result in sorted(results, key=lambda result: result.order)]

    def _time_of(self, uuid: str | None, otherwise: int) -> int:
        line = self._lines.get(uuid or "")
        return otherwise if line is None else line.time_ns


def _sent(message: _Message) -> _Message:
    """A message as it is sent: its role and its content."""
    return {"role": message.get("role"), "content": message.get("content")}


def _holds_results(line: _Line) -> bool:
    content = line.message.get("content")
    return is_list(content) and any(is_object(block) and block.get("type") == "tool_result" for block in content)


def _blocks_of(content: str | list[dict[str, Value]]) -> list[dict[str, Value]]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _text_of(content: str | list[dict[str, Value]]) -> str:
    return "".join(str(block.get("text") or "") for block in _blocks_of(content))


class _VerifiedPrompt(NamedTuple):
    """The messages of a request as JSON texts, its system prompt and tools; None: not verified."""

    messages: tuple[str, ...] | None
    shape: dict[str, Value] | None


def _digest(value: Value) -> str:
    """The hash of a message or a shape, as Claude Code makes it; empty where it can have none."""
    try:
        data = msgspec.json.encode(_without_cache_control(value), order="sorted")
    except OverflowError:  # a whole number of more than 64 bits, which JavaScript does not have
        return ""
    return sha256(data).hexdigest()


def _message_digest(message: _Message) -> str:
    """Hash a message as Claude Code does, a text being one part."""
    content = message.get("content")
    return _digest({**message, "content": [{"type": "text", "text": content}]} if isinstance(content, str) else message)


class _Requests:
    """The requests of a log. `messages` are those of the conversation that requests may hold."""

    def __init__(self, lines: Iterable[dict[str, Value]], messages: Iterable[_Message]) -> None:
        self.by_id: dict[str, dict[str, Value]] = {}
        self._hashes: dict[str, tuple[str, ...]] = {}
        self._shapes: dict[str, dict[str, Value]] = {}
        self._messages: dict[str, str] = {_message_digest(message): encode(message) for message in messages}
        for line in lines:
            kind = line.get("type")
            if kind == _REQUEST:
                self._add(str(line.get("id")), line)
            elif kind == _BLOB and is_object(message := line.get("message")):
                self._messages[_message_digest(message)] = encode(message)
            elif kind == _SHAPE and is_object(shape := line.get("shape")):
                self._shapes[_digest(shape)] = shape

    def prompt(self, request_id: str) -> _VerifiedPrompt:
        """Return the messages of a request if their hashes match, and its system prompt and tools."""
        hashes = self._hashes.get(request_id)
        messages = None if hashes is None else [self._messages.get(text) for text in hashes]
        verified = None if messages is None or None in messages else tuple(filter(None, messages))
        return _VerifiedPrompt(verified, self._shapes.get(str(self.by_id.get(request_id, {}).get("shapeHash"))))

    def _add(self, request_id: str, line: dict[str, Value]) -> None:
        """Add a request. Its messages stay unknown when the one that it builds on is not in the log before it."""
        self.by_id[request_id] = line
        base, keep, tail = line.get("base"), line.get("keep"), line.get("tail")
        kept = () if base is None else self._hashes.get(str(base))
        if kept is not None and isinstance(keep, int) and 0 <= keep <= len(kept) and is_list(tail):
            self._hashes[request_id] = (*kept[:keep], *map(str, tail))


def _without_cache_control(value: Value) -> Value:
    if is_object(value):
        return {name: _without_cache_control(item) for name, item in value.items() if name != "cache_control"}
    return [_without_cache_control(item) for item in value] if is_list(value) else value


FORMAT: Final = SourceFormat(
    name="claude-code",
    detects=head_detector(_detects),
    reads=without_secrets(_reads),
    not_in_format=(
        "text of tool call arguments",
        "token ids",
        "the block for accounting before the system prompt",
        "system prompt and tools (older versions)",
    ),
)
