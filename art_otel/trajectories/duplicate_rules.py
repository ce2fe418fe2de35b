"""Duplicate rules: find the recordings of one request, which several instrumentors may have recorded.

`find_calls` applies `RULES` one after another; each rule joins recordings of one call. `DuplicateGroups.join` refuses
two recordings that contradict each other, or that one instrumentor made. The first rules join nested recordings, the
later rules recordings that overlap in time, because some instrumentors do not make their spans current:

    nested:  chat (framework)            overlapping:  agent
             └─ chat (client)                          ├─ chat (LangChain)   ────────
                                                       └─ chat (client)        ────

The rules for overlapping recordings first join recordings with equal contents, then recordings that lost some content.

Invariant: no rule is quadratic, even where a server repeats ids or all calls are equal: a recording is compared with
at most `MAX_COMPARED` others that contradict it.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from heapq import merge
from itertools import islice, takewhile
from typing import Final, NamedTuple, TypeAlias

import msgspec

from art_otel.calls import Gap, InferenceCall
from art_otel.conventions import ART_OTEL, is_request_only, is_wrapper_method, recorder_of, request_key
from art_otel.spans import Span, SpanKey, SpanTree
from art_otel.trajectories.duplicate_groups import (
    CallRecording,
    DuplicateGroup,
    DuplicateGroups,
    content_key,
    contradicts,
    grouped,
    has_same_id,
    have_same_answer,
    have_same_choices,
    ids_differ,
    may_be_one,
    models_differ,
    prompts_differ,
    read_recordings,
    usage_differs,
)
from art_otel.trajectories.surroundings import AncestorContext

MAX_COMPARED: Final = 32
"""How many recordings a rule compares with one recording before it gives up. Without repeated ids there are few."""

_MAX_DEPTH: Final = 64
"""How many levels above a framework's span the parent of the client's span may be."""


class DeduplicatedCall(NamedTuple):
    """A call and its spans, the outermost recording first, the wrappers last."""

    call: InferenceCall
    spans: Sequence[Span]


def find_calls(
    parsed: Mapping[SpanKey, InferenceCall], tree: SpanTree, above: Mapping[SpanKey, AncestorContext]
) -> list[DeduplicatedCall]:
    """Find the calls that the inference spans of a rollout describe, in the order of their start.

    `parsed` has the call that each inference span describes, also by start; `above` each span's context.
    """
    response_ids = [call.response_id for call in parsed.values() if call.response_id is not None]
    if (
        len({recorder_of(tree.spans[key]) for key in parsed}) < 2
        and len(set(response_ids)) == len(response_ids)
        and all(above[key].call is None for key in parsed)
    ):  # In most rollouts one instrumentor made all spans, no call is inside another and no response id repeats.
        return [DeduplicatedCall(call, (tree.spans[key],)) for key, call in parsed.items()]
    groups = DuplicateGroups(read_recordings(parsed, tree, above), tree)
    for rule in RULES:
        rule(groups)
    mark_contradicting(groups)
    calls = [DeduplicatedCall(group.call, group.spans) for group in groups]
    return sorted(calls, key=lambda call: tree.order(call.spans[0]))


def mark_contradicting(groups: DuplicateGroups) -> None:
    """Mark two nested recordings of one request that contradict each other, so that neither is trained.

    Two recordings are of one request if they have one response id, or one prompt and no tool or agent between them.
    """
    for inner in groups.recordings:
        outer = groups.enclosing(inner)
        if outer is None:
            continue
        first, second = groups.of(outer), groups.of(inner)
        if first is second or not first.recorders.isdisjoint(second.recorders):
            continue
        one, other = outer.call, inner.call
        is_one_request = has_same_id(one, other) or (
            # Below a tool or agent, the inner recording may be another request that has the same prompt.
            bool(one.input_messages and other.input_messages)
            and outer.boundary_depth == inner.boundary_depth
            and not (ids_differ(one, other) or models_differ(one, other) or prompts_differ(one, other))
        )
        if is_one_request and contradicts(first.call, second.call):
            # Token ids that only one recording has are the server's own: a text cannot contradict them.
            field = "call" if _has_ids(first.call) and _has_ids(second.call) else "messages"
            for group in (first, second):
                gap = Gap(kind="contradicted", field=field, evidence="another recording of the call")
                group.merged = msgspec.structs.replace(group.call, gaps=(*group.call.gaps, gap))


def _has_ids(call: InferenceCall) -> bool:
    return any(choice.token_ids is not None for choice in call.choices or ())


def attach_wrapper_methods(groups: DuplicateGroups) -> None:
    """Attach the span of a method to the last call inside it that the same instrumentor recorded (LlamaIndex)."""
    last_calls: dict[CallRecording, CallRecording] = {}
    for inner in groups.recordings:
        outer = inner.outer
        if outer is None or outer.span.scope.name != inner.span.scope.name:
            continue
        if is_wrapper_method(outer.span, outer.call) and not models_differ(outer.call, inner.call):
            last_calls[outer] = inner
    for method, call in reversed(last_calls.items()):  # the inner ones first: a method may be around a method
        groups.attach(method, groups.of(call))


def attach_request_only_spans(groups: DuplicateGroups) -> None:
    """Attach a span that has only the request to the call around it that has the response.

    An instrumentor may make one span when a request is sent and a second one when the answer has come (Logfire).
    """
    for inner in groups.recordings:
        outer = groups.enclosing(inner)
        if outer is None or outer.recorder == inner.recorder or outer.call.response_id is None:
            continue
        if is_request_only(inner.span, inner.call) and is_same_request(outer.call, inner.call):
            groups.attach(inner, groups.of(outer))


def attach_requests_in_one(groups: DuplicateGroups) -> None:
    """Attach a recording of n choices to the last of the n requests below it that sampled one choice each.

    generate  n=2  -> "a", "b"        a client may ask for n choices by n requests:
    ├─ chat        -> "a"             a call
    └─ chat        -> "b"             a call; `generate` is attached to it
    """
    for (outer, _), inners in _recordings_below(groups).items():
        requests = [inner for inner in inners if not inner.call.failed and not prompts_differ(outer.call, inner.call)]
        if len(requests) > 1 and have_same_choices(outer.call, [request.call for request in requests]):
            # The attached recording must not add n choices and their usage to a call that has one.
            rest = msgspec.structs.replace(outer.call, choices=None, usage=None, response_id=None, parameters={})
            groups.attach(
                msgspec.structs.replace(outer, call=rest), groups.of(max(requests, key=lambda request: request.start))
            )


def join_nested(groups: DuplicateGroups) -> None:
    """Join a recording with the recording below it that has the same request and is by another instrumentor.

    A call that failed for its caller and completed at a proxy counts as one failed call: the proxy's other attempts,
    and the recordings below them, are attached to it.
    """
    attached: set[CallRecording] = set()
    for (outer, _), inners in _recordings_below(groups).items():  # the outer ones first
        repeated = find_repeated(outer, sorted(inners, key=lambda one: one.start))
        if repeated is None:
            continue
        call = groups.of(outer)
        if outer in attached:
            attempts = [inner for inner in inners if _repeats_request(outer, inner)]
        elif groups.join(call, groups.of(repeated)) and outer.call.failed and not repeated.call.failed:
            attempts = [inner for inner in inners if inner is not repeated and _repeats_request(outer, inner)]
        else:
            continue
        for attempt in attempts:
            groups.attach(attempt, call)
        attached.update(attempts)


def _recordings_below(groups: DuplicateGroups) -> dict[tuple[CallRecording, str], list[CallRecording]]:
    """The recordings directly below each outer recording, by the outer recording and the inner ones' scope name."""
    below: dict[tuple[CallRecording, str], list[CallRecording]] = {}
    for inner in groups.recordings:
        outer = groups.enclosing(inner)
        if outer is not None:
            below.setdefault((outer, inner.span.scope.name), []).append(inner)
    return below


