"""Alike: recordings of one request that neither nesting nor an id joins.

LangChain's instrumentors do not make their spans current, so that the client's span is beside them or further up.
Invariant: only recordings of different instrumentors are joined that ask and answer the same, of which at most one
knows the response's id, and of which one is around the other in time and below the other's parent. They are joined one
to one: n recordings by one instrumentor stay n requests.

LlamaIndex's instrumentor lets a stream's span end where its generator was made, before the request is sent. Such a span
is around one that ran when its first token came, of which it tells after its end.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

import msgspec

from art_otel.calls import Choice, InferenceCall
from art_otel.conventions import content_of, model_of, same_tool_calls
from art_otel.spans import Span, SpanKey, SpanTree
from art_otel.trajectories.surroundings import Surroundings


class _Recording(msgspec.Struct, kw_only=True, eq=False):
    """The spans of one request so far, the outermost first, and when the innermost of them ran.

    `heard` is the last moment that it tells of, where that is after its end. `joined` says that it is part of another
    by now.
    """

    spans: list[Span]
    scopes: frozenset[str]
    has_id: bool
    model: str | None
    choices: Sequence[Choice]
    start: int
    end: int
    heard: int | None
    joined: bool = False


class _Late(NamedTuple):
    """A recording that tells of a moment after its end. `order` tells apart those that tell of one moment."""

    heard: int
    order: int
    recording: _Recording


_Maker: TypeAlias = tuple[frozenset[str], bool]
"""Which instrumentors made a recording, and whether it knows the response's id."""


def join_alike(
    groups: list[list[Span]],
    parsed: Mapping[SpanKey, InferenceCall],
    tree: SpanTree,
    surroundings: Surroundings,
) -> list[list[Span]]:
    """The groups, of which those that are alike became one."""
    if len({span.scope.name for group in groups for span in group}) < 2:
        return groups
    if all(_has_id(group, parsed) for group in groups):
        return groups
    alike: dict[Hashable, list[_Recording]] = {}
    apart: list[list[Span]] = []
    for group in groups:
        content = next(filter(None, (content_of(parsed[span.key]) for span in group)), None)
        if content is None or group[0].end_ns is None:
            apart.append(group)
        else:
            alike.setdefault(content, []).append(_recording(group, parsed, tree))
    for found in alike.values():
        for same in _by_model(found):
            apart.extend(recording.spans for recording in _join(same, tree, surroundings))
    return apart


def _has_id(group: Iterable[Span], parsed: Mapping[SpanKey, InferenceCall]) -> bool:
    return any(parsed[span.key].response_id is not None for span in group)


def _recording(group: list[Span], parsed: Mapping[SpanKey, InferenceCall], tree: SpanTree) -> _Recording:
    outermost = group[0]
    start = tree.starts[outermost.key]
    later = [span.events[-1].time_ns for span in group if _tells_later(span)]
    return _Recording(
        spans=group,
        scopes=frozenset(span.scope.name for span in group),
        has_id=_has_id(group, parsed),
        model=next(filter(None, (model_of(parsed[span.key]) for span in group)), None),
        choices=next(filter(None, (parsed[span.key].choices for span in group)), ()),
        start=start,
        end=start + (outermost.end_ns or 0) - outermost.start_ns,
        heard=start + max(later) - outermost.start_ns if later else None,
    )


def _tells_later(span: Span) -> bool:
    """Whether something happened to the span after its end."""
    return bool(span.events) and span.end_ns is not None and span.events[-1].time_ns > span.end_ns


def _by_model(recordings: Sequence[_Recording]) -> Iterable[list[_Recording]]:
    """Those of one model; who knows none belongs to the others where they have but one."""
    models = {recording.model for recording in recordings if recording.model is not None}
    only = models.pop() if len(models) == 1 else None
    found: dict[str | None, list[_Recording]] = {}
    for recording in recordings:
        found.setdefault(recording.model or only, []).append(recording)
    return found.values()


