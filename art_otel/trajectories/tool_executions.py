"""Tool executions: the tools that ran, each with the turn that asked for it.

Every tool span of a rollout is one execution. Its turn is found by the tool call's id; without an id by name and
arguments, if exactly one earlier tool call without an execution has them:

    turn 3 calls look(x=1) as c1       execute_tool look, c1          of turn 3
    turn 5 calls look(x=1) as c1       execute_tool look, c1          of turn 5, the latest that called c1
    turn 6 calls now() and now()       execute_tool now, no id        of no turn: it may be either
"""

import json
from collections.abc import Sequence
from typing import NamedTuple

from art_otel.calls import ToolCall, canonical_arguments
from art_otel.conventions import ToolFacts, failure_of, tool_facts
from art_otel.spans import Span, SpanTree
from art_otel.trajectories.model import Call, ToolExecution


class _SampledToolCall(NamedTuple):
    """A tool call that a turn sampled. `start_ns` is the start of the LLM call, on corrected clocks."""

    start_ns: int
    turn: int
    position: int
    call: ToolCall

    @property
    def key(self) -> tuple[int, int]:
        """The key of the tool call in its rollout."""
        return self.turn, self.position


def find_tool_executions(spans: Sequence[Span], calls: Sequence[Call], tree: SpanTree) -> tuple[ToolExecution, ...]:
    """The executions that tool spans recorded, in the order of their start. O(n log n), even if ids repeat."""
    ran = [(span, tool_facts(span)) for span in sorted(spans, key=tree.order)]
    if not ran:
        return ()
    requests = _Requests(calls, tree, has_ids=all(facts.call_id is not None for _, facts in ran))
    executions: list[ToolExecution] = []
    for span, facts in ran:
        turn = requests.take(facts, tree.starts[span.key])
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
    """Sampled tool calls with one key that have no execution yet, the latest last; `latest` may have one."""

    def __init__(self) -> None:
        self.calls: dict[tuple[int, int], _SampledToolCall] = {}
        self.latest: _SampledToolCall | None = None

    def add(self, one: _SampledToolCall) -> None:
        """Add a tool call. Tool calls must be added in the order of their start."""
        self.calls[one.key] = self.latest = one


class _Requests:
    """The tool calls that were sampled before an execution, by id, by id and name, and by name and arguments.

    `take` must be called in the order of the executions' starts. `has_ids`: all executions have an id, so none is
    searched by its arguments, which are slow to normalize.
    """

    def __init__(self, calls: Sequence[Call], tree: SpanTree, *, has_ids: bool) -> None:
        self._has_ids = has_ids
        self._waiting: dict[tuple[str, str | None, str | None], _Waiting] = {}
        sampled: list[_SampledToolCall] = []
        turns = [(call, turn) for call in calls for turn in call.choices or ()]
        for turn_position, (call, turn) in enumerate(turns):
            for position, tool_call in enumerate(turn.message.tool_calls if turn.message else ()):
                start_ns = tree.starts[call.trace_id, call.span_id]
                sampled.append(_SampledToolCall(start_ns, turn_position, position, tool_call))
        self._later = sorted(sampled, key=lambda one: one[:3], reverse=True)

    def take(self, facts: ToolFacts, start_ns: int) -> int | None:
        """The turn of the latest tool call with the execution's id, or of the only one with its name and arguments."""
        while self._later and self._later[-1].start_ns <= start_ns:
            one = self._later.pop()
            for key in self._keys(one.call):
                self._waiting.setdefault(key, _Waiting()).add(one)
        request = None
        if facts.call_id is not None:
            waiting = self._waiting.get((facts.call_id, facts.name, None)) or self._waiting.get(
                (facts.call_id, None, None)
            )
            if waiting is not None:
                # More executions than calls: a retried tool ran twice for the latest call.
                request = waiting.calls.popitem()[1] if waiting.calls else waiting.latest
        elif facts.arguments is not None:
            text = facts.arguments if isinstance(facts.arguments, str) else json.dumps(facts.arguments)
            waiting = self._waiting.get(("", facts.name, canonical_arguments(text)))
            if waiting is not None and len(waiting.calls) == 1:
                (request,) = waiting.calls.values()
        if request is None:
            return None
        for key in self._keys(request.call):
            self._waiting[key].calls.pop(request.key, None)
        return request.turn

    def _keys(self, call: ToolCall) -> list[tuple[str, str | None, str | None]]:
        """The keys under which a sampled tool call is found."""
        keys: list[tuple[str, str | None, str | None]] = []
        if not self._has_ids:
            keys.append(("", call.name, canonical_arguments(call.arguments)))
        if call.id is not None:
            keys += ((call.id, call.name, None), (call.id, None, None))
        return keys
