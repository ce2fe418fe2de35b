"""Alike: recordings of one request that neither nesting nor an id joins.

LangChain's instrumentors do not make their spans current, so that the client's span is beside them or further up.
Invariant: only recordings of different instrumentors are joined that ask and answer the same, of which at most one
knows the response's id, and of which one is around the other in time and below the other's parent. They are joined one
to one: n recordings by one instrumentor stay n requests.

LlamaIndex's instrumentor lets a stream's span end where its generator was made, before the request is sent. Such a span
is around one that ran when its first token came, of which it tells after its end.
"""

import heapq
from bisect import bisect_left, insort
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final, NamedTuple, TypeAlias

import msgspec

from art_otel.calls import Choice, InferenceCall
from art_otel.conventions import content_of, model_of, same_tool_calls
from art_otel.spans import Span, SpanKey, SpanTree
from art_otel.trajectories.calls.ancestry import Ancestry

MAX_MAKERS: Final = 32
"""The most kinds of recordings of one content that are joined, by the instrumentors that made them, which are a few."""

_MAX_COMPARED: Final = 256
"""The most recordings that a request is compared with which told of a moment when it ran."""


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


_Maker: TypeAlias = tuple[frozenset[str], bool]
"""Which instrumentors made a recording, and whether it knows the response's id."""


def join_alike(
    groups: list[list[Span]],
    parsed: Mapping[SpanKey, InferenceCall],
    tree: SpanTree,
    ancestry: Ancestry,
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
            apart.extend(recording.spans for recording in _join(same, ancestry))
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


def _join(recordings: list[_Recording], ancestry: Ancestry) -> Iterator[_Recording]:
    """Give each to the shortest around it, by their start: below one parent this joins as many as can be."""
    if len(recordings) == 1:
        return iter(recordings)
    around = _Placed(recordings, ancestry)
    found: list[_Recording] = []
    for recording in sorted(recordings, key=lambda one: (one.start, -one.end, one.spans[0].key)):
        outer = next(around.beside(recording, recording.end), None)
        united = recording if outer is None else _united(around.take(outer), recording)
        around.add(united.end, united)
        found.append(united)
    _join_late([recording for recording in found if not recording.joined], ancestry)
    return (recording for recording in found if not recording.joined)


def _join_late(recordings: Sequence[_Recording], ancestry: Ancestry) -> None:
    """Give each to one that tells of a moment when it ran: in the order of both, which joins as many as can be."""
    told = sorted([(one.heard, order) for order, one in enumerate(recordings) if one.heard is not None])
    if not told:
        return
    late = _Placed(recordings, ancestry)
    for heard, order in told:
        late.add(heard, recordings[order])
    for inner in sorted((one for one in recordings if one.heard is None), key=_end):
        for outer in islice(late.beside(inner, inner.start), _MAX_COMPARED):
            if outer.moment > inner.end:
                break
            if same_tool_calls(outer.recording.choices, inner.choices):
                inner.spans = [*late.take(outer).spans, *inner.spans]
                break


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


class _Timed(NamedTuple):
    """A recording at a moment. `order` tells apart those of one moment."""

    moment: int
    order: int
    recording: _Recording


class _Placed:
    """Recordings by who made them and where they are, in the order of a moment of each.

    Those below one span are next to each other in the order of places. There is a list for every 1, 2, 4, … places, so
    that a recording is in few lists, and few lists are all that is below a span (a segment tree).
    """

    def __init__(self, recordings: Iterable[_Recording], ancestry: Ancestry) -> None:
        self._surroundings = ancestry
        self._places = sorted({self._beside(recording).start for recording in recordings})
        self._lists: dict[_Maker, dict[int, list[_Timed]]] = {}
        self._added = 0

    def add(self, moment: int, recording: _Recording) -> None:
        """Add one. It is not found where those of `MAX_MAKERS` others are here."""
        maker = _maker(recording)
        if maker in self._lists or len(self._lists) < MAX_MAKERS:
            lists = self._lists.setdefault(maker, {})
            for node in self._nodes_of(recording):
                insort(lists.setdefault(node, []), _Timed(moment, self._added, recording))
            self._added += 1

    def beside(self, inner: _Recording, since: int) -> Iterator[_Timed]:
        """Those that can be of the inner one's request and are below its parent, from a moment on."""
        found: list[Iterable[_Timed]] = []
        nodes = self._nodes_beside(inner)
        for maker, lists in self._lists.items():
            if _may_be_around(maker, inner):
                found += [_since(lists[node], since) for node in nodes if node in lists]
        return heapq.merge(*found)

    def take(self, timed: _Timed) -> _Recording:
        """The recording, which becomes part of another and is no longer here."""
        recording = timed.recording
        lists = self._lists[_maker(recording)]
        for node in self._nodes_of(recording):
            del lists[node][bisect_left(lists[node], timed)]
        recording.joined = True
        return recording

    def _beside(self, recording: _Recording) -> range:
        return self._surroundings.beside(recording.spans[0].key)

    def _nodes_of(self, recording: _Recording) -> Iterator[int]:
        node = len(self._places) + bisect_left(self._places, self._beside(recording).start)
        while node:
            yield node
            node //= 2

    def _nodes_beside(self, inner: _Recording) -> Sequence[int]:
        below = self._beside(inner)
        first, last = (len(self._places) + bisect_left(self._places, end) for end in (below.start, below.stop))
        nodes: list[int] = []
        while first < last:
            if first % 2:
                nodes.append(first)
            if last % 2:
                nodes.append(last - 1)
            first, last = (first + 1) // 2, last // 2
        return nodes


def _maker(recording: _Recording) -> _Maker:
    return recording.scopes, recording.has_id


def _since(listed: Sequence[_Timed], moment: int) -> Iterator[_Timed]:
    return map(listed.__getitem__, range(bisect_left(listed, moment, key=_moment), len(listed)))


def _moment(timed: _Timed) -> int:
    return timed.moment


def _end(recording: _Recording) -> int:
    return recording.end
