"""RolloutBuffer: the rollouts that this process records, until the app asks for their trajectories.

    a rollout:   started ─► running ─► ended ─ grace ─► dropped        keep(): never dropped before release()
                               └─ too many, too old ─► evicted: its spans are only counted

Invariant: the spool holds the lines; memory holds where each line stands. Between `keep` and `release` no line of a
rollout is lost: what the disk refused stays in memory. All other rollouts are bounded in number and age, and each
eviction is counted and logged. Spans of an evicted rollout are counted on, since its own span has to say at its end how
many there are.
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
"""So many rollouts are counted at most. The registry knows no more running spans, so no own span of more would end."""


class RolloutBuffer:
    """The rollouts of this process, by id. Any thread may use it.

    - `grace`: seconds that an ended rollout stays, for late spans and late readers.
    - `max_open`, `max_age` (seconds): beyond these the oldest rollout goes, but for those that `keep` holds.

    `evicted` counts the rollouts that were let go before their end; `calls_outside` the calls outside of rollouts.
    """

    def __init__(self, *, max_open: int = MAX_OPEN, max_age: float = MAX_AGE, grace: float = 2.0) -> None:
        self.evicted = 0
        self.calls_outside = 0
        self.grace = grace
        self._max_open = max_open
        self._max_age = max_age
        self._rollouts: dict[str, OpenRollout] = {}
        # Queues of what may be let go, the oldest first. A rollout is in one of them, or, while `keep` holds it or it
        # is only counted, in none.
        self._ended: dict[str, None] = {}
        self._running: dict[str, None] = {}
        self._of_parent: frozenset[str] = frozenset()
        self._show_running: WeakMethod[Callable[[str], None]] | None = None
        self._start_threads_anew()

    def on_look(self, show_running: Callable[[str], None]) -> None:
        """Call a method with the rollout's id before a rollout is read in which spans run.

        The method adds the lines of their starts, which are written only when someone reads. It is not kept alive.
        """
        self._show_running = WeakMethod(show_running)

    def started(self, rollout_id: str, *, is_root: bool, parent: str | None = None) -> "OpenRollout":
        """Count a span that started, and return its rollout, which the first span opens.

        `is_root` says that it is the rollout's own span; `parent` is then the id of the rollout around it.
        """
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
            # A late span opens the rollout again.
            if rollout_id in self._ended:
                self._place(rollout_id, rollout)
            return rollout

    def add(self, rollout_id: str, line: Line) -> None:
        """Hold a line that counts as no end of a span: a start, a span around the rollout, a reward given later."""
        with self._changing:
            rollout = self._rollouts.get(rollout_id)
            if rollout is not None:
                rollout.hold(line)

    def missed(self, rollout_id: str | None) -> None:
        """Count a span that could not be recorded as missing; in all rollouts, if its own is not known."""
        with self._changing:
            # If the span's rollout is not known, no rollout may look complete.
            for each in list(self._rollouts) if rollout_id is None else [rollout_id]:
                rollout = self._rollouts.get(each) or self._open(each, None)
                rollout.counts.started += 1
                self._place(each, rollout)

    def ended(self, rollout_id: str, line: Line, *, is_root: bool) -> None:
        """Count a span that ended, and hold its line. When all spans have ended, the grace of the rollout begins."""
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
        """Only count the spans of a rollout that the app will not ask for here and that may never end."""
        with self._changing:
            rollout = self._rollouts.get(rollout_id)
            if rollout is not None:
                rollout.count_only()
                self._place(rollout_id, rollout)

    def note_call(self, rollout_id: str) -> None:
        """Note that a span of the rollout is an LLM call."""
        rollout = self._rollouts.get(rollout_id)
        if rollout is not None:
            rollout.has_llm_calls = True

    def is_made_up(self, rollout_id: str) -> bool:
        """Whether art-otel made a span of the app the rollout's own span; the app did not begin this rollout itself."""
        rollout = self._rollouts.get(rollout_id)
        return rollout is not None and rollout.is_here and not rollout.is_counted

    def has_llm_calls(self, rollout_id: str) -> bool:
        """Whether an LLM call of the rollout began in this process. It is known without reading a line."""
        rollout = self._rollouts.get(rollout_id)
        return rollout is not None and rollout.has_llm_calls

    def keep(self, rollout_id: str) -> None:
        """Hold the whole rollout until `release`, however long it runs. Several may hold it."""
        with self._changing:
            rollout = self._rollouts.get(rollout_id)
            if rollout is not None:
                rollout.waiting += 1
                self._place(rollout_id, rollout)

    def release(self, rollout_id: str) -> None:
        """Undo one `keep`. After the last one the rollout may be let go as any other."""
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
        """How many spans of the rollout started and ended so far; None where the rollout is not known here."""
        rollout = self._rollouts.get(rollout_id)
        return None if rollout is None else rollout.counts

    def note_answered(self, rollout_id: str, span: object, model: object) -> None:
        """Keep the span of an answered call as the last one so far; the first one is kept, too.

        Only calls of the first call's model count: another model is likely a judge, not the agent.
        """
        rollout = self._rollouts.get(rollout_id)
        if rollout is None or not rollout.is_open:
            return
        if rollout.ends is None:
            rollout.ends, rollout.model = (span, span), model
        elif model == rollout.model:
            rollout.ends = (rollout.ends[0], span)

    def take_ends(self, rollout_id: str) -> tuple[object, object] | None:
        """Take out the spans of the first and the last answered call of a rollout; None where there is none."""
        rollout = self._rollouts.get(rollout_id)
        ends = None if rollout is None else rollout.ends
        if rollout is not None:
            rollout.ends = None
        return ends

    def has_ended(self, rollout_id: str) -> bool:
        """Whether every span of the rollout has ended, its own span too; True for a rollout that is not known here."""
        rollout = self._rollouts.get(rollout_id)
        return rollout is None or rollout.has_ended

    def calls(self, rollout_id: str) -> "tuple[InferenceCall, ...]":
        """The LLM calls recorded so far; () for a rollout that is not known here.

        Returns the same object until there is more.
        """
        rollout = self._rollouts.get(rollout_id)
        if rollout is None:
            return ()
        self._look(rollout_id, rollout)
        with rollout.reading:
            if rollout.calls is None:
                rollout.calls = RunningCalls(rollout_id)
            return rollout.calls.update(rollout.lines)

    def trajectories(self, rollout_ids: Sequence[str]) -> "Mapping[str, Trajectory]":
        """The trajectories of the rollouts so far, by id. Rollouts that are not known here are left out.

        The lines of the rollouts around them are read too, because the parents of nested spans are there.
        """
        for rollout_id in rollout_ids:
            if (rollout := self._rollouts.get(rollout_id)) is not None:
                self._look(rollout_id, rollout)
        with self._changing:
            around = {id(rollout): rollout for each in rollout_ids for rollout in self._with_parents(each)}
            lines = [line for rollout in around.values() for line in rollout.lines]
            known = {*rollout_ids} & self._rollouts.keys()
            read = [(self._rollouts[each], len(self._rollouts[each].lines)) for each in known]
        if not lines:
            return {}
        with self._assembling:
            assembled = by_rollout_id(assemble(lines))
        # Only if every rollout was built: lines that the app did not get must not count as taken.
        if assembled.keys() >= {*rollout_ids}:
            with self._changing:
                new = [line for rollout, count in read for line in rollout.take_new(count)]
            for line in new:
                if not isinstance(line, bytes):
                    line.file.hand_out(line.size)
        return {rollout_id: assembled[rollout_id] for rollout_id in rollout_ids if rollout_id in assembled}

    def trajectory(self, rollout_id: str) -> "Trajectory | None":
        """The trajectory of one rollout so far; None where the rollout is not known here."""
        return self.trajectories([rollout_id]).get(rollout_id)

    def start_anew(self) -> None:
        """After a fork: forget all rollouts, which are the parent process's.

        Code that was inside a rollout goes on in the child as well. So such a rollout counts as open here when a span
        of it comes, and the child may ask for it.
        """
        self._start_threads_anew()
        self._of_parent |= {rollout_id for rollout_id, rollout in self._rollouts.items() if rollout.is_open}
        for rollouts in (self._rollouts, self._ended, self._running):
            rollouts.clear()

    def _look(self, rollout_id: str, rollout: "OpenRollout") -> None:
        """Add the lines of the starts of the running spans, before the rollout is read."""
        show_running = None if self._show_running is None else self._show_running()
        if show_running is not None and rollout.counts.is_any_running:
            show_running(rollout_id)

    def _start_threads_anew(self) -> None:
        # Reentrant: while this thread holds the lock, Python may free a dropped stream, which ends its span right here.
        self._changing = threading.RLock()
        self._assembling = threading.Lock()
        """Trajectories are built one at a time: building takes much more memory than the trajectory."""

    def _open(self, rollout_id: str, parent: str | None) -> "OpenRollout":
        """Add a rollout that is new here."""
        rollout = OpenRollout(parent=parent, opened=time.monotonic(), is_open=rollout_id in self._of_parent)
        self._rollouts[rollout_id] = rollout
        self._running[rollout_id] = None
        return rollout

    def _close(self, rollout_id: str, rollout: "OpenRollout") -> None:
        """Begin the grace of an ended rollout. If its own span runs in another process, drop it: no reader is here."""
        rollout.closed = time.monotonic()
        if rollout.is_here or rollout.waiting:
            self._place(rollout_id, rollout)
        else:
            self._drop(rollout_id)

    def _place(self, rollout_id: str, rollout: "OpenRollout") -> None:
        """Put a rollout at the end of the queue from which it may be let go; in none while `keep` holds it."""
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
        """Drop the ended rollouts whose grace is over, and evict the oldest running one if it is older than allowed."""
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
        """Let go the lines of a rollout; its spans are still counted if its own span runs here."""
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
        """Forget a rollout that `keep` does not hold."""
        self._take_out(rollout_id)
        del self._rollouts[rollout_id]

    def _take_out(self, rollout_id: str) -> None:
        for rollouts in (self._ended, self._running):
            rollouts.pop(rollout_id, None)


