"""Rollouts: find the rollouts of a tree, and assign every span to one rollout or to none.

Which span is the root (own span) of a rollout:
- in a trace with declared rollout ids (`art.rollout.id`): the roots of these ids, and no others;
- in other traces: the spans that match `rollout_spans`; if no such names are given, the root of a trace with LLM calls;
- for traces that share the value of an attribute (`rollout_attributes`): see `join_traces`.

Which rollout a span is assigned to: the rollout of its own declared id, else that of its parent, else that of its
trace. So a rollout keeps its spans although a trace is broken. Rollouts of one id are told apart by trace, attempt and
time. A provisional id (its process made it up, not knowing its caller) counts only if nothing else assigns the span.

Invariant: no rollout is chosen by chance. A span that may be of several rollouts is unassigned.
"""

import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Final, NamedTuple, TypeVar

import msgspec

from art_otel import attributes
from art_otel.conventions import ERROR_TYPE, Role, integer, role_of
from art_otel.spans import Span, SpanKey, SpanTree, Value
from art_otel.trajectories.surroundings import IntervalIndex

_K = TypeVar("_K")


class RolloutSpans(msgspec.Struct, kw_only=True, eq=False):
    """The spans of one rollout and their keys.

    `root` is the rollout's own span, None if it is missing; for joined traces a span made of their topmost spans
    (`joined_root`). `root_keys` are the keys of the own span, or of these topmost spans without calls.
    """

    rollout_id: str
    root: Span | None
    root_keys: Collection[SpanKey] = ()
    parent_rollout_id: str | None = None
    spans: list[Span] = msgspec.field(default_factory=list[Span])
    keys: list[SpanKey] = msgspec.field(default_factory=list[SpanKey])

    @property
    def attempt(self) -> int | None:
        """The number of the attempt, from the rollout's own span; None if unknown."""
        return None if self.root is None else integer(self.root.setting(attributes.ROLLOUT_ATTEMPT))

    @property
    def order(self) -> tuple[str, str, str]:
        """A sort key that does not depend on the order of delivery."""
        first = self.root or self.spans[0]
        return (self.rollout_id, first.trace_id, first.span_id)


class RolloutIndex(msgspec.Struct, kw_only=True, eq=False):
    """The rollouts of one id or of one trace, in the order in which they were added: rollouts with a root first."""

    tree: SpanTree
    all: list[RolloutSpans] = msgspec.field(default_factory=list[RolloutSpans])
    rootless: RolloutSpans | None = None
    _running: "IntervalIndex[RolloutSpans] | None" = None
    _by_trace: "dict[str | None, RolloutIndex] | None" = None
    _by_attempt: "dict[int | None, RolloutIndex] | None" = None

    def add(self, rollout: RolloutSpans) -> None:
        """Add a rollout. A rollout without a root is not indexed by trace or time."""
        self.all.append(rollout)
        if rollout.root is not None:
            self._running = self._by_trace = self._by_attempt = None  # the indexes are built again at the next search
        elif self.rootless is None:
            self.rootless = rollout

    def of_trace(self, trace_id: str) -> "RolloutIndex | None":
        """The rollouts whose own span is in the trace."""
        if self._by_trace is None:
            self._by_trace = self._by(lambda rollout: rollout.root and rollout.root.trace_id)
        return self._by_trace.get(trace_id)

    def of_attempt(self, number: int) -> "RolloutIndex | None":
        """The rollouts that are attempts of this number."""
        if self._by_attempt is None:
            self._by_attempt = self._by(lambda rollout: rollout.attempt)
        return self._by_attempt.get(number)

    def running_at(self, time_ns: int) -> RolloutSpans | None:
        """The rollout that was running at a time in nanoseconds; None if none or several were."""
        return self._intervals().only_at(time_ns)

    def count_candidates(self, starts: Iterable[int]) -> Iterator[tuple[RolloutSpans, int]]:
        """How many spans may be of each rollout, given the spans' starts in nanoseconds.

        A span may be of every rollout that ran at its start; if none ran, of every rollout.
        """
        outside, inside = list[int](), list[int]()
        for start in starts:
            (inside if self._intervals().count_at(start) else outside).append(start)
        inside.sort()
        for first, last, rollout in self._times():
            ended = len(inside) if last is None else bisect_right(inside, last)
            yield rollout, ended - bisect_left(inside, first) + len(outside)

    def _intervals(self) -> "IntervalIndex[RolloutSpans]":
        if self._running is None:
            self._running = IntervalIndex(self._times())
        return self._running

    def _by(self, trait: Callable[[RolloutSpans], _K]) -> "dict[_K, RolloutIndex]":
        indexes: dict[_K, RolloutIndex] = {}
        for rollout in self.all:
            if rollout.root is not None:
                indexes.setdefault(trait(rollout), RolloutIndex(tree=self.tree)).add(rollout)
        return indexes

    def _times(self) -> Iterator[tuple[int, int | None, RolloutSpans]]:
        for rollout in self.all:
            if rollout.root is not None:
                first, root = self.tree.starts[rollout.root.key], rollout.root
                yield first, None if root.end_ns is None else first + root.end_ns - root.start_ns, rollout