def find_repeated(outer: CallRecording, inners: Sequence[CallRecording]) -> CallRecording | None:
    """Find the inner recording of the call that the outer one records; `inners` are ordered by start.

    An inner recording fits if it has the same request. With another prompt (a framework may record the prompt before
    it formats it) only the first answered one fits, if the answers are equal and no tool or agent lies between.
    If several fit (a router that tries again): the last with the outer's answer, else the last that did not fail.
    """
    repeated: list[CallRecording] = []
    is_first_answer = True
    for inner in inners:
        is_passed_on = inner.boundary_depth == outer.boundary_depth
        is_same_first = is_first_answer and is_passed_on and outer.recorder != inner.recorder
        if _repeats_request(outer, inner) or (is_same_first and is_same_answer(outer.call, inner.call)):
            repeated.append(inner)
        is_first_answer = is_first_answer and inner.call.choices is None
    if len(repeated) < 2:
        return next(iter(repeated), None)
    completed = [inner for inner in repeated if not inner.call.failed]
    answered = [inner for inner in completed if have_same_answer(outer.call, inner.call)]
    return (answered or completed or repeated)[-1]


def _repeats_request(outer: CallRecording, inner: CallRecording) -> bool:
    return outer.recorder != inner.recorder and is_same_request(outer.call, inner.call)