@dataclass(kw_only=True, slots=True)
class OpenRollout:
    """The lines and counts of one rollout that this process records.

    - `parent`: the id of the rollout around this one. `opened`, `closed`: seconds of the monotonic clock.
    - `is_here`: the rollout's own span started in this process.
    - `is_open`: the own span runs, in this process or in the one that this process was forked from.
    - `is_counted`: the own span is art-otel's and will say at its end how many spans there are.
    - `lines`: where the lines stand; the first `taken` of them are in a trajectory that the app has got.
    - `is_counted_only`: no lines are held. `has_llm_calls`: a span of the rollout is an LLM call.
    - `ends`: the spans of the first and the last answered call of `model`, until the own span ends.
    - `waiting`: how many `keep` without a `release`.
    - `calls`: the calls so far, for readers while the rollout runs; one reader at a time, under `reading`.
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
        """Whether the own span and all other spans that started here have ended."""
        return not self.is_open and not self.counts.is_any_running

    def hold(self, line: Line) -> None:
        """Hold a line. A line that the disk refused (bytes) is held only under `keep`: there may be very many."""
        if not self.is_counted_only and (self.waiting or not isinstance(line, bytes)):
            self.lines.append(line)

    def take_new(self, count: int) -> list[Line]:
        """Of the first `count` lines those that no trajectory of the app held before."""
        new = self.lines[self.taken : count]
        self.taken = max(self.taken, count)
        return new

    def release(self) -> None:
        """Let go the lines that only memory has, since no reader waits any more."""
        self.taken = sum(not isinstance(line, bytes) for line in self.lines[: self.taken])
        self.lines = [line for line in self.lines if not isinstance(line, bytes)]
        self.calls = None

    def count_only(self) -> None:
        """Let go all lines, and hold none from now on."""
        self.lines, self.is_counted_only, self.calls = [], True, None


class RunningCalls:
    """The LLM calls of a running rollout, kept up to date as lines come.

    Each `update` reads only the new lines, and builds only the calls that are not settled, so it costs what is new. All
    calls are settled once no call runs any more: then every span that may record one of them has been read.
    """

    def __init__(self, rollout_id: str) -> None:
        self._rollout_id = rollout_id
        self._lines_read = 0
        self._settled: tuple[InferenceCall, ...] = ()
        self._unsettled: dict[SpanKey, Span] = {}
        """The spans of calls that are not settled."""
        self._others: dict[SpanKey, Span] = {}
        """All other spans: steps, agents, tools, which calls may be nested in."""
        self._calls: tuple[InferenceCall, ...] = ()

    def update(self, lines: Sequence[Line]) -> "tuple[InferenceCall, ...]":
        """The calls in all lines of the rollout. `lines` begins with the lines of the update before."""
        new_lines = lines[self._lines_read :]
        if not new_lines:
            return self._calls
        self._lines_read += len(new_lines)
        self._sort(read_spans(new_lines))
        if not self._unsettled:
            return self._calls
        new = self._built(list(self._unsettled.values()))
        # Such a call sends only its new messages; the others must be taken from earlier calls, so all are built again.
        if any(call.previous_response_id is not None for call in new):
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
        """Build the calls of these spans, together with the spans around them, which say the step and the agent."""
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
