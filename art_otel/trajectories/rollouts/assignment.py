"""Rollouts: which spans belong to which rollout.

Invariant: every span of a tree is in exactly one rollout or in none, and each says which rollout it is nested in.
A span belongs to the rollout of its nearest ancestor that has one; `art.rollout.id` on the span itself goes before
that, so a rollout survives a broken trace. Where nobody set an id, the spans that match `rollout_spans` are the
rollouts, else the root of a trace that has LLM calls below it. An id that was guessed counts only for spans of which
nothing else tells where they belong.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cached_property
from itertools import islice
from typing import Final

import msgspec

from art_otel import attributes
from art_otel.conventions import Role, integer
from art_otel.spans import Span, SpanKey, SpanTree
from art_otel.trajectories.rollouts.index import RolloutIndex, RolloutSpans

_MARKS: Final = frozenset({attributes.ROLLOUT_NAME, attributes.SPANS_STARTED, attributes.SPANS_ENDED})
"""Attributes of a rollout's own span."""


class RolloutAssignment(msgspec.Struct, frozen=True, kw_only=True):
    """The rollouts of a tree, and for each span the one it belongs to (None: none).

    `by_id` finds the runs of a rollout id.
    """

    rollouts: tuple[RolloutSpans, ...]
    of: Mapping[SpanKey, RolloutSpans | None]
    by_id: Mapping[str, RolloutIndex]


def find_rollouts(
    tree: SpanTree, roles: Mapping[SpanKey, Role], rollout_spans: Sequence[str] = ()
) -> RolloutAssignment:
    """Divide the spans of a tree into rollouts. `rollout_spans` are globs of span names (`--rollout-span`)."""
    finder = _Finder(tree, roles, rollout_spans)
    for root, rollout_id in list(finder.roots()):
        finder.open(rollout_id, root.trace_id, root)
    if finder.guessed:
        finder.settle_guesses()
    finder.place_all()
    rollouts = sorted((rollout for rollout in finder.rollouts if rollout.spans), key=lambda rollout: rollout.order)
    by_id = finder.by_id
    resolved = {guess: by_id[rollout_id] for guess, rollout_id in finder.meant.items() if rollout_id in by_id}
    return RolloutAssignment(rollouts=tuple(rollouts), of=finder.placed, by_id=by_id | resolved)


def declared_id(span: Span) -> str | None:
    """The rollout id by which a span says where it belongs; a reward span says with it whom its rewards are for."""
    value = span.attributes.get(attributes.ROLLOUT_ID)
    return None if value is None or value == "" or is_reward_span(span) else str(value)


def is_named_rollout(span: Span, rollout_spans: Sequence[str]) -> bool:
    """Whether the span's name matches one of the globs that name rollouts."""
    return any(fnmatchcase(span.name, glob) for glob in rollout_spans)


def is_reward_span(span: Span) -> bool:
    """Whether the span was made to give a reward to what it links to."""
    return span.name.startswith(attributes.REWARD_SPAN_PREFIX)


def is_marked(span: Span) -> bool:
    """Whether a span that carries a rollout id is the rollout's own, whatever stands around it."""
    return f"{span.name} ".startswith(attributes.ROLLOUT_SPAN_PREFIX) or not _MARKS.isdisjoint(span.attributes)


