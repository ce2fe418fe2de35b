"""Overlapping recordings: rules for recordings that overlap in time, wherever they are in the tree.

Some instrumentors do not make their spans current (LangChain), so the client's span lies beside them or further up.

Invariant: each rule first joins recordings of equal contents and then those of which a recorder lost something. A
recording is compared with few others that contradict it, so that no rule is quadratic where a server repeats ids or
every call says the same.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Hashable, Iterable, Iterator
from functools import partial
from heapq import merge
from itertools import islice, takewhile
from typing import Final, NamedTuple, TypeAlias

from art_otel.calls import InferenceCall
from art_otel.conventions import ART_OTEL, request_key
from art_otel.spans import SpanKey
from art_otel.trajectories.duplicate_groups import (
    CallRecording,
    DuplicateGroup,
    DuplicateGroups,
    content_key,
    contradicts,
    grouped,
    has_same_id,
    have_same_answer,
    prompts_differ,
    usage_differs,
)

MAX_COMPARED: Final = 32
"""Recordings that contradict a recording before no other is compared with it: servers that repeat no ids give few."""

_MAX_DEPTH: Final = 64
"""How far above a framework's span the parent of the client's span may be."""


def attach_doubles(groups: DuplicateGroups) -> None:
    """Attach a recording that its own instrumentor made twice to the outer one of the two, else to the first.

    An instrumentor that was set up twice, or exports through two providers, gives both spans the response's id, one
    around the other in time or in the tree; LiteLLM writes the same span twice, with the same times. Equal calls
    without an id may be samples of one batch, and stay.
    """
    around: set[SpanKey] = set()
    for inner in groups.recordings:
        outer = groups.enclosing(inner)
        if outer is not None:
            around.add(outer.span.key)
        if outer is None or outer.recorder != inner.recorder or not has_same_id(outer.call, inner.call):
            continue
        is_double = have_same_answer(outer.call, inner.call) and not contradicts(outer.call, inner.call)
        if is_double and _are_at_once(outer, inner):
            groups.attach(inner, groups.of(outer))
    for same in grouped(groups.recordings, _double_key):
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
    """Join recordings with one response id that ran at the same time: servers repeat ids."""
    for of_one_id in grouped(groups, lambda group: group.call.response_id):
        for same in _surest_first(groups, of_one_id, groups.content_of):
            running = _Running(groups, _last_end)
            for inner in same:
                _join_first(groups, running, inner, running.at_once(inner))


def join_enclosed(groups: DuplicateGroups) -> None:
    """Join a recording with the shortest one that encloses it in time, below its parent, and has the same content.

    At most one of the two has the response's id. Each outer takes one inner, so n equal requests stay n calls.
    """
    if all(group.call.response_id is not None for group in groups):
        return
    for of_one_content in grouped(groups, groups.content_of):
        for same in _surest_first(groups, of_one_content, _tool_call_ids):
            running = _Running(groups, _end, below_parent=True)
            for inner in same:
                _join_first(groups, running, inner, running.enclosing(inner))


def join_failures(groups: DuplicateGroups) -> None:
    """Join a failed recording with the shortest failed one that encloses it in time, below its parent.

    One of the two has no content. Anthropic's client traces itself, by default without content, beside the span of an
    instrumentor, and a request that the server refused has no response id. Each outer takes one inner.
    """
    failed = [
        one for one in groups if one.call.failed and one.call.response_id is None and one.outermost.end is not None
    ]
    running = _Running(groups, _end, below_parent=True)
    for inner in sorted(failed, key=_by_start):
        around = islice(running.enclosing(inner), MAX_COMPARED)
        _join_first(
            groups, running, inner, (one for one in around if _has_no_content(inner) or _has_no_content(one.group))
        )


def join_unanswered(groups: DuplicateGroups) -> None:
    """Join a recording without an answer with the shortest one that encloses it in time, below its parent.

    Both asked the same, and the outer one was answered. Anthropic's client writes no answer of a stream, and LangChain
    beside it no id. Each outer takes one inner, so n equal requests stay n calls.
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
    """Whether a request completed of which the prompt alone is known."""
    call = group.call
    return bool(call.input_messages) and call.choices is None and not call.failed and group.outermost.end is not None


def _has_no_content(group: DuplicateGroup) -> bool:
    return not group.call.input_messages and not group.call.choices


def _surest_first(
    groups: DuplicateGroups, same: list[DuplicateGroup], key_of: Callable[[DuplicateGroup], Hashable | None]
) -> Iterator[list[DuplicateGroup]]:
    """The groups that also share a second key, one list per key, then all that no rule has joined; by start."""
    parts = grouped(same, key_of)
    if len(parts) == 1 and len(parts[0]) == len(same):
        parts = []
    for part in (*parts, same):
        yield sorted((one for one in part if groups.of(one.outermost) is one), key=_by_start)


def _join_first(
    groups: DuplicateGroups, running: "_Running", inner: DuplicateGroup, candidates: Iterator["_Ending"]
) -> None:
    """Join a group with the first candidate that may be of the same call, which from then on has the inner's end."""
    for one in islice(candidates, MAX_COMPARED):
        recorders = frozenset(one.group.recorders)
        if groups.join(one.group, inner):
            running.remove(one, recorders)
            running.add(one.group, inner)
            return
    running.add(inner, inner)


