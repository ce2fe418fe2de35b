"""Rollouts of Codex: `~/.codex/sessions/YYYY/MM/DD/rollout-*.jsonl`, lines `{"timestamp", "type", "payload"}`.

A `response_item` is an item of the Responses API. Those that a model gives, up to the next that goes to it or the end
of their response, are the answer of one call; all before are its prompt. `compacted` replaces them. Invariant: the
tools and the instructions that were sent stand in no rollout (`base_instructions` is another text), so each call says
that they are missing.

Source of the format: recordings of @openai/codex 0.169.0, and `codex-rs/protocol` in https://github.com/openai/codex.
"""

import io
from collections.abc import Iterator
from typing import Final

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

_NAME: Final = "codex"
_SAMPLED: Final = frozenset(
    {"reasoning", "function_call", "custom_tool_call", "local_shell_call", "web_search_call", "image_generation_call"}
)
_RESULTS: Final = frozenset({"function_call_output", "custom_tool_call_output"})
_INTERNAL: Final = "internal_chat_message_metadata_passthrough"
_UNLOGGED: Final[tuple[Missing, ...]] = ("system instructions", "tools")


class _Item(msgspec.Struct, frozen=True, kw_only=True):
    """What is read of an item of the Responses API."""

    type: str
    role: str | None = None
    call_id: str | None = None
    name: str | None = None
    arguments: Value = None
    input: Value = None
    output: Value = None


class _Answer(msgspec.Struct, kw_only=True):
    """What the model gave in one response, behind a prompt of item texts."""

    prompt: tuple[str, ...]
    model: str | None
    missing: tuple[Missing, ...]
    start_ns: int
    end_ns: int
    items: list[Value]
    response_id: str | None = None
    usage: dict[str, Value] | None = None


def _detects(line: dict[str, Value]) -> bool:
    payload = line.get("payload")
    return line.get("type") == "session_meta" and is_object(payload) and "timestamp" in line and "id" in payload


def _reads(stream: io.BufferedReader, reading: Reading) -> Iterator[Record]:
    log = LogLines(stream, reading)
    first = log.first(_detects)
    if first is None:
        yield from log.quarantined(None)
        return
    meta = first["payload"]
    thread, rollout_id = str(meta["id"]), str(meta.get("session_id") or meta["id"])
    session = Session(_NAME, rollout_id, agent=_NAME, version=str(meta.get("cli_version") or ""))
    rollout = _Rollout()
    log.feed(rollout.add)
    yield from log.quarantined(session.trace_id)
    above = ROOT if thread == rollout_id else f"thread {thread}"
    yield from rollout.spans(session, thread, above)
    times = rollout.times
    if not times:
        return
    if above == ROOT:
        metadata = {"cwd": meta.get("cwd"), "git": meta.get("git"), "version": meta.get("cli_version")}
        yield session.rollout(min(times), max(times), metadata=metadata)
    else:
        yield session.sub_agent(str(meta.get("agent_nickname") or "sub-agent"), above, ROOT, min(times), max(times))


