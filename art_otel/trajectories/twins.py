"""Twins: recordings of one request that lie beside each other and have one response id.

Invariant: two are one request only where instrumentors of different scopes ran at the same time and recorded nothing
that contradicts it. Servers repeat ids, so an id alone proves nothing.
"""

from collections import deque
from collections.abc import Hashable, Mapping

import msgspec

from art_otel.calls import InferenceCall
from art_otel.conventions import answers_agree, contradict, prompts_agree
from art_otel.spans import Span, SpanKey, SpanTree


class Group(msgspec.Struct, eq=False):
    """The spans of one request: by which scopes and names they are, and each content that they recorded, with a call.

    Contents are few, however many spans there are, so that comparing with each of them is cheap.
    """

    spans: list[Span] = []
    makers: set[tuple[str, str]] = msgspec.field(default_factory=set[tuple[str, str]])
    contents: dict[Hashable, InferenceCall] = {}

    def add(self, span: Span, call: InferenceCall) -> None:
        """Add one more recording of the request."""
        self.spans.append(span)
        self.makers.add((span.scope.name, span.name))
        if call.input_messages or call.choices or call.prompt_token_ids:
            self.contents.setdefault(_content(call), call)

    def contradicts(self, call: InferenceCall) -> bool:
        """Whether a recording cannot be of this request."""
        if not self.contents or _content(call) in self.contents:
            return False
        return any(contradict(recorded, call) for recorded in self.contents.values())


class _Twin(msgspec.Struct, eq=False):
    """A group and when those of its spans ran that have the response id."""

    group: Group
    start: int
    end: int


def join_twins(groups: list[Group], parsed: Mapping[SpanKey, InferenceCall], tree: SpanTree) -> list[Group]:
    """The groups, of which those that are twins became one; the first of them takes in the others."""
    by_response: dict[str, list[_Twin]] = {}
    for group in groups:
        response_id = next(filter(None, (parsed[span.key].response_id for span in group.spans)), None)
        if response_id is not None:
            by_response.setdefault(response_id, []).append(_twin(group, response_id, parsed, tree))
    taken: set[int] = set()
    for twins in by_response.values():
        if len(twins) > 1:
            taken.update(id(group) for group in _join(twins))
    return [group for group in groups if id(group) not in taken]


def _twin(group: Group, response_id: str, parsed: Mapping[SpanKey, InferenceCall], tree: SpanTree) -> _Twin:
    spans = [span for span in group.spans if parsed[span.key].response_id == response_id]
    starts = [tree.starts[span.key] for span in spans]
    ends = [start + (span.end_ns or span.start_ns) - span.start_ns for start, span in zip(starts, spans, strict=True)]
    return _Twin(group, min(starts), max(ends))


def _join(twins: list[_Twin]) -> list[Group]:
    """Join what ran at the same time, by start; gives the groups that another took in."""
    twins.sort(key=lambda twin: twin.start)
    running: deque[_Twin] = deque()
    taken: list[Group] = []
    for twin in twins:
        while running and running[0].end <= twin.start:
            running.popleft()
        outer = next((one for one in running if one.end > twin.start and _is_one(one.group, twin.group)), None)
        if outer is None:
            running.append(twin)
        else:
            outer.end = max(outer.end, twin.end)
            outer.group.spans += twin.group.spans
            outer.group.makers |= twin.group.makers
            outer.group.contents |= twin.group.contents
            taken.append(twin.group)
    return taken


def _is_one(first: Group, second: Group) -> bool:
    """Whether different instrumentors made the two, and nothing contradicts that they are one request."""
    if not first.makers.isdisjoint(second.makers):
        return False
    scopes = {scope for scope, _ in (*first.makers, *second.makers)}
    return len(scopes) > 1 and _agree(first.contents, second.contents)


def _content(call: InferenceCall) -> Hashable:
    """What was recorded of prompt and answer, and whether it is whole."""
    damaged = call.failed or bool(call.cut or call.dropped_attributes)
    return call.input_messages, call.choices, call.prompt_token_ids, call.stream, damaged


def _agree(first: Mapping[Hashable, InferenceCall], second: Mapping[Hashable, InferenceCall]) -> bool:
    """Whether no two contradict each other, and two agree about prompt and answer, where both have any content."""
    pairs = [(one, other) for one in first.values() for other in second.values()]
    if any(contradict(*pair) for pair in pairs):
        return False
    return not pairs or any(prompts_agree(*pair) and answers_agree(*pair) for pair in pairs)
