"""RolloutBuffer: the rollouts that this process records, until their trajectories are asked for.

Invariant: memory holds where lines stand, the spool holds the lines. While somebody waits for a rollout it is not let
go and no line of it is lost: the disk has each, or, where it refused one, memory. The rest is bounded in number and
age, and what is let go is counted and logged. The spans of a rollout whose root runs here are counted to its end all
the same: its own span says how many there are.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final
from weakref import WeakMethod

from art_otel.live.assembly import Line, assemble, by_rollout_id, read_spans
from art_otel.live.endings import RolloutCounts
from art_otel.live.limits import MAX_AGE, MAX_OPEN

if TYPE_CHECKING:
    from art_otel.calls import InferenceCall
    from art_otel.spans import Span, SpanKey
    from art_otel.trajectories import Trajectory


logger = logging.getLogger(__name__)

_MAX_COUNTED: Final = 100_000
"""Rollouts beyond which none is counted on: the processor remembers no more running spans, so no root of more ends."""


class RolloutBuffer:
    """Rollouts by id. `grace` is how many seconds one that has ended stays, for late spans and late readers.

    Beyond `max_open` rollouts and `max_age` seconds the oldest goes that nobody waits for.
    """

    def __init__(self, *, max_open: int = MAX_OPEN, max_age: float = MAX_AGE, grace: float = 2.0) -> None:
        self.evicted = 0
        self.calls_outside = 0
        self.grace = grace
        self._max_open = max_open
        self._max_age = max_age
        self._rollouts: dict[str, OpenRollout] = {}
        # A rollout is in one of these, the oldest first; in none while somebody waits for it, or it is only counted.
        self._ended: dict[str, None] = {}
        self._running: dict[str, None] = {}
        self._of_parent: frozenset[str] = frozenset()
        self._show_running: WeakMethod[Callable[[str], None]] | None = None
        self._start_threads_anew()

    def on_look(self, show_running: Callable[[str], None]) -> None:
        """Call a method, whose object is not kept alive, before a rollout is read of which spans run.

        It gives the lines of their starts, which are written only for those who look.
        """
        self._show_running = WeakMethod(show_running)

    def started(self, rollout_id: str, *, is_root: bool, parent: str | None = None) -> "OpenRollout":
        """A span of the rollout started. `parent` is the rollout that a rollout's own span is nested in."""
        with self._changing:
            rollout = self._rollouts.get(rollout_id)
            if rollout is None:
                self._make_room()
                rollout = self._open(rollout_id, parent)
            if is_root:
                rollout.is_here = rollout.is_open = True
                rollout.parent = parent
            else:
                rollout.counts.started += 1
            if rollout_id in self._ended:
                self._place(rollout_id, rollout)
            return rollout

    def add(self, rollout_id: str, line: Line) -> None:
        """Hold a line that ends nothing: of a start, of a span around the rollout, of a reward given later."""
        with self._changing:
            rollout = self._rollouts.get(rollout_id)
            if rollout is not None:
                rollout.hold(line)

    def missed(self, rollout_id: str | None) -> None:
        """A span started that could not be recorded, of any rollout if nobody knows which: count it as missing."""
        with self._changing:
            for each in list(self._rollouts) if rollout_id is None else [rollout_id]:
                rollout = self._rollouts.get(each) or self._open(each, None)
                rollout.counts.started += 1
                self._place(each, rollout)

    def ended(self, rollout_id: str, line: Line, *, is_root: bool) -> None:
        """A span of the rollout ended. One that has ended is opened again by a late span."""
        with self._changing:
            rollout = self._rollouts.get(rollout_id)
            if rollout is None:
                return
            if is_root:
                rollout.is_open = False
            else:
                rollout.counts.ended += 1
            rollout.hold(line)
            if rollout.has_ended:
                self._close(rollout_id, rollout)
            self._let_go()

    def count_only(self, rollout_id: str) -> None:
        """Hold no line of a rollout that nobody here will ask for, and that may never end."""
        with self._changing:
            rollout = self._rollouts.get(rollout_id)
            if rollout is not None:
                rollout.count_only()
                self._place(rollout_id, rollout)

    def note_call(self, rollout_id: str) -> None:
        """A span of the rollout is an LLM call."""
        rollout = self._rollouts.get(rollout_id)
        if rollout is not None:
            rollout.has_llm_calls = True

    def is_made_up(self, rollout_id: str) -> bool:
        """Whether a span of the app was made the rollout's own here, and nobody began it by name."""
        rollout = self._rollouts.get(rollout_id)
        return rollout is not None and rollout.is_here and not rollout.is_counted

    def has_llm_calls(self, rollout_id: str) -> bool:
        """Whether an LLM call of the rollout began here; no line is read for it."""
        rollout = self._rollouts.get(rollout_id)
        return rollout is not None and rollout.has_llm_calls

    def keep(self, rollout_id: str) -> None:
        """Hold all of a rollout until `release`, however much it is."""
        with self._changing:
            rollout = self._rollouts.get(rollout_id)
            if rollout is not None:
                rollout.waiting += 1
                self._place(rollout_id, rollout)

    def release(self, rollout_id: str) -> None:
        """Let a rollout go that `keep` holds."""
        with self._changing:
            rollout = self._rollouts.get(rollout_id)
            if rollout is None or not rollout.waiting:
                return
            rollout.waiting -= 1
            if rollout.waiting:
                return
            rollout.release()
            if rollout.has_ended:
                self._close(rollout_id, rollout)
            else:
                self._place(rollout_id, rollout)

    def counts(self, rollout_id: str) -> RolloutCounts | None:
        """How many spans the rollout has so far; None for one that is not known here."""
        rollout = self._rollouts.get(rollout_id)
        return None if rollout is None else rollout.counts

    def note_answered(self, rollout_id: str, span: object, model: object) -> None:
        """Keep the span of a call that was answered, as the last of the rollout so far. Another model is a judge."""
        rollout = self._rollouts.get(rollout_id)
        if rollout is None or not rollout.is_open:
            return
        if rollout.ends is None:
            rollout.ends, rollout.model = (span, span), model
        elif model == rollout.model:
            rollout.ends = (rollout.ends[0], span)

    def take_ends(self, rollout_id: str) -> tuple[object, object] | None:
        """The spans of the first and the last answered call of a rollout, which are kept no longer."""
        rollout = self._rollouts.get(rollout_id)
        ends = None if rollout is None else rollout.ends
        if rollout is not None:
            rollout.ends = None
        return ends

    def has_ended(self, rollout_id: str) -> bool:
        """Whether every span of the rollout has ended, its root too, or nothing is known of it here."""
        rollout = self._rollouts.get(rollout_id)
        return rollout is None or rollout.has_ended

    def calls(self, rollout_id: str) -> "tuple[InferenceCall, ...]":
        """The LLM calls recorded so far, the same object until there is more. Empty for one that is not known here."""
        rollout = self._rollouts.get(rollout_id)
        if rollout is None:
            return ()
        self._look(rollout_id, rollout)
        with rollout.reading:
            if rollout.calls is None:
                rollout.calls = RunningCalls(rollout_id)
            return rollout.calls.update(rollout.lines)

    def trajectories(self, rollout_ids: Sequence[str]) -> "Mapping[str, Trajectory]":
        """The trajectories of rollouts that are known here, by id, as far as they are recorded.

        The lines of rollouts around them are read too, because they hold their spans' parents.
        """
        for rollout_id in rollout_ids:
            if (rollout := self._rollouts.get(rollout_id)) is not None:
                self._look(rollout_id, rollout)
        with self._changing:
            around = {id(rollout): rollout for each in rollout_ids for rollout in self._with_parents(each)}
            lines = [line for rollout in around.values() for line in rollout.lines]
            new = [line for each in {*rollout_ids} & self._rollouts.keys() for line in self._rollouts[each].take_new()]
        if not lines:
            return {}
        with self._assembling:
            assembled = by_rollout_id(assemble(lines))
        if assembled.keys() >= {*rollout_ids}:
            for line in new:
                if not isinstance(line, bytes):
                    line.file.hand_out(line.size)
        return {rollout_id: assembled[rollout_id] for rollout_id in rollout_ids if rollout_id in assembled}

    def trajectory(self, rollout_id: str) -> "Trajectory | None":
        """One of `trajectories`, None where it is not known here."""
        return self.trajectories([rollout_id]).get(rollout_id)

    def start_anew(self) -> None:
        """After a fork: what runs in the parent is the parent's, but its code goes on here, and may ask for it."""
        self._start_threads_anew()
        self._of_parent |= {rollout_id for rollout_id, rollout in self._rollouts.items() if rollout.is_open}
        for rollouts in (self._rollouts, self._ended, self._running):
            rollouts.clear()

    def _look(self, rollout_id: str, rollout: "OpenRollout") -> None:
        """Have the starts of what runs among the lines."""
        show_running = None if self._show_running is None else self._show_running()
        if show_running is not None and rollout.counts.is_any_running:
            show_running(rollout_id)

    def _start_threads_anew(self) -> None:
        self._changing = threading.RLock()  # the end of a stream that is dropped may come in between
        self._assembling = threading.Lock()
        """What is read of one rollout is much more than what its trajectory holds: one at a time."""

    def _open(self, rollout_id: str, parent: str | None) -> "OpenRollout":
        """One that nothing is known of here."""
        rollout = OpenRollout(parent=parent, opened=time.monotonic(), is_open=rollout_id in self._of_parent)
        self._rollouts[rollout_id] = rollout
        self._running[rollout_id] = None
        return rollout

    def _close(self, rollout_id: str, rollout: "OpenRollout") -> None:
        """Begin its grace, if nobody waits. Of one whose root runs elsewhere nobody here asks."""
        rollout.closed = time.monotonic()
        if rollout.is_here or rollout.waiting:
            self._place(rollout_id, rollout)
        else:
            self._drop(rollout_id)

    def _place(self, rollout_id: str, rollout: "OpenRollout") -> None:
        """Put it where its turn comes to be let go; nowhere while somebody waits for it."""
        self._take_out(rollout_id)
        if rollout.waiting:
            return
        if rollout.has_ended:
            self._ended[rollout_id] = None
        elif not rollout.is_counted_only:
            self._running[rollout_id] = None

    def _with_parents(self, rollout_id: str | None) -> "Iterator[OpenRollout]":
        seen: set[str] = set()
        while rollout_id is not None and rollout_id not in seen and rollout_id in self._rollouts:
            seen.add(rollout_id)
            yield self._rollouts[rollout_id]
            rollout_id = self._rollouts[rollout_id].parent

    def _let_go(self) -> None:
        """Drop what has ended and had its grace, and the oldest that runs for too long."""
        now = time.monotonic()
        while self._ended:
            oldest = next(iter(self._ended))
            closed = self._rollouts[oldest].closed
            if closed is not None and now - closed < self.grace:
                break
            self._drop(oldest)
        oldest = next(iter(self._running), None)
        if oldest is not None and now - self._rollouts[oldest].opened > self._max_age:
            self._evict(oldest, "it is older than ART_OTEL_MAX_ROLLOUT_HOURS")

    def _make_room(self) -> None:
        if len(self._ended) + len(self._running) >= self._max_open:
            oldest = next(iter(self._ended or self._running))
            self._evict(oldest, "more rollouts are open than ART_OTEL_MAX_OPEN_ROLLOUTS")

    def _evict(self, rollout_id: str, because: str) -> None:
        """Hold no line of it. Its spans are counted on where its own span has to say how many there are."""
        rollout = self._rollouts[rollout_id]
        if rollout.is_here and rollout.is_open and len(self._rollouts) < _MAX_COUNTED:
            rollout.count_only()
            self._place(rollout_id, rollout)
        else:
            self._drop(rollout_id)
        self.evicted += 1
        if self.evicted & (self.evicted - 1) == 0:  # at 1, 2, 4, 8, … so that a flood does not fill the log
            logger.warning(
                "art-otel: rollout %s is no longer assembled live, %s (%d so far); the spool has its spans",
                rollout_id,
                because,
                self.evicted,
            )

    def _drop(self, rollout_id: str) -> None:
        """Forget one that nobody waits for."""
        self._take_out(rollout_id)
        del self._rollouts[rollout_id]

    def _take_out(self, rollout_id: str) -> None:
        for rollouts in (self._ended, self._running):
            rollouts.pop(rollout_id, None)