class _Ending(NamedTuple):
    """A group and when it ends. `order` tells apart those that end at once."""

    end: int
    order: int
    group: DuplicateGroup
    has_id: bool


_Class: TypeAlias = tuple[frozenset[tuple[str, str]], bool]


class _Running:
    """DuplicateGroups by who recorded them and whether they have a response id, and of these by their end.

    Most may not be joined because of their recorders. With `below_parent` those are found that lie below a group's
    parent.
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
        yield from merge(*(_from(group, bisect_left(group, end)) for group in self._candidates(inner)))

    def at_once(self, inner: DuplicateGroup) -> Iterator[_Ending]:
        """The groups that run when the inner one starts: those that end no earlier first, then the last to end."""
        start, end = inner.outermost.start, (self._end_of(inner),)
        for one in islice(self.enclosing(inner), MAX_COMPARED):
            if one.end > start or one.group.outermost.start == start:
                yield one
        candidates = [_back_from(group, bisect_left(group, end)) for group in self._candidates(inner)]
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


def _from(group: list[_Ending], start: int) -> Iterator[_Ending]:
    return (group[at] for at in range(start, len(group)))  # a slice would copy all of them


def _back_from(group: list[_Ending], end: int) -> Iterator[_Ending]:
    return (group[at] for at in range(end - 1, -1, -1))


class LatestOpen:
    """Recordings that wait for their counterpart, by what they asked; the latest that fits is taken."""

    def __init__(self) -> None:
        self._open: dict[Hashable, dict[SpanKey, CallRecording]] = {}

    def add(self, one: CallRecording, kind: Hashable) -> None:
        """Add a recording, which began no earlier than those before it."""
        for key in _asked_keys(one, kind):
            self._open.setdefault(key, {})[one.span.key] = one

    def take(self, like: CallRecording, kind: Hashable, fits: Callable[[CallRecording], bool]) -> CallRecording | None:
        """Take the latest that fits, first of those with the same prompt. None where none does."""
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
        """Remove a recording that waits no more."""
        for key in _asked_keys(one, kind):
            self._open[key].pop(one.span.key, None)


def _asked_keys(one: CallRecording, kind: Hashable) -> tuple[Hashable, Hashable]:
    return (kind, request_key(one.call)), kind


def join_unsurrounded(groups: DuplicateGroups) -> None:
    """Join a recording of art-otel's with the last one that began before it, below its parent, and asked the same.

    art-otel records a request that no span of a call surrounds. OpenLLMetry makes one afterwards that begins before the
    request, and knows neither id nor answer where the request failed or its stream was left.
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
        if model is not None:
            running.take(inner.outermost, model, partial(_join_asked, groups, inner))


def _join_asked(groups: DuplicateGroups, inner: DuplicateGroup, outer: CallRecording) -> bool:
    """Join a group with the recording around it if that has no other prompt and lies below its parent."""
    around = groups.of(outer)
    return not prompts_differ(around.call, inner.call) and _join_beside(groups, around, inner)


def join_late_streams(groups: DuplicateGroups) -> None:
    """Join a span that has an event after its end with the call that ran at the time of that event.

    LlamaIndex ends a stream's span where the generator is made, before the request is sent; the event is at the first
    token.
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


def _tool_call_ids(group: DuplicateGroup) -> Hashable:
    """The ids of the tool calls that were sampled."""
    return tuple(call.id for choice in group.call.choices or () for call in choice.message.tool_calls)


def _double_key(one: CallRecording) -> Hashable | None:
    """What two recordings of one instrumentor and one response have in common; None without an id or content."""
    response_id = one.call.response_id
    content = None if response_id is None else content_key(one.call)
    return None if content is None else (one.recorder, response_id, content, _tokens(one.call))


def _tokens(call: InferenceCall) -> Hashable:
    return call.prompt_token_ids, tuple((choice.token_ids, choice.logprobs) for choice in call.choices or ())


def _are_at_once(outer: CallRecording, inner: CallRecording) -> bool:
    """Whether the inner recording began before the outer one ended, or both began at once."""
    return outer.end is None or inner.start < outer.end or inner.start == outer.start


def _by_start(group: DuplicateGroup) -> tuple[int, int, SpanKey]:
    return group.outermost.start, -_end(group), group.outermost.span.key


def _end(group: DuplicateGroup) -> int:
    """When the outermost recording ended; its start where it has not."""
    return group.outermost.start if group.outermost.end is None else group.outermost.end


def _last_end(group: DuplicateGroup) -> int:
    """When the last recording ended."""
    return max((one.end for one in group.recordings if one.end is not None), default=_end(group))


def _late_event(group: DuplicateGroup) -> int | None:
    """The time of the last event after the end of its span; None without such an event."""
    return max(filter(None, map(_last_event_after_end, group.recordings)), default=None)


def _last_event_after_end(recording: CallRecording) -> int | None:
    span = recording.span
    if not span.events or span.end_ns is None or span.events[-1].time_ns <= span.end_ns:
        return None
    return recording.start + span.events[-1].time_ns - span.start_ns