def is_same_request(outer: InferenceCall, inner: InferenceCall) -> bool:
    """Whether two nested recordings are of one request, by the response's id or else by the prompt."""
    return may_be_one(outer, inner) and (has_same_id(outer, inner) or not prompts_differ(outer, inner))


def is_same_answer(outer: InferenceCall, inner: InferenceCall) -> bool:
    """Whether two nested recordings have the same answer and nothing in their token counts differs."""
    return have_same_answer(outer, inner) and may_be_one(outer, inner) and not usage_differs(outer, inner)


def join_split_streams(groups: DuplicateGroups) -> None:
    """Join the span of a request with the later span that has the answer of its stream."""
    requests = LatestOpen()
    for recording in sorted(groups.recordings, key=lambda one: one.start):
        beside = recording.span.scope.name, recording.span.parent_span_id
        if is_request_only(recording.span, recording.call):
            requests.add(recording, beside)
        else:

            def joins(request: CallRecording, answer: CallRecording = recording) -> bool:
                is_answer = answer.call.choices is not None and _repeats_request(request, answer)
                return is_answer and groups.join(groups.of(request), groups.of(answer))

            requests.take(recording, beside, joins)


def attach_doubles(groups: DuplicateGroups) -> None:
    """Attach a second recording of a call by the same instrumentor to the outer of the two, else to the first.

    An instrumentor that was set up twice, or that exports through two providers, gives both spans the response's id.
    One span encloses the other, or both have the same times (LiteLLM). Equal calls without an id stay two calls: they
    may be two samples of one prompt.
    """
    around: set[SpanKey] = set()
    for inner in groups.recordings:
        outer = groups.enclosing(inner)
        if outer is not None:
            around.add(outer.span.key)
        if outer is None or outer.recorder != inner.recorder or not has_same_id(outer.call, inner.call):
            continue
        is_at_once = outer.end is None or inner.start < outer.end or inner.start == outer.start
        is_double = have_same_answer(outer.call, inner.call) and not contradicts(outer.call, inner.call)
        if is_double and is_at_once:
            groups.attach(inner, groups.of(outer))

    def key_of_double(one: CallRecording) -> Hashable | None:
        call = one.call
        content = None if call.response_id is None else content_key(call)
        tokens = call.prompt_token_ids, tuple((choice.token_ids, choice.logprobs) for choice in call.choices or ())
        return None if content is None else (one.recorder, call.response_id, content, tokens)

    for same in grouped(groups.recordings, key_of_double):
        # The one around other recordings first: they are joined with it, not with what is attached to another.
        first, *others = sorted(
            same, key=lambda one: (one.start, -(one.end or one.start), one.span.key not in around, one.span.key)
        )
        for one in others:
            if (one.end or one.start) > (first.end or first.start):
                first = one
            else:
                groups.attach(one, groups.of(first))


def join_one_response(groups: DuplicateGroups) -> None:
    """Join recordings that have one response id and ran at the same time (at another time a server repeated the id)."""
    for of_one_id in grouped(groups, lambda group: group.call.response_id):
        for same in _surest_first(groups, of_one_id, groups.content_of):
            running = _Running(groups, _last_end)
            for inner in same:
                _join_first(groups, running, inner, running.at_once(inner))