@dataclass(kw_only=True, slots=True)
class OpenRollout:
    """The lines and counts of one rollout that this process records.

    `is_here` says that its root started here, `is_counted` that this will say at its end how many spans there are.
    `is_open` says that its root runs, here or, as the code that began it goes on here too, in the process that this one
    was forked from. `parent` is the rollout that it is nested in. `waiting` is how many wait for it. `is_counted_only`
    says that no line of it is held, `has_llm_calls` that a span of it is an LLM call; `ends` are the spans of its first
    and its last answered call of that call's `model`, until its root has ended. `calls` are its calls so far, for
    whoever asks while it runs, one at a time under `reading`.
    """

    parent: str | None
    opened: float
    is_here: bool = False
    is_counted: bool = False
    is_open: bool = False
    lines: list[Line] = field(default_factory=list[Line])
    counts: RolloutCounts = field(default_factory=RolloutCounts)
    closed: float | None = None
    is_counted_only: bool = False
    has_llm_calls: bool = False
    ends: tuple[object, object] | None = None
    model: object = None
    waiting: int = 0
    taken: int = 0
    calls: "RunningCalls | None" = None
    reading: threading.Lock = field(default_factory=threading.Lock)

    @property
    def has_ended(self) -> bool:
        """Whether all that started here has ended, and nobody's code runs in it any more."""
        return not self.is_open and not self.counts.is_any_running

    def hold(self, line: Line) -> None:
        """Hold a line. What the disk refused is held only while somebody waits: there may be no end to it."""
        if not self.is_counted_only and (self.waiting or not isinstance(line, bytes)):
            self.lines.append(line)

    def take_new(self) -> list[Line]:
        """The lines that the app was not given before."""
        new = self.lines[self.taken :]
        self.taken = len(self.lines)
        return new

    def release(self) -> None:
        """Nobody waits any more: let go what only memory has."""
        self.lines = [line for line in self.lines if not isinstance(line, bytes)]
        self.calls = None

    def count_only(self) -> None:
        """Hold no line any more."""
        self.lines, self.is_counted_only, self.calls = [], True, None