class _Finder:
    def __init__(self, tree: SpanTree, roles: Mapping[SpanKey, Role], rollout_spans: Sequence[str]) -> None:
        self.tree = tree
        self.roles = roles
        self.calls = [key for key, role in roles.items() if role == "inference"]
        declared = {
            key: found
            for key, span in tree.spans.items()
            if attributes.ROLLOUT_ID in span.attributes and (found := declared_id(span)) is not None
        }
        guesses = {rollout_id for key, rollout_id in declared.items() if _is_guess(tree.spans[key])}
        self.declared = {key: found for key, found in declared.items() if found not in guesses}
        self.guessed = {key: found for key, found in declared.items() if found in guesses}
        self.meant: dict[str, str] = {}
        self.globs = rollout_spans
        self.rollouts: list[RolloutSpans] = []
        self.by_root: dict[SpanKey, RolloutSpans] = {}
        self.by_id: dict[str, RolloutIndex] = {}
        self.by_trace: dict[str, RolloutIndex] = {}
        self.placed: dict[SpanKey, RolloutSpans | None] = {}

    @cached_property
    def traces_with_calls(self) -> set[str]:
        return {trace_id for trace_id, _ in self.calls}

    def roots(self) -> Iterable[tuple[Span, str]]:
        """Rollout spans with their ids: declared ones, else matching ones, else roots of traces with calls."""
        spans = self.tree.spans
        yield from ((spans[key], rollout_id) for key, rollout_id in self._declared_roots().items())
        taken = {trace_id for trace_id, _ in self.declared}
        named: set[str] = set()
        for key in self._matching() if self.globs else self._roots_of_calls(taken):
            trace_id, span_id = key
            if trace_id in taken:
                continue
            plain = trace_id not in named and not self.globs
            named.add(trace_id)
            yield spans[key], trace_id if plain else f"{trace_id}-{span_id}"

    def _declared_roots(self) -> dict[SpanKey, str]:
        above = self._declared_above()
        tops: dict[str, list[SpanKey]] = {}
        for key, rollout_id in self.declared.items():
            if above.get(key) != rollout_id:
                tops.setdefault(rollout_id, []).append(key)
        roots: dict[SpanKey, str] = {}
        for rollout_id, keys in tops.items():
            marked = [key for key in keys if is_marked(self.tree.spans[key])]
            unmarked = islice((key for key in keys if self._may_be_root(key)), 1)
            roots.update((key, rollout_id) for key in marked or list(unmarked) or self._lone_call(keys))
        return roots

    def _declared_above(self) -> dict[SpanKey, str | None]:
        """The id of the nearest ancestor that carries one, by span, of those that carry one themselves."""
        above: dict[SpanKey, str | None] = {}
        for key in self.declared:
            path: list[SpanKey] = []
            at: SpanKey | None = key
            found: str | None = None
            while at is not None and found is None:
                if at in above:
                    found = above[at]
                    break
                path.append(at)
                at = self.tree.parents.get(at)
                found = None if at is None else self.declared.get(at)
            above.update(dict.fromkeys(path, found))
        return above

    def _may_be_root(self, key: SpanKey) -> bool:
        """An unmarked span with the id is the rollout's own where the id begins, unless it may be a part of one."""
        is_step = attributes.STEP_INDEX in self.tree.spans[key].attributes
        return key not in self.tree.orphans and not is_step and self.roles[key] in {"other", "agent"}

    def _lone_call(self, keys: Sequence[SpanKey]) -> Sequence[SpanKey]:
        """A call where the id begins and nothing else does is its own rollout, as one without an id is."""
        is_lone = len(keys) == 1 and self.roles[keys[0]] == "inference" and keys[0] not in self.tree.orphans
        return keys if is_lone else ()

    def _matching(self) -> Iterator[SpanKey]:
        for key, span in self.tree.spans.items():
            if is_named_rollout(span, self.globs):
                yield key

    def _roots_of_calls(self, taken: Collection[str]) -> Iterator[SpanKey]:
        """The roots that have calls at or below them, in the traces that are not taken."""
        with_calls: set[SpanKey] = set()
        for call in self.calls:
            at: SpanKey | None = None if call[0] in taken else call
            while at is not None and at not in with_calls:
                with_calls.add(at)
                at = self.tree.parents.get(at)
        if with_calls:
            for key, span in self.tree.spans.items():
                if span.parent_span_id is None and key in with_calls:
                    yield key

    def open(self, rollout_id: str, trace_id: str, root: Span | None = None) -> RolloutSpans:
        """Begin a rollout; without a root it is one of which only other spans were found."""
        rollout = RolloutSpans(rollout_id=rollout_id, root=root)
        self.rollouts.append(rollout)
        for known, name in ((self.by_id, rollout_id), (self.by_trace, trace_id)):
            if name not in known:
                known[name] = RolloutIndex(tree=self.tree)
            known[name].add(rollout)
        if root is not None:
            self.by_root[root.key] = rollout
        return rollout

    def settle_guesses(self) -> None:
        """Find which rollout each guessed id means: the one around its root, else one that its root begins."""
        around: dict[SpanKey, str | None] = {}
        begun: list[tuple[str, Span]] = []
        for key in self.tree.topological_order():
            above, span = self.tree.parents.get(key), self.tree.spans[key]
            own, guess = self.by_root.get(key), self.guessed.get(key, "")
            known = self.declared.get(key) if own is None else own.rollout_id
            known = known or (self._running_at(key) if above is None else around[above])
            if guess and guess not in self.meant and _is_guess(span):
                self.meant[guess] = known or guess
                if known is None:
                    begun.append((guess, span))
            around[key] = known or self.meant.get(guess)
        for rollout_id, root in begun:
            self.open(rollout_id, root.trace_id, root)

    def _running_at(self, key: SpanKey) -> str | None:
        """The id of the rollout of an orphan's trace that was running when it started, if just one was."""
        known = self.by_trace.get(key[0]) if key in self.tree.orphans else None
        found = None if known is None else known.around(key)
        return None if found is None else found.rollout_id

    def place_all(self) -> None:
        """Put every span into its rollout, each after its parent."""
        spans, parents, placed = self.tree.spans, self.tree.parents, self.placed
        known = self.by_root.keys() | self.declared.keys()
        for key in self.tree.topological_order():
            above = parents.get(key)
            rollout = outer = None if above is None else placed[above]
            if outer is None or key in known:
                rollout = self._rollout_of(key, outer)
            placed[key] = rollout
            if rollout is not None:
                rollout.spans.append(spans[key])
                rollout.keys.append(key)

    def _rollout_of(self, key: SpanKey, outer: RolloutSpans | None) -> RolloutSpans | None:
        own = self.by_root.get(key)
        if own is not None:
            own.parent_rollout_id = None if outer is None else outer.rollout_id
            return own
        rollout_id = self.declared.get(key)
        if rollout_id is not None and (outer is None or outer.rollout_id != rollout_id):
            return self._by_declared_id(rollout_id, key, outer)
        if outer is not None:
            return outer
        guess = self.guessed.get(key)
        if guess is not None:
            return self._by_declared_id(self.meant.get(guess, guess), key, outer)
        if key in self.tree.orphans:
            return self._of_orphan(key)
        lone_call = self.roles[key] == "inference" and self.tree.spans[key].parent_span_id is None
        return self._of_orphan(key) if lone_call else None

    def _by_declared_id(self, rollout_id: str, key: SpanKey, outer: RolloutSpans | None) -> RolloutSpans:
        runs = self.by_id.get(rollout_id)
        if runs is not None:
            return self._run_of(key, runs)
        rollout = self.open(rollout_id, key[0])
        rollout.parent_rollout_id = None if outer is None else outer.rollout_id
        return rollout

    def _run_of(self, key: SpanKey, runs: RolloutIndex) -> RolloutSpans:
        """Of the runs of an id the one that a span is of: by trace, attempt and time, else the last."""
        if len(runs.all) == 1:
            return runs.all[0]
        runs = runs.of_trace(key[0]) or runs
        attempt = integer(self.tree.spans[key].attributes.get(attributes.ROLLOUT_ATTEMPT))
        meant = runs if attempt is None else runs.of_attempt(attempt)
        if meant is None:  # an attempt that none of them is
            return runs.around(key) or runs.all[-1]
        return meant.all[0] if len(meant.all) == 1 else meant.around(key) or meant.all[-1]

    def _of_orphan(self, key: SpanKey) -> RolloutSpans | None:
        """An orphan belongs to its trace's rollout; of several to the one that was running, if just one was."""
        trace_id, _ = key
        known = self.by_trace.get(trace_id)
        if known is not None and len(known.all) == 1:
            return known.all[0]
        around = None if known is None else known.around(key)
        if around is not None or self.globs or trace_id not in self.traces_with_calls:
            return around
        lost = None if known is None else known.rootless
        return lost or self.open(trace_id, trace_id)


def _is_guess(span: Span) -> bool:
    """Whether the span is a root whose id its process made up, not knowing what its parent belongs to."""
    told = span.attributes.get(attributes.ROLLOUT_GUESSED)
    return told is not None and str(told).lower() == "true"  # some stores make it a text