def _join(recordings: list[_Recording], tree: SpanTree, surroundings: Surroundings) -> Iterator[_Recording]:
    """Give each to the shortest around it, by their start: below one parent this joins as many as can be."""
    if len(recordings) == 1:
        return iter(recordings)
    around = _Around({tree.parents.get(recording.spans[0].key) for recording in recordings}, surroundings)
    found: list[_Recording] = []
    for recording in sorted(recordings, key=lambda one: (one.start, -one.end, one.spans[0].key)):
        outer = around.take(recording, tree.parents.get(recording.spans[0].key))
        united = recording if outer is None else _united(outer, recording)
        around.add(united)
        found.append(united)
    _join_late([recording for recording in found if not recording.joined], tree, surroundings)
    return (recording for recording in found if not recording.joined)


def _join_late(recordings: list[_Recording], tree: SpanTree, surroundings: Surroundings) -> None:
    """Give each to one that tells of a moment when it ran: in the order of both, which joins as many as can be."""
    late: dict[_Maker, list[_Late]] = {}
    for order, outer in enumerate(sorted((one for one in recordings if one.heard is not None), key=_heard)):
        late.setdefault(_maker(outer), []).append(_Late(outer.heard or 0, order, outer))
    for inner in sorted((one for one in recordings if one.heard is None), key=_end) if late else ():
        place = tree.parents.get(inner.spans[0].key)
        fitting = [listed for maker, listed in late.items() if _may_be_around(maker, inner)]
        found = [first for listed in fitting for first in _first_late(listed, inner, place, surroundings)]
        if found:
            outer = min(found).recording
            listed = late[_maker(outer)]
            del listed[bisect_left(listed, min(found))]
            outer.joined = True
            inner.spans = [*outer.spans, *inner.spans]


def _first_late(
    listed: Sequence[_Late], inner: _Recording, place: SpanKey | None, surroundings: Surroundings
) -> Sequence[_Late]:
    """The first of one maker's that can be of the inner one's request, if there is one."""
    first, last = bisect_left(listed, inner.start, key=_moment), bisect_right(listed, inner.end, key=_moment)
    for at in range(first, last):
        outer = listed[at].recording
        below = place is None or place in surroundings.inside(outer.spans[0].key)
        if below and same_tool_calls(outer.choices, inner.choices):
            return listed[at : at + 1]
    return ()


def _maker(recording: _Recording) -> _Maker:
    return recording.scopes, recording.has_id


def _may_be_around(maker: _Maker, inner: _Recording) -> bool:
    """Whether other instrumentors made it, and at most one of both knows the response's id."""
    scopes, has_id = maker
    return not (has_id and inner.has_id) and scopes.isdisjoint(inner.scopes)


def _united(outer: _Recording, inner: _Recording) -> _Recording:
    return msgspec.structs.replace(
        inner,
        spans=[*outer.spans, *inner.spans],
        scopes=outer.scopes | inner.scopes,
        has_id=outer.has_id or inner.has_id,
    )


class _Around:
    """Recordings that have started, by who made them and by the spans that they are below, each list by their end.

    `places` are the spans that are asked for; None is asked for by what has no parent.
    """

    def __init__(self, places: Collection[SpanKey | None], surroundings: Surroundings) -> None:
        self._places = places
        self._surroundings = surroundings
        self._lists: dict[_Maker, dict[SpanKey | None, list[_Recording]]] = {}

    def add(self, recording: _Recording) -> None:
        lists = self._lists.setdefault(_maker(recording), {})
        insort(lists.setdefault(None, []), recording, key=_end)
        for above in self._surroundings.inside(recording.spans[0].key):
            if above in self._places:
                insort(lists.setdefault(above, []), recording, key=_end)

    def take(self, inner: _Recording, place: SpanKey | None) -> _Recording | None:
        """The shortest around the inner one that can be of its request."""
        for maker, lists in self._lists.items():
            if not _may_be_around(maker, inner):
                continue
            listed = lists.get(place, [])
            first = bisect_left(listed, inner.end, key=_end)
            while first < len(listed):
                outer = listed.pop(first)
                if not outer.joined:
                    outer.joined = True
                    return outer
        return None


def _heard(recording: _Recording) -> int:
    return recording.heard or 0


def _moment(late: _Late) -> int:
    return late.heard


def _end(recording: _Recording) -> int:
    return recording.end
