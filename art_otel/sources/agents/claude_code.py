"""Sessions of Claude Code: `~/.claude/projects/PROJECT/SESSION.jsonl`, and `subagents/agent-ID.jsonl` beside it.

A session is a rollout with the session's id, its sub-agents are agents in it, wherever their lines stand. Versions that
log their requests give them whole and verified (see `claude_requests`); of others the conversation is read, and the
system prompt and tools are unknown. Invariant: a prompt that is not verified says so.

Source of the format: recordings of @anthropic-ai/claude-code 2.1.330; there is no public one.
"""

import io
from collections.abc import Iterator
from typing import Final, NamedTuple

from art_otel.sources.agents.claude_requests import REQUEST, ClaudeRequests
from art_otel.sources.agents.claude_transcript import Answer, ClaudeTranscript, Failure
from art_otel.sources.agents.logs import LogLines, without_secrets
from art_otel.sources.agents.session import ROOT, Call, Missing, Session, Tool, body_text
from art_otel.sources.backends.times import text_to_ns
from art_otel.sources.format import Format, Reading, Record
from art_otel.sources.json_text.values import encode, head_detector, is_object, text_or_none
from art_otel.sources.refusals import Refused
from art_otel.spans import Span, Value

_NAME: Final = "claude-code"
_PROVIDER: Final = {"gen_ai.provider.name": "anthropic"}
_METADATA: Final = {"cwd": "cwd", "gitBranch": "git_branch", "version": "version"}


def _detects(line: dict[str, Value]) -> bool:
    return line.keys() >= {"sessionId", "parentUuid", "uuid", "type", "timestamp"}


def _reads(stream: io.BufferedReader, reading: Reading) -> Iterator[Record]:
    log = LogLines(stream, reading)
    first = next((line.value for line in log.lines if _detects(line.value)), None)
    if first is None:
        yield from log.quarantined(None)
        return
    session = Session(_NAME, str(first["sessionId"]), agent=_NAME, version=str(first.get("version") or ""))
    transcript = ClaudeTranscript()
    read: list[dict[str, Value]] = []
    for line in log.lines:
        try:
            if line.value.get("type") == REQUEST:
                text_to_ns(str(line.value.get("timestamp")), "timestamp")
            transcript.add(line)
            read.append(line.value)
        except Refused as problem:
            log.refuse(line.number, problem)
    requests = ClaudeRequests(read, transcript.messages())
    yield from log.quarantined(session.trace_id)
    yield from _ClaudeSession(session, transcript, requests).spans(first)


class _ClaudeSession:
    """The spans of one file."""

    def __init__(self, session: Session, transcript: ClaudeTranscript, requests: ClaudeRequests) -> None:
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

    def _call(self, answer: Answer) -> Call:
        request = self._request(answer.request_id, self._transcript.prompt(answer), answer.start_ns)
        model = text_or_none(answer.body.get("model"))
        return Call(
            key=f"call {answer.key}",
            model=model,
            start_ns=min(request.start_ns, answer.end_ns),
            end_ns=answer.end_ns,
            request=body_text({"model": model, **request.fields}, request.messages),
            response=encode(answer.body),
            missing=request.missing if answer.is_whole else (*request.missing, "answer"),
            extra=_PROVIDER,
        )

    def _unanswered(self, request_id: str, failure: Failure | None) -> Span:
        """The span of a request that failed, or that the log has no answer to: then it has not ended."""
        request = self._request(request_id, None, 0 if failure is None else failure.time_ns)
        call = Call(
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

    def _tools(self, answer: Answer) -> Iterator[Span]:
        """The tools that an answer called and that have a result."""
        for block in answer.tool_calls():
            result = self._transcript.results.get(str(block.get("id")))
            if result is None:
                continue
            content = result.block.get("content")
            tool = Tool(
                key=self._tool_key(str(block.get("id"))),
                name=str(block.get("name")),
                call_id=block.get("id"),
                start_ns=min(answer.end_ns, result.time_ns),
                end_ns=result.time_ns,
                arguments=encode(block.get("input")),
                result=content if isinstance(content, str) else encode(content),
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


FORMAT: Final = Format(
    name="claude-code",
    detects=head_detector(_detects),
    reads=without_secrets(_reads),
    lacks=(
        "text of tool call arguments",
        "token ids",
        "the block for accounting before the system prompt",
        "system prompt and tools (older versions)",
    ),
)
