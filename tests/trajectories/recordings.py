"""Recordings of calls written by hand: where a span stands, who made it, and what it says."""

from collections.abc import Callable, Iterable

from art_otel.calls import Choice, InferenceCall, Message, ToolCall
from art_otel.conventions import parse_call
from art_otel.spans import Event, Scope, Span, build_tree
from art_otel.trajectories.duplicate_groups import DuplicateGroups, read_recordings
from art_otel.trajectories.duplicate_rules import find_calls
from art_otel.trajectories.surroundings import contexts_above, find_contexts

TRACE = "1" * 32
ROOT = Span(trace_id=TRACE, span_id=f"{1:016x}", name="root", start_ns=0, end_ns=1_000)


def call(prompt: str | None = "a", answer: str | None = "b", tools: Iterable[ToolCall] = (), **fields) -> InferenceCall:
    """A call; each word of the prompt is a message, `system:` before it makes it an instruction."""
    messages = [
        Message(role="system" if word.startswith("system:") else "user", content=word.removeprefix("system:"))
        for word in (prompt or "").split()
    ]
    message = Message(role="assistant", content=answer, tool_calls=tuple(tools))
    known = {
        "trace_id": TRACE,
        "span_id": "2" * 16,
        "operation_name": "chat",
        "start_ns": 1,
        "end_ns": 2,
        "request_model": "m",
        "input_messages": None if prompt is None else tuple(messages),
        "choices": (Choice(index=0, message=message, finish_reason="stop"),) if answer is not None or tools else None,
    }
    return InferenceCall(**(known | fields))


class Tree:
    """Spans below a root, each with its call; numbers name them."""

    def __init__(self) -> None:
        self.spans = [ROOT]
        self.calls: dict[tuple[str, str], InferenceCall] = {}
        self.roles = {ROOT.key: "other"}

    def add(self, number: int, parent: int = 1, *, role: str = "other", start: int = 0, end: int | None = 99, **fields):
        """A span that is no call."""
        place = {"trace_id": TRACE, "span_id": f"{number:016x}", "parent_span_id": f"{parent:016x}"}
        span = Span(**(place | {"name": "work", "start_ns": start, "end_ns": end} | fields))
        self.spans.append(span)
        self.roles[span.key] = role
        return span

    def record(self, number: int, scope: str, told: InferenceCall, parent: int = 1, heard: int | None = None, **fields):
        """A recording of a call; `heard` is the moment of an event."""
        events = () if heard is None else (Event(name="first token", time_ns=heard),)
        span = self.add(number, parent, role="inference", scope=Scope(name=scope), events=events, **fields)
        self.calls[span.key] = told

    def joined_by(self, rule: Callable[[DuplicateGroups], None]) -> list[list[int]]:
        """The numbers of the spans of each call once one rule joined them."""
        tree = build_tree(self.spans)
        above = contexts_above(find_contexts(tree, self.roles, ()), tree)
        groups = DuplicateGroups(read_recordings(self.calls, tree, above), tree)
        rule(groups)
        return sorted([int(span.span_id, 16) for span in group.spans] for group in groups)


def are_one_call(outer: Span, inner: Span) -> bool:
    """Whether two spans are one call when one is right below the other."""
    below = Span(
        **{name: getattr(inner, name) for name in inner.__struct_fields__}
        | {"trace_id": outer.trace_id, "span_id": "9" * 16, "parent_span_id": outer.span_id}
    )
    tree = build_tree([outer, below])
    parsed = {span.key: parse_call(span) for span in (outer, below)}
    above = contexts_above(find_contexts(tree, dict.fromkeys(parsed, "inference"), ()), tree)
    return len(find_calls(parsed, tree, above)) == 1
