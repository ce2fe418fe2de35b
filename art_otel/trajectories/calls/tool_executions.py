"""Tool executions: the tools that ran in a rollout, each with the turn that asked for it.

Invariant: every tool span of the rollout is one execution. An execution belongs to a turn only where its tool call's id
says so: of repeated ids a call of its name, the latest before it that no other execution has. Without an id it belongs
to a turn only where just one tool call before it has its name and arguments and no other execution.
"""

import json
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
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


def find_tool_executions(spans: Iterable[Span], lineage: Lineage, tree: SpanTree) -> tuple[ToolExecution, ...]:
    """The executions that tool spans recorded, in the order of their start."""
    ordered = sorted(spans, key=tree.order)
    sampled = _SampledCalls(lineage, tree) if ordered else None
    executions: list[ToolExecution] = []
    executed: set[_SampledCall] = set()
    for span in ordered:
        facts = tool_facts(span)
        request = None if sampled is None else sampled.request_for(facts, tree.starts[span.key], executed)
        if request is not None:
            executed.add(request)
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
                turn=None if request is None else request.turn,
            )
        )
    return tuple(executions)


class _SampledCalls:
    """The tool calls of a rollout by their id and by the tool's name."""

    def __init__(self, lineage: Lineage, tree: SpanTree) -> None:
        self._by_id: dict[str, list[_SampledCall]] = {}
        self._by_id_and_name: dict[tuple[str, str], list[_SampledCall]] = {}
        self._by_content: dict[tuple[str, str], list[_SampledCall]] = {}
        for turn_position, turn in enumerate(lineage.turns):
            call = lineage.calls[turn.call]
            for position, tool_call in enumerate(turn.message.tool_calls if turn.message else ()):
                start_ns = tree.starts[call.trace_id, call.span_id]
                sampled = _SampledCall(start_ns, turn_position, position, tool_call)
                content = (tool_call.name, canonical_arguments(tool_call.arguments))
                self._by_content.setdefault(content, []).append(sampled)
                if tool_call.id is not None:
                    self._by_id.setdefault(tool_call.id, []).append(sampled)
                    self._by_id_and_name.setdefault((tool_call.id, tool_call.name), []).append(sampled)

    def request_for(self, facts: ToolFacts, start_ns: int, executed: AbstractSet[_SampledCall]) -> _SampledCall | None:
        """The tool call that asked for an execution: the latest of its id and name, else the only one like it."""
        if facts.call_id is not None:
            sampled = self._by_id_and_name.get((facts.call_id, facts.name)) or self._by_id.get(facts.call_id, ())
            before = [one for one in sampled if one.start_ns <= start_ns]
            return max(before, key=lambda one: (one not in executed, *_order(one)), default=None)
        arguments = _canonical_arguments(facts)
        alike = () if arguments is None else self._by_content.get((facts.name, arguments), ())
        free = [one for one in alike if one.start_ns <= start_ns and one not in executed]
        return free[0] if len(free) == 1 else None


def _order(one: _SampledCall) -> tuple[int, int, int]:
    return one.start_ns, one.turn, one.position


def _canonical_arguments(facts: ToolFacts) -> str | None:
    """The arguments with which the tool ran, in one spelling; None when nobody recorded them."""
    if facts.arguments is None:
        return None
    return canonical_arguments(facts.arguments if isinstance(facts.arguments, str) else json.dumps(facts.arguments))