class RolloutAssignment(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """The rollouts of a tree, and the rollout of each span (None: no rollout).

    `by_id` has the rollouts of each rollout id. `unassigned` are spans that may be of several rollouts with one id;
    `candidates` counts for each rollout the unassigned calls and tools that may be of it.
    """

    rollouts: tuple[RolloutSpans, ...]
    of: Mapping[SpanKey, RolloutSpans | None]
    by_id: Mapping[str, RolloutIndex]
    unassigned: Collection[SpanKey] = ()
    candidates: Mapping[RolloutSpans, int] = {}

    def named(self, rollout_id: str | None) -> RolloutIndex | None:
        """The rollouts of an id; else those of the same UUID in another spelling, or of the trace with this id."""
        if rollout_id is None or rollout_id in self.by_id:
            return self.by_id.get(rollout_id or "")
        return self._by_plain_id.get(plain_id(rollout_id))

    @cached_property
    def _by_plain_id(self) -> Mapping[str, RolloutIndex]:
        by_trace: dict[str, RolloutIndex] = {}
        for rollout in self.rollouts:
            if rollout.root is not None and rollout.parent_rollout_id is None:
                index = RolloutIndex(tree=self.by_id[rollout.rollout_id].tree)
                by_trace.setdefault(rollout.root.trace_id, index).add(rollout)
        return by_trace | {plain_id(name): index for name, index in self.by_id.items()}


def assign_rollouts(
    tree: SpanTree,
    roles: Mapping[SpanKey, Role],
    rollout_spans: Sequence[str] = (),
    rollout_attributes: Sequence[str] = (),
) -> RolloutAssignment:
    """Assign the spans of a tree to rollouts.

    `rollout_spans` are globs of span names (`--rollout-span`), `rollout_attributes` names of attributes that the traces
    of one rollout share (`--rollout-attribute`).
    """
    assigner = _Assigner(tree, roles, rollout_attributes, has_globs=bool(rollout_spans))
    roots = [*_declared_roots(tree, roles, assigner.declared)]
    declaring = {trace_id for trace_id, _ in assigner.declared} | assigner.joined_traces
    if rollout_spans:
        keys = (key for key, span in tree.spans.items() if is_named_rollout(span, rollout_spans))
        roots += [(key, "-".join(key)) for key in keys if key[0] not in declaring]
    else:
        roots += _roots_of_calls(tree, roles, declaring)
    for key, rollout_id in roots:
        assigner.open(rollout_id, key[0], tree.spans[key])
    assigner.open_joined()
    if assigner.provisional:
        assigner.resolve_provisional()
    assigner.assign_spans()
    rollouts = sorted((one for one in assigner.rollouts if one.spans), key=lambda rollout: rollout.order)
    return RolloutAssignment(
        rollouts=tuple(rollouts),
        of=assigner.of,
        by_id=assigner.rollouts_by_id(),
        unassigned=assigner.unassigned.keys(),
        candidates=assigner.count_candidates(),
    )


def _declared_roots(
    tree: SpanTree, roles: Mapping[SpanKey, Role], declared: Mapping[SpanKey, str]
) -> Iterator[tuple[SpanKey, str]]:
    """For each declared id: its topmost spans that are marked as roots (one per attempt), else one plausible root."""
    topmost: dict[str, list[SpanKey]] = {}
    # A single declaring span is topmost anyway, so the walk over the whole tree is saved.
    enclosing_ids = tree.inherit(lambda key, above: declared.get(key) or above) if len(declared) > 1 else {}
    for key, rollout_id in declared.items():
        parent = tree.parents.get(key)
        if parent is None or enclosing_ids.get(parent) != rollout_id:
            topmost.setdefault(rollout_id, []).append(key)
    for rollout_id, keys in topmost.items():
        marked = [key for key in keys if is_marked_root(tree.spans[key])]
        unmarked = [
            key
            for key in keys
            if key not in tree.orphans
            # A step, tool or call is only a part of a rollout.
            and attributes.STEP_INDEX not in tree.spans[key].attributes
            and roles[key] in ("other", "agent")
        ]
        # A call that is the only topmost span of the id is its own rollout, as a call without an id is.
        is_lone_call = len(keys) == 1 and roles[keys[0]] == "inference" and keys[0] not in tree.orphans
        for key in marked or unmarked[:1] or (keys if is_lone_call else ()):
            yield key, rollout_id


def _roots_of_calls(
    tree: SpanTree, roles: Mapping[SpanKey, Role], declaring: Collection[str]
) -> Iterator[tuple[SpanKey, str]]:
    """The roots with calls at or below them. A trace's first root gets the trace id, others trace id and span id."""
    with_calls: set[SpanKey] = set()
    for key, role in roles.items():
        at: SpanKey | None = key if role == "inference" and key[0] not in declaring else None
        while at is not None and at not in with_calls:
            with_calls.add(at)
            at = tree.parents.get(at)
    named: set[str] = set()
    for key, span in tree.spans.items() if with_calls else ():
        if span.parent_span_id is None and key in with_calls:
            trace_id, span_id = key
            yield key, f"{trace_id}-{span_id}" if trace_id in named else trace_id
            named.add(trace_id)


class _Ambiguous(NamedTuple):
    """Why a span is unassigned: the rollouts that it may be of, and the start of the topmost unassigned span above."""

    rollouts: RolloutIndex
    start_ns: int


class _Assigner:
    """The rollouts of a tree, while its spans are assigned."""

    def __init__(
        self,
        tree: SpanTree,
        roles: Mapping[SpanKey, Role],
        rollout_attributes: Sequence[str] = (),
        *,
        has_globs: bool,
    ) -> None:
        self._tree = tree
        self._roles = roles
        self._has_globs = has_globs
        ids = {
            key: rollout_id
            for key, span in tree.spans.items()
            if attributes.ROLLOUT_ID in span.attributes and (rollout_id := declared_id(span)) is not None
        }
        ids, self._joined, self._aliases = join_traces(tree, roles, ids, rollout_attributes)
        provisional_ids = {rollout_id for key, rollout_id in ids.items() if is_provisional(tree.spans[key])}
        self.declared = {key: rollout_id for key, rollout_id in ids.items() if rollout_id not in provisional_ids}
        self.provisional = {key: rollout_id for key, rollout_id in ids.items() if rollout_id in provisional_ids}
        self.joined_traces = {trace_id for trace_id, _ in self._joined}
        self.rollouts: list[RolloutSpans] = []
        self.of: dict[SpanKey, RolloutSpans | None] = {}
        self.unassigned: dict[SpanKey, _Ambiguous] = {}
        self._resolved: dict[str, str] = {}  # provisional ids
        self._by_root: dict[SpanKey, RolloutSpans] = {}
        self._by_id: dict[str, RolloutIndex] = {}
        self._by_trace: dict[str, RolloutIndex] = {}

    def open_joined(self) -> None:
        """Begin a rollout for each value that joins traces, unless the value is the id of a declared rollout."""
        tops: dict[str, list[Span]] = {}
        for key, rollout_id in self._joined.items():
            parent = self._tree.parents.get(key)
            if parent is None or self._joined.get(parent) != rollout_id:
                tops.setdefault(rollout_id, []).append(self._tree.spans[key])
        for rollout_id, spans in tops.items():
            if rollout_id not in self._by_id:
                root = joined_root(sorted(spans, key=self._tree.order))
                rollout = self.open(rollout_id, root.trace_id, root)
                rollout.root_keys = frozenset(span.key for span in spans if self._roles[span.key] != "inference")

    def open(self, rollout_id: str, trace_id: str, root: Span | None = None) -> RolloutSpans:
        """Begin a rollout. `root` is None if the rollout's own span is missing."""
        rollout = RolloutSpans(rollout_id=rollout_id, root=root, root_keys=() if root is None else (root.key,))
        self.rollouts.append(rollout)
        for indexes, name in ((self._by_id, rollout_id), (self._by_trace, trace_id)):
            if name not in indexes:
                indexes[name] = RolloutIndex(tree=self._tree)
            indexes[name].add(rollout)
        if root is not None:
            self._by_root[root.key] = rollout
        return rollout

    def rollouts_by_id(self) -> Mapping[str, RolloutIndex]:
        """The rollouts by id, also by provisional ids and by the other names of joined traces."""
        other_names = {**self._resolved, **self._aliases}
        resolved = ((name, self._by_id.get(rollout_id)) for name, rollout_id in other_names.items())
        return {name: rollouts for name, rollouts in resolved if rollouts is not None} | self._by_id

    def resolve_provisional(self) -> None:
        """Find the rollout that each provisional id stands for: the rollout around its root, else a new rollout."""
        enclosing_ids: dict[SpanKey, str | None] = {}
        new_roots: list[tuple[str, Span]] = []
        for key in self._tree.topological_order():
            span, above = self._tree.spans[key], self._tree.parents.get(key)
            rooted, provisional = self._by_root.get(key), self.provisional.get(key, "")
            rollout_id = self.declared.get(key) if rooted is None else rooted.rollout_id
            if rollout_id is None and above is None and key in self._tree.orphans and key[0] in self._by_trace:
                running = self._by_trace[key[0]].running_at(self._tree.starts[key])
                rollout_id = None if running is None else running.rollout_id
            elif rollout_id is None and above is not None:
                rollout_id = enclosing_ids[above]
            if provisional and provisional not in self._resolved and is_provisional(span):
                self._resolved[provisional] = rollout_id or provisional
                if rollout_id is None:
                    new_roots.append((provisional, span))
            enclosing_ids[key] = rollout_id or self._resolved.get(provisional)
        for rollout_id, root in new_roots:
            self.open(rollout_id, root.trace_id, root)

    def assign_spans(self) -> None:
        """Put every span into its rollout, each after its parent."""
        spans, parents = self._tree.spans, self._tree.parents
        deciding = self._by_root.keys() | self.declared.keys() | self._joined.keys()
        for key in self._tree.topological_order():
            above = parents.get(key)
            rollout = outer = None if above is None else self.of[above]
            if outer is None or key in deciding:
                rollout = self._rollout_of(key, outer)
            self.of[key] = rollout
            if rollout is not None:
                rollout.spans.append(spans[key])
                rollout.keys.append(key)

    def _rollout_of(self, key: SpanKey, outer: RolloutSpans | None) -> RolloutSpans | None:
        """The rollout that a span itself names, else the rollout of its parent, else the rollout of its trace."""
        rooted = self._by_root.get(key)
        if rooted is not None:
            rooted.parent_rollout_id = None if outer is None else outer.rollout_id
            return rooted
        rollout_id = self.declared.get(key) or self._joined.get(key)
        if rollout_id is not None and (outer is None or outer.rollout_id != rollout_id):
            return self._by_declared_id(rollout_id, key, outer)
        if outer is not None:
            return outer
        provisional = self.provisional.get(key)
        if provisional is not None:
            return self._by_declared_id(self._resolved.get(provisional, provisional), key, outer)
        ambiguous = self._ambiguous_above(key)
        if ambiguous is not None:
            self.unassigned[key] = ambiguous
            return None
        is_lone_call = self._roles[key] == "inference" and self._tree.spans[key].parent_span_id is None
        return self._of_trace(key) if is_lone_call or key in self._tree.orphans else None

    def _by_declared_id(self, rollout_id: str, key: SpanKey, outer: RolloutSpans | None) -> RolloutSpans | None:
        """Choose a span's rollout among those with its id by trace, attempt and time; None if several remain."""
        rollouts = self._by_id.get(rollout_id)
        if rollouts is None:
            rollout = self.open(rollout_id, key[0])
            rollout.parent_rollout_id = None if outer is None else outer.rollout_id
            return rollout
        if len(rollouts.all) == 1:
            return rollouts.all[0]
        rollouts = rollouts.of_trace(key[0]) or rollouts
        attempt = integer(self._tree.spans[key].attributes.get(attributes.ROLLOUT_ATTEMPT))
        attempts = None if attempt is None else rollouts.of_attempt(attempt)
        rollouts = attempts or rollouts  # the root of the named attempt may be missing
        if len(rollouts.all) == 1:
            return rollouts.all[0]
        above = self._ambiguous_above(key)
        chosen = rollouts.running_at(self._tree.starts[key]) if above is None or attempts is not None else None
        if chosen is None:
            self.unassigned[key] = above or _Ambiguous(rollouts, self._tree.starts[key])
        return chosen

    def _ambiguous_above(self, key: SpanKey) -> "_Ambiguous | None":
        above = self._tree.parents.get(key)
        return None if above is None else self.unassigned.get(above)

    def count_candidates(self) -> Mapping[RolloutSpans, int]:
        """How many unassigned calls and tools may be of each rollout, if any."""
        if not self.unassigned:
            return {}
        starts: dict[int, tuple[RolloutIndex, list[int]]] = {}
        for key, (rollouts, start_ns) in self.unassigned.items():
            if self._roles[key] in ("inference", "tool"):
                starts.setdefault(id(rollouts), (rollouts, []))[1].append(start_ns)
        counts = Counter[RolloutSpans]()
        for rollouts, start_times in starts.values():
            counts.update(dict(rollouts.count_candidates(start_times)))
        return {rollout: count for rollout, count in counts.items() if count}

    def _of_trace(self, key: SpanKey) -> RolloutSpans | None:
        """The only rollout of the span's trace, or the only one that was running at the span's start."""
        trace_id, _ = key
        candidates = self._by_trace.get(trace_id)
        if candidates is not None and len(candidates.all) == 1:
            return candidates.all[0]
        running = None if candidates is None else candidates.running_at(self._tree.starts[key])
        if running is not None or self._has_globs or trace_id not in self._traces_with_calls:
            return running  # a trace without LLM calls is no rollout
        rootless = None if candidates is None else candidates.rootless
        return rootless or self.open(trace_id, trace_id)

    @cached_property
    def _traces_with_calls(self) -> set[str]:
        return {trace_id for (trace_id, _), role in self._roles.items() if role == "inference"}


# Rollouts of joined traces.


class JoinedTraces(NamedTuple):
    """The rollout ids of spans: those that count as declared, and those of joined traces.

    `aliases` are other names of joined rollouts: the ids of traces that are wholly in one, and ids that were made up.
    """

    declared: Mapping[SpanKey, str]
    joined: Mapping[SpanKey, str]
    aliases: Mapping[str, str] = {}


def join_traces(
    tree: SpanTree, roles: Mapping[SpanKey, Role], ids: Mapping[SpanKey, str], rollout_attributes: Sequence[str]
) -> JoinedTraces:
    """Join traces that share the value of an attribute to one rollout, whose id is this value.

    Proxies and chat applications write one trace per request, with a common attribute such as `session.id` or
    `gen_ai.conversation.id`. `rollout_attributes` names these attributes; a live app writes their value as
    `art.rollout.joined_id`. `ids` are the declared ids: a rollout that an app declared is never joined. Traces
    without a call are no rollout.

        trace 1   POST /chat                           in a: the only value of its trace
                  └─ chat gpt    session.id = a        in a
        trace 2   batch                                in none: its trace has several values
                  ├─ agent       session.id = a        in a
                  │  └─ chat gpt                       in a, as its nearest ancestor that has a value
                  ├─ agent       session.id = b        in b
                  └─ chat gpt                          in a rollout of its trace
    """
    values = {
        key: value for key, span in tree.spans.items() if (value := joined_id(span, rollout_attributes)) is not None
    }
    if not values:
        return JoinedTraces(ids, {})
    of_traces: dict[str, set[str]] = {}
    for (trace_id, _), value in values.items():
        of_traces.setdefault(trace_id, set()).add(value)
    declared = _meant(tree, ids, of_traces)

    def derive(key: SpanKey, above: _Place | None) -> _Place:
        if key in declared:
            return _Place(None, is_known=True)
        if key in values:
            return _Place(values[key], is_known=True)
        if above is not None and above.is_known:
            return above
        of_trace = of_traces.get(key[0], ())
        if len(of_trace) == 1:
            return _Place(next(iter(of_trace)), is_known=True)
        is_lone_call = bool(of_trace) and roles[key] == "inference"
        return _Place(key[0] if is_lone_call else None, is_known=is_lone_call)

    joined = {key: place.rollout_id for key, place in tree.inherit(derive).items() if place.rollout_id is not None}
    with_calls = {rollout_id for key, rollout_id in joined.items() if roles[key] == "inference"}
    joined = {key: rollout_id for key, rollout_id in joined.items() if rollout_id in with_calls}
    named: dict[str, set[str]] = {}
    for key, rollout_id in joined.items():
        for name in {key[0], ids.get(key, key[0])}:
            named.setdefault(name, set()).add(rollout_id)
    aliases = {name: next(iter(rollout_ids)) for name, rollout_ids in named.items() if len(rollout_ids) == 1}
    return JoinedTraces(declared, joined, aliases)


def _meant(tree: SpanTree, ids: Mapping[SpanKey, str], joined: Collection[str]) -> dict[SpanKey, str]:
    """The declared ids that an app chose itself, without ids that a process made up for spans of joined traces.

    An id is made up if its root is not named as rollouts are, or if its span also has `art.rollout.joined_id`. A root
    whose id no other span uses any more is left out, too.
    """
    marked = {ids[key] for key in ids if is_marked_root(tree.spans[key]) or is_provisional(tree.spans[key])}
    own = {key for key in ids if is_rollout_span(tree.spans[key])}
    made_up = marked - {ids[key] for key in own}
    kept = {
        key: one
        for key, one in ids.items()
        if key[0] not in joined or not (one in made_up or attributes.ROLLOUT_JOINED_ID in tree.spans[key].attributes)
    }
    given_up = {one for key, one in ids.items() if key not in kept}
    still_used = {one for key, one in kept.items() if key not in own}
    return {key: one for key, one in kept.items() if one not in given_up or one in still_used}


class _Place(NamedTuple):
    """The joined rollout of a span; None if it is declared or unknown. `is_known`: the spans below inherit it."""

    rollout_id: str | None
    is_known: bool


def joined_root(tops: Sequence[Span]) -> Span:
    """Make one root of the topmost spans of joined traces, given by start. Its status and error are the last one's."""
    first, last = tops[0], tops[-1]
    together: dict[str, Value] = {}
    for span in reversed(tops):
        together |= span.attributes
    together.pop(ERROR_TYPE, None)
    if ERROR_TYPE in last.attributes:
        together[ERROR_TYPE] = last.attributes[ERROR_TYPE]
    ends = [span.end_ns for span in tops]
    return msgspec.structs.replace(
        first,
        end_ns=None if None in ends else max(end for end in ends if end is not None),
        attributes=together,
        events=tuple(event for span in tops for event in span.events if span is last or event.name != "exception"),
        status=last.status,
        status_message=last.status_message,
    )


# What a span says of its rollout.


_ROOT_ATTRIBUTES: Final = frozenset({attributes.ROLLOUT_NAME, attributes.SPANS_STARTED, attributes.SPANS_ENDED})
"""Attributes that only a rollout's own span has."""


def declared_id(span: Span) -> str | None:
    """The rollout id that a span declares for itself; None for a reward span, whose id names its rewards' target."""
    value = span.attributes.get(attributes.ROLLOUT_ID)
    return None if value is None or value == "" or is_reward_span(span) else str(value)


def is_rollout(span: Span) -> bool:
    """Whether a span looks like a rollout's own span, judged without the rest of its tree."""
    if declared_id(span) is not None and (is_marked_root(span) or span.parent_span_id is None):
        return True
    return span.parent_span_id is None and not is_reward_span(span) and role_of(span) == "agent"


_UUID: Final = re.compile("[0-9a-f]{8}(-?[0-9a-f]{4}){3}-?[0-9a-f]{12}", re.IGNORECASE)


def plain_id(rollout_id: str) -> str:
    """The id; a UUID in lower case without dashes, because backends show trace ids with dashes."""
    return rollout_id.replace("-", "").lower() if _UUID.fullmatch(rollout_id) else rollout_id


def joined_id(span: Span, rollout_attributes: Sequence[str]) -> str | None:
    """The value that joins a span's trace with others to a rollout, from the first attribute that the span has.

    An attribute of the span's resource counts, too: it is a value for all spans of a process.
    """
    value = span.attributes.get(attributes.ROLLOUT_JOINED_ID)
    if isinstance(value, str) and value:
        return value
    for name in rollout_attributes:
        value = span.setting(name)
        if isinstance(value, str | int | float) and not isinstance(value, bool) and value != "":
            return str(value)
    return None


def is_provisional(span: Span) -> bool:
    """Whether a span is a root whose id its process made up, because it did not know the rollout of its caller."""
    value = span.attributes.get(attributes.ROLLOUT_PROVISIONAL)
    return value is not None and str(value).lower() == "true"  # some stores write booleans as text


def is_rollout_span(span: Span) -> bool:
    """Whether a span has the name of a rollout span, so that an app made it as a rollout on purpose."""
    return f"{span.name} ".startswith(attributes.ROLLOUT_SPAN_PREFIX)


def is_marked_root(span: Span) -> bool:
    """Whether a span with a rollout id is marked as the rollout's own span, whatever its ancestors are."""
    return is_rollout_span(span) or not _ROOT_ATTRIBUTES.isdisjoint(span.attributes)


def is_named_rollout(span: Span, rollout_spans: Sequence[str]) -> bool:
    """Whether the span's name matches one of the globs of `--rollout-span`."""
    return any(fnmatchcase(span.name, glob) for glob in rollout_spans)


def is_reward_span(span: Span) -> bool:
    """Whether the span was made only to carry a reward for another target."""
    return span.name.startswith(attributes.REWARD_SPAN_PREFIX)
