"""ClaudeTranscript: the conversation in a log of Claude Code: its answers, and what stood before each.

An answer is every `assistant` line of one `message.id`, a block or more a line. Lines name the one before them in
`parentUuid`; the results of an answer's tool calls are sent as one message, in the order in which they were logged.
"""

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from art_otel.sources.agents.claude_requests import Message
from art_otel.sources.agents.log_lines import LogLine
from art_otel.sources.agents.session import encode
from art_otel.sources.backends.times import text_to_ns
from art_otel.sources.json_text.values import is_list, is_object
from art_otel.spans import Value

SYNTHETIC: Final = "<synthetic>"
"""The model of a message that Claude Code wrote itself."""


class Answer(msgspec.Struct, kw_only=True):
    """What the model sampled for one request. `body` is that of its last line, with the blocks of all."""

    key: str
    agent: str | None
    request_id: str | None
    parent: str | None
    body: dict[str, Value]
    blocks: list[Value]
    indexes: list[Value]
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
        return (block for block in self.blocks if is_object(block) and block.get("type") == "tool_use")


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
    """Everything that was said, by answer. Raises Refused for a line that says when in no way."""

    def __init__(self) -> None:
        self.answers: dict[str, Answer] = {}
        self.results: dict[str, ToolResult] = {}
        self.failures: dict[str, Failure] = {}
        self.times: dict[str | None, list[int]] = {}
        self.first_texts: dict[str | None, str] = {}
        self._lines: dict[str, dict[str, Value]] = {}
        self._agents: dict[str, str | None] = {}
        self._user_lines: list[Message] = []
        self._answer_of: dict[str, str] = {}
        self._prompts: dict[str, tuple[str, ...]] = {}

    def add(self, line: LogLine) -> None:
        """Add a line of the conversation. Raises Refused."""
        value = line.value
        uuid, message = value.get("uuid"), value.get("message")
        if not isinstance(uuid, str):
            return
        time_ns = text_to_ns(str(value.get("timestamp")), "timestamp")
        agent = self._agents[uuid] = self._agent_of(value, uuid)
        self._lines[uuid] = value
        self.times.setdefault(agent, []).append(time_ns)
        if not is_object(message):
            return
        if value.get("type") == "assistant":
            self._add_answer(value, message, agent, time_ns)
        elif value.get("type") == "user":
            self._add_user(value, message, agent, time_ns)

    def messages(self) -> Iterator[Message]:
        """Every message that a request may repeat."""
        yield from self._user_lines
        for answer in self.answers.values():
            yield answer.message
            results = self._results_of(answer)
            if len(results) > 1:
                yield {"role": "user", "content": results}

    def prompt(self, answer: Answer) -> tuple[str, ...]:
        """The messages before an answer as JSON texts, as far as the conversation tells them."""
        said: list[str] = []
        at, before = answer.parent, None
        while at is not None and before is None:
            before = self.answers.get(self._answer_of.get(at, ""))
            line = self._lines.get(at, {})
            if before is None and line.get("type") == "user" and not _holds_results(line):
                said.append(encode(_sent(line["message"])))
            at = line.get("parentUuid")
        earlier: tuple[str, ...] = ()
        if before is not None:
            results = self._results_of(before)
            earlier = (*self._prompts.get(before.key, ()), encode(before.message))
            earlier += (encode({"role": "user", "content": results}),) if results else ()
        self._prompts[answer.key] = (*earlier, *reversed(said))
        return self._prompts[answer.key]

    def _agent_of(self, value: dict[str, Value], uuid: str) -> str | None:
        """The sub-agent whose line this is; older logs name none, so that it is the first of its lines."""
        if not value.get("isSidechain"):
            return None
        named = value.get("agentId")
        return named if isinstance(named, str) else self._agents.get(str(value.get("parentUuid"))) or uuid

    def _add_answer(self, value: dict[str, Value], message: Message, agent: str | None, time_ns: int) -> None:
        request_id = value.get("requestRef")
        content = message.get("content")
        if message.get("model") == SYNTHETIC or value.get("isApiErrorMessage"):
            if isinstance(request_id, str):
                error = (str(value.get("error") or "api_error"), _text_of(content))
                self.failures[request_id] = Failure(request_id=request_id, error=error, time_ns=time_ns)
            return
        key = str(message.get("id") or value["uuid"])
        blocks = content if is_list(content) else [{"type": "text", "text": content}]
        self._answer_of[value["uuid"]] = key
        if key not in self.answers:
            parent = value.get("parentUuid")
            self.answers[key] = Answer(
                key=key,
                agent=agent,
                request_id=request_id,
                parent=parent,
                body=message,
                blocks=[],
                indexes=[],
                start_ns=self._time_of(parent, time_ns),
                end_ns=time_ns,
                agent_name=value.get("attributionAgent"),
            )
        answer = self.answers[key]
        answer.blocks += blocks
        answer.indexes.append(value.get("apiBlockIndex"))
        answer.body, answer.end_ns = {**message, "content": answer.blocks}, max(answer.end_ns, time_ns)

    def _add_user(self, value: dict[str, Value], message: Message, agent: str | None, time_ns: int) -> None:
        self._user_lines.append(_sent(message))
        content = message.get("content")
        self.first_texts.setdefault(agent, _text_of(content))
        outcome = value.get("toolUseResult")
        sub_agent = outcome.get("agentId") if is_object(outcome) else None
        for block in content if is_list(content) else ():
            if is_object(block) and block.get("type") == "tool_result":
                result = ToolResult(block=block, order=len(self.results), time_ns=time_ns, agent=sub_agent)
                self.results[str(block.get("tool_use_id"))] = result

    def _results_of(self, answer: Answer) -> list[Value]:
        ids = {str(block.get("id")) for block in answer.tool_calls()}
        found = [self.results[call_id] for call_id in ids if call_id in self.results]
        return [result.block for result in sorted(found, key=lambda result: result.order)]

    def _time_of(self, uuid: Value, otherwise: int) -> int:
        line = self._lines.get(str(uuid))
        return otherwise if line is None else text_to_ns(str(line.get("timestamp")), "timestamp")


def _sent(message: Message) -> Message:
    """A message as it is sent: its role and its content."""
    return {"role": message.get("role"), "content": message.get("content")}


def _holds_results(line: dict[str, Value]) -> bool:
    content = line["message"].get("content") if is_object(line.get("message")) else None
    blocks: Iterable[Value] = content if is_list(content) else ()
    return any(is_object(block) and block.get("type") == "tool_result" for block in blocks)


def _text_of(content: Value) -> str:
    blocks: Iterable[Value] = content if is_list(content) else ()
    texts = [str(block.get("text") or "") for block in blocks if is_object(block)]
    return content if isinstance(content, str) else "".join(texts)