class RunningCalls:
    """The LLM calls of a rollout that runs, read as its lines come: `update` gives those of the lines so far.

    Each look reads the lines that are new and builds the calls that had not ended at the look before, so it costs what
    is new. A call that has ended while none ran is settled: whatever recorded it has been read.
    """

    def __init__(self, rollout_id: str) -> None:
        self._rollout_id = rollout_id
        self._lines_read = 0
        self._settled: tuple[InferenceCall, ...] = ()
        self._unsettled: dict[SpanKey, Span] = {}
        """Spans of calls that are not settled."""
        self._others: dict[SpanKey, Span] = {}
        """Spans of steps, agents, tools and whatever else calls lie in."""
        self._calls: tuple[InferenceCall, ...] = ()

    def update(self, lines: Sequence[Line]) -> "tuple[InferenceCall, ...]":
        """The calls of all these lines, of which the first are those of the update before."""
        new_lines = lines[self._lines_read :]
        if not new_lines:
            return self._calls
        self._lines_read += len(new_lines)
        self._sort(read_spans(new_lines))
        if not self._unsettled:
            return self._calls
        new = self._built(list(self._unsettled.values()))
        if any(call.previous_response_id is not None for call in new):  # its prompt is that of an earlier call too
            self._calls = _calls_of(self._rollout_id, read_spans(lines[: self._lines_read]))
            return self._calls
        self._calls = (*self._settled, *new)
        if all(span.end_ns is not None for span in self._unsettled.values()):
            self._settled = self._calls
            self._unsettled.clear()
        return self._calls

    def _sort(self, spans: "Sequence[Span]") -> None:
        from art_otel.conventions import role_of  # noqa: PLC0415 # only who looks loads the conventions

        for span in spans:
            by_key = self._unsettled if role_of(span) == "inference" else self._others
            earlier = by_key.get(span.key)
            if earlier is None or earlier.end_ns is None:
                by_key[span.key] = span
            if by_key is self._unsettled:
                self._others.pop(span.key, None)

    def _built(self, calls: "list[Span]") -> "tuple[InferenceCall, ...]":
        """The calls of these spans, which need the spans that they lie in."""
        around: dict[SpanKey, Span] = {}
        for call in calls:
            span: Span | None = call
            while span is not None and span.parent_span_id is not None:
                key = (span.trace_id, span.parent_span_id)
                span = None if key in around else self._others.get(key)
                if span is not None:
                    around[key] = span
        return _calls_of(self._rollout_id, [*around.values(), *calls])


def _calls_of(rollout_id: str, spans: "Sequence[Span]") -> "tuple[InferenceCall, ...]":
    from art_otel.trajectories import SpanGroup, build_trajectories  # noqa: PLC0415 # as above
    from art_otel.trajectories.lineage import recorded_call  # noqa: PLC0415 # as above

    built = build_trajectories(SpanGroup(spans=spans)).trajectories
    only = built[0] if len(built) == 1 else None  # of another id where its trace is joined with others
    trajectory = by_rollout_id(built).get(rollout_id, only)
    return () if trajectory is None else tuple(map(recorded_call, trajectory.calls))
