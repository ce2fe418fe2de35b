"""ClaudeTranscript: the conversation in a log of Claude Code: its answers, and what stood before each.

An answer is every `assistant` line of one `message.id`, a block or more a line. Lines name the one before them in
`parentUuid`; the results of an answer's tool calls are sent as one message, in the order in which they were logged.
"""

from collections.abc import Iterator
from typing import Final

import msgspec

from art_otel.sources.agents.claude_requests import Message
from art_otel.sources.agents.logs import LogLine
from art_otel.sources.backends.times import text_to_ns
from art_otel.sources.json_text.values import encode, is_list, is_object, text_or_none
from art_otel.sources.refusals import converted
from art_otel.spans import Value

SYNTHETIC: Final = "<synthetic>"
"""The model of a message that Claude Code wrote itself."""


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


class _Message(msgspec.Struct, frozen=True, kw_only=True):
    """What is read of a message."""

    role: str
    content: str | list[dict[str, Value]]
    id: str | None = None
    model: str | None = None


class Answer(msgspec.Struct, kw_only=True):
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
    def message(self) -> Message:
        """The answer as a message of later prompts."""
        return {"role": "assistant", "content": self.blocks}

    @property
    def is_whole(self) -> bool:
        """Whether no block is missing, as far as the log counts them."""
        return self.indexes == [*range(len(self.indexes))] or set(self.indexes) == {None}

    def tool_calls(self) -> Iterator[dict[str, Value]]:
        """The blocks that call tools."""
        return (block for block in self.blocks if block.get("type") == "tool_use")


class ToolResult(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a tool call, and the sub-agent that gave it."""

    block: dict[str, Value]
    order: int
    time_ns: int
    agent: str | None


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """A request that failed."""

    request_id: str
    error: tuple[str, str]
    time_ns: int


class ClaudeTranscript:
    """Everything that was said, by answer."""

    def __init__(self) -> None:
        self.answers: dict[str, Answer] = {}
        self.results: dict[str, ToolResult] = {}
        self.failures: dict[str, Failure] = {}
        self.times: dict[str | None, list[int]] = {}
        self.first_texts: dict[str | None, str] = {}
        self._lines: dict[str, _Line] = {}
        self._agents: dict[str, str | None] = {}
        self._user_lines: list[Message] = []
        self._answer_of: dict[str, str] = {}
        self._prompts: dict[str, tuple[str, ...]] = {}

    def add(self, log_line: LogLine) -> None:
        """Add a line of the log, if it is of the conversation. Raises Refused."""
        if "uuid" not in log_line.value:
            return
        line = converted(log_line.value, _Line, strict=True)
        message = converted(line.message, _Message, strict=True) if line.type in ("assistant", "user") else None
        time_ns = line.time_ns
        agent = self._agents[line.uuid] = self._agent_of(line)
        self._lines[line.uuid] = line
        self.times.setdefault(agent, []).append(time_ns)
        if message is not None and line.type == "assistant":
            self._add_answer(line, message, agent, time_ns)
        elif message is not None:
            self._add_user(line, message, agent, time_ns)

    def messages(self) -> Iterator[Message]:
        """Every message that a request may repeat."""
        yield from self._user_lines
        for answer in self.answers.values():
            yield answer.message
            results = self._results_of(answer)
            if len(results) > 1:
                yield {"role": "user", "content": results}

    def prompt(self, answer: Answer) -> tuple[str, ...]:
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

    def _add_answer(self, line: _Line, message: _Message, agent: str | None, time_ns: int) -> None:
        if message.model == SYNTHETIC or line.is_api_error_message:
            if line.request_ref is not None:
                error = (line.error or "api_error", _text_of(message.content))
                self.failures[line.request_ref] = Failure(request_id=line.request_ref, error=error, time_ns=time_ns)
            return
        key = message.id or line.uuid
        self._answer_of[line.uuid] = key
        if key not in self.answers:
            self.answers[key] = Answer(
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

    def _add_user(self, line: _Line, message: _Message, agent: str | None, time_ns: int) -> None:
        self._user_lines.append(_sent(line.message))
        self.first_texts.setdefault(agent, _text_of(message.content))
        outcome = line.tool_use_result
        sub_agent = text_or_none(outcome.get("agentId")) if is_object(outcome) else None
        for block in _blocks_of(message.content):
            if block.get("type") == "tool_result":
                result = ToolResult(block=block, order=len(self.results), time_ns=time_ns, agent=sub_agent)
                self.results[str(block.get("tool_use_id"))] = result

    def _results_of(self, answer: Answer) -> list[Value]:
        ids = {str(block.get("id")) for block in answer.tool_calls()}
        results = [self.results[call_id] for call_id in ids if call_id in self.results]
        return [result.block for result in sorted(results, key=lambda result: result.order)]

    def _time_of(self, uuid: str | None, otherwise: int) -> int:
        line = self._lines.get(uuid or "")
        return otherwise if line is None else line.time_ns


def _sent(message: Message) -> Message:
    """A message as it is sent: its role and its content."""
    return {"role": message.get("role"), "content": message.get("content")}


def _holds_results(line: _Line) -> bool:
    content = line.message.get("content")
    return is_list(content) and any(is_object(block) and block.get("type") == "tool_result" for block in content)


def _blocks_of(content: str | list[dict[str, Value]]) -> list[dict[str, Value]]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _text_of(content: str | list[dict[str, Value]]) -> str:
    return "".join(str(block.get("text") or "") for block in _blocks_of(content))