def join_enclosed(groups: DuplicateGroups) -> None:
    """Join a recording with the shortest recording of the same content that encloses it in time.

    agent                                  the outer recording must be below the parent of the inner one
    ├─ chat (LangChain)   ────────         "2 + 2?" -> "4"
    └─ chat (client)        ────           "2 + 2?" -> "4", id = r1; at most one of the two has an id
    """
    if all(group.call.response_id is not None for group in groups):
        return

    def tool_call_ids(group: DuplicateGroup) -> Hashable:
        return tuple(call.id for choice in group.call.choices or () for call in choice.message.tool_calls)

    for of_one_content in grouped(groups, groups.content_of):
        for same in _surest_first(groups, of_one_content, tool_call_ids):
            # An outer recording takes one inner recording of an instrumentor: n equal requests stay n calls.
            running = _Running(groups, _end, below_parent=True)
            for inner in same:
                _join_first(groups, running, inner, running.enclosing(inner))


def join_failures(groups: DuplicateGroups) -> None:
    """Join a failed recording with the shortest failed recording that encloses it in time, below its parent.

    Only one of the two may have content: Anthropic's client traces itself, by default without content, beside the
    span of an instrumentor, and a request that the server refused has no response id to compare.
    """
    failed = [
        one for one in groups if one.call.failed and one.call.response_id is None and one.outermost.end is not None
    ]

    def has_content(group: DuplicateGroup) -> bool:
        return bool(group.call.input_messages or group.call.choices)

    running = _Running(groups, _end, below_parent=True)
    for inner in sorted(failed, key=_by_start):
        around = islice(running.enclosing(inner), MAX_COMPARED)
        fitting = (one for one in around if not (has_content(inner) and has_content(one.group)))
        _join_first(groups, running, inner, fitting)


def join_unanswered(groups: DuplicateGroups) -> None:
    """Join a recording without an answer with the shortest answered recording of the same request that encloses it.

    The outer recording must be below the parent of the inner one. Anthropic's client records no answer of a stream,
    and LangChain's recording around it has no response id. Each outer recording takes one inner recording.
    """
    unanswered = [one for one in groups if _is_unanswered(one)]
    if not unanswered:
        return
    asked = [one for one in groups if one.call.choices and one.outermost.end is not None]
    for same in _surest_first(groups, [*asked, *unanswered], lambda one: request_key(one.call)):
        running = _Running(groups, _end, below_parent=True)
        for inner in same:
            if not _is_unanswered(inner):
                running.add(inner, inner)
                continue
            for outer in islice(running.enclosing(inner), MAX_COMPARED):
                recorders = frozenset(outer.group.recorders)
                if not usage_differs(outer.group.call, inner.call) and groups.join(outer.group, inner):
                    running.remove(outer, recorders)
                    break


def _is_unanswered(group: DuplicateGroup) -> bool:
    """Whether the request completed, but only its prompt was recorded."""
    call = group.call
    return bool(call.input_messages) and call.choices is None and not call.failed and group.outermost.end is not None


def _surest_first(
    groups: DuplicateGroups, same: list[DuplicateGroup], key_of: Callable[[DuplicateGroup], Hashable | None]
) -> Iterator[list[DuplicateGroup]]:
    """The groups that also share a second key, one list per key; then all that are not joined yet; lists by start."""
    parts = grouped(same, key_of)
    if len(parts) == 1 and len(parts[0]) == len(same):
        parts = []
    for part in (*parts, same):
        yield sorted((one for one in part if groups.of(one.outermost) is one), key=_by_start)


def _join_first(
    groups: DuplicateGroups, running: "_Running", inner: DuplicateGroup, candidates: Iterator["_Ending"]
) -> None:
    """Join a group with the first candidate that allows it; the joined group then ends where `inner` ended."""
    for one in islice(candidates, MAX_COMPARED):
        recorders = frozenset(one.group.recorders)
        if groups.join(one.group, inner):
            running.remove(one, recorders)
            running.add(one.group, inner)
            return
    running.add(inner, inner)


class _Ending(NamedTuple):
    """A group and its end in nanoseconds. `order` sorts groups with equal ends, because groups have no order."""

    end: int
    order: int
    group: DuplicateGroup
    has_id: bool


_Class: TypeAlias = tuple[frozenset[tuple[str, str]], bool]