class _Rollout:
    """The answers and tools of one file, line by line. Lines whose time cannot be read raise Refused."""

    def __init__(self) -> None:
        self.times: list[int] = []
        self._answers: list[_Answer] = []
        self._open: _Answer | None = None
        self._history: list[str] = []
        self._model: str | None = None
        self._missing = _UNLOGGED
        self._calls: dict[str | None, tuple[_Item, int]] = {}
        self._tools: list[SessionTool] = []

    def add(self, line: dict[str, Value]) -> None:
        """Add a line. Raises Refused."""
        kind, payload = line.get("type"), line.get("payload")
        time_ns = text_to_ns(str(line.get("timestamp")), "timestamp")
        self.times.append(time_ns)
        if not is_object(payload):
            return
        if kind == "response_item":
            self._add_item({name: value for name, value in payload.items() if name != _INTERNAL}, time_ns)
        elif kind == "turn_context":
            self._model = text_or_none(payload.get("model")) or self._model
        elif kind == "token_usage_record":
            self._add_usage(payload.get("usage"), payload.get("response_id"))
        elif kind == "compacted":
            self._compact(payload)
        elif kind == "event_msg":
            self._add_event(payload)

    def spans(self, session: Session, thread: str, above: str) -> Iterator[Span]:
        """The spans of calls and tools, below the span with the key `above`."""
        self._close()
        for number, answer in enumerate(self._answers):
            response = {
                "id": answer.response_id,
                "object": "response",
                "status": "completed",
                "model": answer.model,
                "output": answer.items,
                "usage": answer.usage,
            }
            call = SessionCall(
                key=f"call {thread} {number}",
                model=answer.model,
                start_ns=min(answer.start_ns, answer.end_ns),
                end_ns=answer.end_ns,
                request=body_text({"model": answer.model}, answer.prompt, "input"),
                response=encode(response),
                missing=answer.missing,
            )
            yield session.call(call, above)
        for tool in self._tools:
            yield session.tool(tool, above)

    def _add_item(self, item: dict[str, Value], time_ns: int) -> None:
        parsed = converted(item, _Item, strict=True)
        if parsed.type in _SAMPLED or (parsed.type == "message" and parsed.role == "assistant"):
            if self._open is None:
                start_ns = self.times[-2] if len(self.times) > 1 else time_ns
                self._open = _Answer(
                    prompt=tuple(self._history),
                    model=self._model,
                    missing=self._missing,
                    start_ns=start_ns,
                    end_ns=time_ns,
                    items=[],
                )
            self._open.items.append(item)
            self._open.end_ns = time_ns
            self._calls[parsed.call_id] = (parsed, time_ns)
        else:
            self._close()
            if parsed.type in _RESULTS:
                self._add_result(parsed, time_ns)
        self._history.append(encode(item))

    def _add_result(self, item: _Item, time_ns: int) -> None:
        call, start_ns = self._calls.get(item.call_id, (_Item(type="unknown"), time_ns))
        tool = SessionTool(
            key=f"tool {item.call_id}",
            name=call.name or call.type,
            call_id=item.call_id,
            start_ns=min(start_ns, time_ns),
            end_ns=time_ns,
            arguments=call.input if call.arguments is None else call.arguments,
            result=item.output,
        )
        self._tools.append(tool)

    def _add_usage(self, usage: Value, response_id: Value = None) -> None:
        """Give usage to the answer that it ends, or to the last one that has none."""
        self._close()
        if self._answers and self._answers[-1].usage is None and is_object(usage):
            answer = self._answers[-1]
            answer.usage = {
                **usage,
                "input_tokens_details": {"cached_tokens": usage.get("cached_input_tokens")},
                "output_tokens_details": {"reasoning_tokens": usage.get("reasoning_output_tokens")},
            }
            answer.response_id = response_id if isinstance(response_id, str) else None

    def _add_event(self, event: dict[str, Value]) -> None:
        if event.get("type") == "token_count" and is_object(info := event.get("info")):
            self._add_usage(info.get("last_token_usage"))
        elif event.get("type") == "thread_rolled_back":
            self._missing = (*_UNLOGGED, "messages")  # which items went is not told

    def _compact(self, payload: dict[str, Value]) -> None:
        self._close()
        history = payload.get("replacement_history")
        if is_list(history):
            self._history = [encode(item) for item in history]
            self._missing = _UNLOGGED
        else:
            self._missing = (*_UNLOGGED, "messages")

    def _close(self) -> None:
        if self._open is not None:
            self._answers.append(self._open)
            self._open = None


FORMAT: Final = SourceFormat(
    name="codex",
    detects=head_detector(_detects),
    reads=without_secrets(_reads),
    not_in_format=("tools", "instructions", "failed requests", "token ids"),
)
