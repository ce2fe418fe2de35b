"""Tool executions: the tools that ran in a rollout, each with the turn that asked for it.

Invariant: every tool span of the rollout is one execution. An execution belongs to a turn only where its tool call's id
says so: of repeated ids a call of its name, the latest before it that no other execution has. Without an id it belongs
to a turn only where just one tool call before it has its name and arguments and no other execution.
"""

import json
from collections.abc import Iterable
from typing import NamedTuple

from art_otel.calls import ToolCall, canonical_arguments
from art_otel.conventions import ToolFacts, failure_of, tool_facts
from art_otel.spans import Span, SpanTree
from art_otel.trajectories.lineage.turns import Lineage
from art_otel.trajectories.model import ToolExecution


class _SampledCall(NamedTuple):
    """A tool call that a turn sampled. `start_ns` is the start of the LLM call, on corrected clocks."""

    start_ns: int
    turn: int
    position: int
    call: ToolCall

    @property
    def key(self) -> tuple[int, int]:
        """What tells it apart from the other tool calls of its rollout."""
        return self.turn, self.position


def find_tool_executions(spans: Iterable[Span], lineage: Lineage, tree: SpanTree) -> tuple[ToolExecution, ...]:
    """The executions that tool spans recorded, in the order of their start. Takes n log n, whatever ids repeat."""
    ordered = sorted(spans, key=tree.order)
    requests = _Requests(lineage, tree) if ordered else None
    executions: list[ToolExecution] = []
    for span in ordered:
        facts = tool_facts(span)
        turn = None if requests is None else requests.take(facts, tree.starts[span.key])
        error_type, error = failure_of(span)
        executions.append(
            ToolExecution(
                span_id=span.span_id,
                name=facts.name,
                call_id=facts.call_id,
                arguments=facts.arguments,
                result=facts.result,
                error=error or error_type,
                start_ns=span.start_ns,
                end_ns=span.end_ns,
                turn=turn,
            )
        )
    return tuple(executions)


class _Waiting:
    """Tool calls of one kind that were sampled so far, the latest last, without those that are known to have run."""

    def __init__(self) -> None:
        self.calls: dict[tuple[int, int], _SampledCall] = {}
        self.latest: _SampledCall | None = None

    def add(self, one: _SampledCall) -> None:
        """Add a tool call, which comes behind those before it."""
        self.calls[one.key] = self.latest = one


class _Requests:
    """The tool calls that were sampled before an execution, by their id, by id and name, and by name and arguments.

    Executions are asked for in the order of their start.
    """

    def __init__(self, lineage: Lineage, tree: SpanTree) -> None:
        self._waiting: dict[tuple[str, str | None, str | None], _Waiting] = {}
        sampled: list[_SampledCall] = []
        for turn_position, turn in enumerate(lineage.turns):
            call = lineage.calls[turn.call]
            for position, tool_call in enumerate(turn.message.tool_calls if turn.message else ()):
                start_ns = tree.starts[call.trace_id, call.span_id]
                sampled.append(_SampledCall(start_ns, turn_position, position, tool_call))
        self._later = sorted(sampled, key=lambda one: one[:3], reverse=True)

    def take(self, facts: ToolFacts, start_ns: int) -> int | None:
        """The turn that asked for an execution: by the latest call of its id and name, else by the only one like it."""
        while self._later and self._later[-1].start_ns <= start_ns:
            one = self._later.pop()
            for key in _keys(one.call):
                self._waiting.setdefault(key, _Waiting()).add(one)
        request = self._like(facts) if facts.call_id is None else self._of_id(facts.call_id, facts.name)
        if request is None:
            return None
        for key in _keys(request.call):
            self._waiting[key].calls.pop(request.key, None)
        return request.turn

    def _of_id(self, call_id: str, name: str) -> _SampledCall | None:
        """The latest call of an id that has not run, else the latest; of those of the tool if there are any."""
        waiting = self._waiting.get((call_id, name, None)) or self._waiting.get((call_id, None, None))
        if waiting is None:
            return None
        return waiting.calls.popitem()[1] if waiting.calls else waiting.latest

    def _like(self, facts: ToolFacts) -> _SampledCall | None:
        arguments = _canonical_arguments(facts)
        waiting = None if arguments is None else self._waiting.get(("", facts.name, arguments))
        return next(iter(waiting.calls.values())) if waiting is not None and len(waiting.calls) == 1 else None


def _keys(call: ToolCall) -> list[tuple[str, str | None, str | None]]:
    by_content = ("", call.name, canonical_arguments(call.arguments))
    return [by_content] if call.id is None else [by_content, (call.id, call.name, None), (call.id, None, None)]


def _canonical_arguments(facts: ToolFacts) -> str | None:
    """The arguments with which the tool ran, in one spelling; None when nobody recorded them."""
    if facts.arguments is None:
        return None
    return canonical_arguments(facts.arguments if isinstance(facts.arguments, str) else json.dumps(facts.arguments))