class _Running:
    """Groups by end, in one sorted list per recorders and presence of a response id.

    Groups that share a recorder with the searched one can never be joined: their whole list is skipped. With
    `below_parent` a search finds only groups below the parent of the searched group.
    """

    def __init__(
        self, groups: DuplicateGroups, end_of: Callable[[DuplicateGroup], int], *, below_parent: bool = False
    ) -> None:
        self._all = groups
        self._end_of = end_of
        self._below_parent = below_parent
        self._count = 0
        self._classes: dict[SpanKey | None, dict[_Class, list[_Ending]]] = {}

    def add(self, group: DuplicateGroup, innermost: DuplicateGroup) -> None:
        """Add a group under the end of its innermost recording."""
        self._count += 1
        one = _Ending(self._end_of(innermost), self._count, group, group.call.response_id is not None)
        for key in self._keys(group):
            insort(self._classes.setdefault(key, {}).setdefault(_class_of(one, group.recorders), []), one)

    def remove(self, one: _Ending, recorders: frozenset[tuple[str, str]]) -> None:
        """Remove a group that was added with these recorders."""
        for key in self._keys(one.group):
            group = self._classes[key][_class_of(one, recorders)]
            del group[bisect_left(group, one)]

    def enclosing(self, inner: DuplicateGroup) -> Iterator[_Ending]:
        """The groups that end no earlier than the inner one, the shortest first."""
        end = (self._end_of(inner),)
        around = ((group, range(bisect_left(group, end), len(group))) for group in self._candidates(inner))
        yield from merge(*(map(group.__getitem__, places) for group, places in around))  # slices would copy the groups

    def at_once(self, inner: DuplicateGroup) -> Iterator[_Ending]:
        """The groups that run when the inner one starts: those that end no earlier first, then the last to end."""
        start, end = inner.outermost.start, (self._end_of(inner),)
        for one in islice(self.enclosing(inner), MAX_COMPARED):
            if one.end > start or one.group.outermost.start == start:
                yield one
        candidates = [
            map(group.__getitem__, range(bisect_left(group, end) - 1, -1, -1)) for group in self._candidates(inner)
        ]
        yield from takewhile(lambda one: one.end > start, merge(*candidates, reverse=True))

    def _candidates(self, inner: DuplicateGroup) -> list[list[_Ending]]:
        classes = self._classes.get(self._all.parent_of(inner) if self._below_parent else None, {})
        has_id = inner.call.response_id is not None
        return [
            group
            for (recorders, others_have_id), group in classes.items()
            if inner.recorders.isdisjoint(recorders) and not (self._below_parent and has_id and others_have_id)
        ]

    def _keys(self, group: DuplicateGroup) -> Iterable[SpanKey | None]:
        """Below which spans a group is found: None for those that have no parent here."""
        return (None, *self._all.nearest_ancestors(group, _MAX_DEPTH)) if self._below_parent else (None,)


def _class_of(one: _Ending, recorders: Iterable[tuple[str, str]]) -> _Class:
    return frozenset(recorders), one.has_id


class LatestOpen:
    """Open requests that wait for the recording of their answer; `take` gives the latest one that fits."""

    def __init__(self) -> None:
        self._open: dict[Hashable, dict[SpanKey, CallRecording]] = {}

    def add(self, one: CallRecording, kind: Hashable) -> None:
        """Add a recording. Recordings must be added in the order of their start."""
        for key in _asked_keys(one, kind):
            self._open.setdefault(key, {})[one.span.key] = one

    def take(self, like: CallRecording, kind: Hashable, fits: Callable[[CallRecording], bool]) -> CallRecording | None:
        """Take the latest recording that fits, first among those with the same prompt; None if none fits."""
        for key in _asked_keys(like, kind):
            waiting, passed = self._open.get(key, {}), list[CallRecording]()
            taken = None
            while taken is None and waiting and len(passed) < MAX_COMPARED:
                _, one = waiting.popitem()
                if fits(one):
                    taken = one
                else:
                    passed.append(one)
            waiting.update((one.span.key, one) for one in reversed(passed))
            if taken is not None:
                self.remove(taken, kind)
                return taken
        return None

    def remove(self, one: CallRecording, kind: Hashable) -> None:
        """Remove a recording, which no later answer can belong to."""
        for key in _asked_keys(one, kind):
            self._open[key].pop(one.span.key, None)


