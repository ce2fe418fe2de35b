"""RolloutSpans: which spans belong to which rollout.

Invariant: every span of a tree is in exactly one rollout or in none, and each says which rollout it is nested in.
A span belongs to the rollout of its nearest ancestor that has one; `art.rollout.id` on the span itself goes before
that, so a rollout survives a broken trace. Where nobody set an id, the spans that match `rollout_spans` are the
rollouts, else the root of a trace that has LLM calls below it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from art_otel import attributes
from art_otel.conventions import Role
from art_otel.spans import Span, SpanKey, SpanTree


@dataclass(kw_only=True, slots=True, eq=False)
class RolloutSpans:
    """The spans of one rollout. `root` is its own span, None when that is missing."""

    rollout_id: str
    root: Span | None
    parent_rollout_id: str | None = None
    spans: list[Span] = field(default_factory=list[Span])

    @property
    def order(self) -> tuple[str, str, str]:
        """A sort key that no delivery changes."""
        first = self.root or self.spans[0]
        return (self.rollout_id, first.trace_id, first.span_id)


@dataclass(frozen=True, kw_only=True, slots=True)
class Division:
    """The rollouts of a tree, and for each span the one it belongs to (None: none)."""

    rollouts: tuple[RolloutSpans, ...]
    of: Mapping[SpanKey, RolloutSpans | None]


def find_rollouts(tree: SpanTree, roles: Mapping[SpanKey, Role], rollout_spans: Sequence[str] = ()) -> Division:
    """Divide the spans of a tree into rollouts. `rollout_spans` are globs of span names (`--rollout-span`)."""
    finder = _Finder(tree, roles, rollout_spans)
    for root, rollout_id in list(finder.roots()):
        finder.open(rollout_id, root.trace_id, root)
    for span in tree.spans.values():
        finder.place(span)
    finder.place_linked()
    found = (rollout for rollout in finder.rollouts if rollout.spans)
    return Division(rollouts=tuple(sorted(found, key=lambda rollout: rollout.order)), of=finder.placed)


def declared_id(span: Span) -> str | None:
    """The rollout id that a span carries."""
    value = span.attributes.get(attributes.ROLLOUT_ID)
    return None if value is None or value == "" else str(value)


def is_reward_span(span: Span) -> bool:
    """Whether the span was made to give a reward to what it links to."""
    return span.name.startswith(attributes.REWARD_SPAN_PREFIX)


class _Finder:
    def __init__(self, tree: SpanTree, roles: Mapping[SpanKey, Role], rollout_spans: Sequence[str]) -> None:
        self.tree = tree
        self.roles = roles
        self.traces_with_calls = {trace_id for (trace_id, _), role in roles.items() if role == "inference"}
        self.globs = rollout_spans
        self.rollouts: list[RolloutSpans] = []
        self.by_root: dict[SpanKey, RolloutSpans] = {}
        self.by_id: dict[str, list[RolloutSpans]] = {}
        self.by_trace: dict[str, list[RolloutSpans]] = {}
        self.placed: dict[SpanKey, RolloutSpans | None] = {}

    def roots(self) -> Iterable[tuple[Span, str]]:
        """Rollout spans with their ids: declared ones, else matching ones, else roots of traces with calls."""
        declared = dict(self._declared_roots())
        yield from ((self.tree.spans[key], rollout_id) for key, rollout_id in declared.items())
        taken = {span.trace_id for span in self.tree.spans.values() if declared_id(span) is not None}
        matches = self._matches if self.globs else self._is_root_of_calls()
        named: set[str] = set()
        for span in self.tree.spans.values():
            if span.trace_id in taken or not matches(span):
                continue
            plain = span.trace_id not in named and not self.globs
            named.add(span.trace_id)
            yield span, span.trace_id if plain else f"{span.trace_id}-{span.span_id}"

    def _declared_roots(self) -> Iterable[tuple[SpanKey, str]]:
        tops: dict[str, list[Span]] = {}
        for span in self.tree.spans.values():
            rollout_id = declared_id(span)
            if rollout_id is not None and self._declared_above(span) != rollout_id:
                tops.setdefault(rollout_id, []).append(span)
        for rollout_id, spans in tops.items():
            marked = [span for span in spans if _is_marked(span)]
            unmarked = [span for span in spans if self._may_be_root(span)][:1]
            yield from ((span.key, rollout_id) for span in marked or unmarked)

    def _declared_above(self, span: Span) -> str | None:
        return next((found for above in self.tree.ancestors(span) if (found := declared_id(above)) is not None), None)

    def _may_be_root(self, span: Span) -> bool:
        """An unmarked span with the id is the rollout's own where the id begins, unless it is a part of a rollout."""
        part_of_one = attributes.STEP_INDEX in span.attributes or is_reward_span(span)
        return span.key not in self.tree.orphans and not part_of_one and self.roles[span.key] in {"other", "agent"}

    def _matches(self, span: Span) -> bool:
        return any(fnmatchcase(span.name, glob) for glob in self.globs)

    def _is_root_of_calls(self) -> Callable[[Span], bool]:
        with_calls: set[SpanKey] = set()
        for span in self.tree.spans.values():
            if self.roles[span.key] == "inference":
                with_calls.add(span.key)
                for above in self.tree.ancestors(span):
                    if above.key in with_calls:
                        break
                    with_calls.add(above.key)
        return lambda span: span.parent_span_id is None and span.key in with_calls

    def open(self, rollout_id: str, trace_id: str, root: Span | None = None) -> RolloutSpans:
        """Begin a rollout; without a root it is one of which only other spans were found."""
        rollout = RolloutSpans(rollout_id=rollout_id, root=root)
        self.rollouts.append(rollout)
        self.by_id.setdefault(rollout_id, []).append(rollout)
        self.by_trace.setdefault(trace_id, []).append(rollout)
        if root is not None:
            self.by_root[root.key] = rollout
        return rollout

    def place(self, span: Span) -> RolloutSpans | None:
        """Put the span, after everything above it, into its rollout."""
        path: list[Span] = []
        at: Span | None = span
        while at is not None and at.key not in self.placed:
            path.append(at)
            at = self.tree.parent(at)
        for step in reversed(path):
            above = self.tree.parent(step)
            outer = None if above is None else self.placed[above.key]
            rollout = self._rollout_of(step, outer)
            self.placed[step.key] = rollout
            if rollout is not None:
                rollout.spans.append(step)
        return self.placed[span.key]

    def _rollout_of(self, span: Span, outer: RolloutSpans | None) -> RolloutSpans | None:
        own = self.by_root.get(span.key)
        if own is not None:
            own.parent_rollout_id = None if outer is None else outer.rollout_id
            return own
        rollout_id = declared_id(span)
        if rollout_id is not None and (outer is None or outer.rollout_id != rollout_id):
            return self._by_declared_id(rollout_id, span, outer)
        if outer is not None:
            return outer
        lone_call = span.parent_span_id is None and self.roles[span.key] == "inference"
        return self._of_orphan(span) if lone_call or span.key in self.tree.orphans else None

    def _by_declared_id(self, rollout_id: str, span: Span, outer: RolloutSpans | None) -> RolloutSpans:
        attempts = self.by_id.get(rollout_id)
        if attempts:
            return self._around(attempts, span) or attempts[-1]
        rollout = self.open(rollout_id, span.trace_id)
        rollout.parent_rollout_id = None if outer is None else outer.rollout_id
        return rollout

    def _of_orphan(self, span: Span) -> RolloutSpans | None:
        """An orphan belongs to its trace's rollout; of several to the one that was running, if just one was."""
        known = self.by_trace.get(span.trace_id, [])
        if len(known) == 1:
            return known[0]
        around = self._around(known, span)
        if around is not None or self.globs or span.trace_id not in self.traces_with_calls:
            return around
        lost = [rollout for rollout in known if rollout.root is None]
        return lost[0] if lost else self.open(span.trace_id, span.trace_id)

    def place_linked(self) -> None:
        """Put a span that is in no rollout and links to one (a reward given from elsewhere) into that one."""
        for key, span in self.tree.spans.items():
            linked = (self.placed.get((link.trace_id, link.span_id)) for link in span.links)
            rollout = next((found for found in linked if found is not None), None)
            if self.placed[key] is None and rollout is not None and is_reward_span(span):
                self.placed[key] = rollout
                rollout.spans.append(span)

    def _around(self, rollouts: Sequence[RolloutSpans] | None, span: Span) -> RolloutSpans | None:
        """The rollout that was running when the span started, if just one was."""
        start = self.tree.starts[span.key]
        running = [rollout for rollout in rollouts or () if rollout.root and self._runs(rollout.root, start)]
        return running[0] if len(running) == 1 else None

    def _runs(self, root: Span, moment: int) -> bool:
        begin = self.tree.starts[root.key]
        return begin <= moment and (root.end_ns is None or moment <= begin + root.end_ns - root.start_ns)


def _is_marked(span: Span) -> bool:
    marks = (attributes.ROLLOUT_NAME, attributes.SPANS_STARTED, attributes.SPANS_ENDED)
    named = f"{span.name} ".startswith(attributes.ROLLOUT_SPAN_PREFIX)
    return named or any(mark in span.attributes for mark in marks)
