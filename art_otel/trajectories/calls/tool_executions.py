"""Tool executions: the tools that ran in a rollout, each with the turn that asked for it.

Invariant: every tool span of the rollout is one execution. An execution belongs to a turn only where its tool call's id
says so, or, without an id, where just one tool call sampled before it has its name and arguments and no other
execution.
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


def find_tool_executions(spans: Iterable[Span], lineage: Lineage, tree: SpanTree) -> tuple[ToolExecution, ...]:
    """The executions that tool spans recorded, in the order of their start."""
    ordered = sorted(spans, key=tree.order)
    sampled = _sampled_calls(lineage, tree) if ordered else []
    executions: list[ToolExecution] = []
    executed: set[_SampledCall] = set()
    for span in ordered:
        facts = tool_facts(span)
        before = [one for one in sampled if one.start_ns <= tree.starts[span.key]]
        request = _request_for(facts, before, executed)
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


def _sampled_calls(lineage: Lineage, tree: SpanTree) -> list[_SampledCall]:
    return [
        _SampledCall(tree.starts[call.trace_id, call.span_id], turn_position, position, tool_call)
        for turn_position, turn in enumerate(lineage.turns)
        for call in (lineage.calls[turn.call],)
        for position, tool_call in enumerate(turn.message.tool_calls if turn.message else ())
    ]


def _request_for(
    facts: ToolFacts, before: Iterable[_SampledCall], executed: Iterable[_SampledCall]
) -> _SampledCall | None:
    """The tool call that asked for the execution: the latest of its id, else the only one like it."""
    if facts.call_id is not None:
        return max((one for one in before if one.call.id == facts.call_id), key=_order, default=None)
    alike = [one for one in before if one not in executed and _is_alike(facts, one.call)]
    return alike[0] if len(alike) == 1 else None


def _order(one: _SampledCall) -> tuple[int, int, int]:
    return one.start_ns, one.turn, one.position


def _is_alike(facts: ToolFacts, call: ToolCall) -> bool:
    """Whether the name and the arguments are the same."""
    if facts.name != call.name or facts.arguments is None:
        return False
    arguments = facts.arguments if isinstance(facts.arguments, str) else json.dumps(facts.arguments)
    return canonical_arguments(arguments) == canonical_arguments(call.arguments)