def _asked_keys(one: CallRecording, kind: Hashable) -> tuple[Hashable, Hashable]:
    return (kind, request_key(one.call)), kind


def join_unsurrounded(groups: DuplicateGroups) -> None:
    """Join art-otel's recording with the latest earlier recording of the same request by an instrumentor.

    art-otel records a request where no span of a call is current. OpenLLMetry makes its span only afterwards, with an
    earlier start; the span has neither response id nor answer if the request failed or the app left the stream.
    """
    recordings = sorted((one for one in groups if one.recorders == {(ART_OTEL, "")}), key=_by_start)
    if not recordings:
        return
    others = [one for one in groups if one.call.response_id is None and one.outermost.span.scope.name != ART_OTEL]
    waiting = sorted(others, key=_by_start, reverse=True)
    ends = sorted((_last_end(one), one.outermost.span.key, one) for one in others)
    ended = 0
    running = LatestOpen()
    for inner in recordings:
        start = inner.outermost.start
        while waiting and waiting[-1].outermost.start <= start:
            outer = waiting.pop()
            running.add(outer.outermost, outer.call.request_model)
        while ended < len(ends) and ends[ended][0] <= start:
            running.remove(ends[ended][2].outermost, ends[ended][2].call.request_model)
            ended += 1
        model = inner.call.request_model

        def joins(outer: CallRecording, inner: DuplicateGroup = inner) -> bool:
            around = groups.of(outer)
            return not prompts_differ(around.call, inner.call) and _join_beside(groups, around, inner)

        if model is not None:
            running.take(inner.outermost, model, joins)


def join_late_streams(groups: DuplicateGroups) -> None:
    """Join a span that has an event after its own end with the call of equal content that ran at that time.

    LlamaIndex ends the span of a stream when the generator is made, before the request is sent. The event marks the
    first token.
    """
    if not any(map(_late_event, groups)) or all(group.call.response_id is not None for group in groups):
        return
    for same in grouped(groups, groups.content_of):
        late = sorted(
            (moment, order, one) for order, one in enumerate(same) if (moment := _late_event(one)) is not None
        )
        moments = [moment for moment, _, _ in late]
        for inner in sorted((one for one in same if _late_event(one) is None), key=_end):
            first, last = bisect_left(moments, inner.outermost.start), bisect_right(moments, _end(inner))
            for at in range(first, min(last, first + MAX_COMPARED)):
                if _join_beside(groups, late[at][2], inner):
                    del late[at], moments[at]
                    break


def _join_beside(groups: DuplicateGroups, outer: DuplicateGroup, inner: DuplicateGroup) -> bool:
    return groups.is_below_parent(outer, inner) and groups.join(outer, inner)


def _by_start(group: DuplicateGroup) -> tuple[int, int, SpanKey]:
    return group.outermost.start, -_end(group), group.outermost.span.key


def _end(group: DuplicateGroup) -> int:
    """The end of the outermost recording in nanoseconds; its start if it has not ended."""
    return group.outermost.start if group.outermost.end is None else group.outermost.end


def _last_end(group: DuplicateGroup) -> int:
    """The latest end of all recordings in nanoseconds."""
    return max((one.end for one in group.recordings if one.end is not None), default=_end(group))


def _late_event(group: DuplicateGroup) -> int | None:
    """The time of the last event after the end of its span; None without such an event."""
    late = [
        one.start + one.span.events[-1].time_ns - one.span.start_ns
        for one in group.recordings
        if one.span.events and one.span.end_ns is not None and one.span.events[-1].time_ns > one.span.end_ns
    ]
    return max(late, default=None)


RULES: Final[tuple[Callable[[DuplicateGroups], None], ...]] = (
    attach_doubles,
    attach_wrapper_methods,
    attach_request_only_spans,
    attach_requests_in_one,
    join_split_streams,
    join_nested,
    join_one_response,
    join_unsurrounded,
    join_enclosed,
    join_unanswered,
    join_failures,
    join_late_streams,
)
"""The rules in the order of their certainty: a less certain rule sees only what the rules before it did not join."""
