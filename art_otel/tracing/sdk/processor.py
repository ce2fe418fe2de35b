"""RecordingSpanProcessor: the spans of rollouts, recorded as they start and end.

Invariant: nothing here raises into the app, whatever its spans hold and whatever the disk does: a fault is counted and
logged. What `on_end` took is in the spool when it returns. Spans outside rollouts are left alone.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from itertools import takewhile
from typing import Final, TypeAlias

from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor

from art_otel import attributes
from art_otel.live import Line, RolloutBuffer
from art_otel.spool import SpoolWriter
from art_otel.tracing.api.context import current_rollout_id
from art_otel.tracing.guest import Guest, say_once
from art_otel.tracing.sdk.ancestors import remember
from art_otel.tracing.sdk.call_spans import is_call, was_call
from art_otel.tracing.sdk.child_exit import at_child_exit
from art_otel.tracing.sdk.membership import Membership, Running, key_of
from art_otel.tracing.sdk.open_calls import close_dropped
from art_otel.tracing.sdk.own_rollout import OwnRollout
from art_otel.tracing.sdk.span_lines import SpanLines, start_of
from art_otel.tracing.sdk.span_parts import with_attributes
from art_otel.tracing.sdk.waiting import Waiting

_NAMED: Final = 5
_PROBLEM: Final = "a fault while recording spans; the app is not affected, but its trace may miss something"

Rewrite: TypeAlias = Callable[[ReadableSpan], ReadableSpan]
"""Changes a span before anybody else sees it (scrubbing, leaving content out) and gives what may be written."""


class RecordingSpanProcessor(SpanProcessor):
    """Give it to a TracerProvider, before its other processors.

    `rewrites` change each span of a rollout. `about` is put on each rollout's own span that does not say it itself.
    Without a `spool` lines stand in temporary files, as long as their rollouts are open. `rollout_spans` are globs of
    span names that begin a rollout. `own_rollout` gathers calls that nothing is around.
    """

    def __init__(
        self,
        *,
        spool: SpoolWriter | None = None,
        rollouts: RolloutBuffer | None = None,
        rewrites: Sequence[Rewrite] = (),
        rollout_spans: Sequence[str] = (),
        own_rollout: OwnRollout | None = None,
        about: Mapping[str, str] | None = None,
    ) -> None:
        self._guest = Guest(_PROBLEM)
        self.rollouts = RolloutBuffer() if rollouts is None else rollouts
        self.spool = SpoolWriter(None) if spool is None else spool
        self.membership = Membership(rollout_spans)
        self._rewrites = tuple(rewrites)
        self._own = own_rollout
        self._about = dict(about or {})
        self._lines = SpanLines()
        self._waiting = Waiting()
        self._is_asked = False
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._after_fork)

    @property
    def faults(self) -> int:
        """How many exceptions of ours were kept from the app in this process."""
        return self._guest.faults

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """A span of the app starts: find its rollout, mark it, and record that it began."""
        with self._guest:
            self._start(span, parent_context)
            return
        with self._guest:
            self._miss(span, parent_context)

    def on_end(self, span: ReadableSpan) -> None:
        """A span of the app ended: record it if it is part of a rollout."""
        with self._guest:
            self._end(span)

    def shutdown(self) -> None:
        """End the process's own rollout and close the spool; what ends later is still recorded."""
        with self._guest:
            self._shut_down()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Whether everything that ended so far is on the disk, not only with the file system."""
        with self._guest:
            return self._flush(timeout_millis / 1000)
        return False

    def _start(self, span: Span, context: Context | None) -> None:
        remember(span)
        known = self.membership.begin(span, context)
        if known.is_aside:
            if known.rollout is not None:
                span.set_attribute(attributes.ROLLOUT_ID, known.rollout)
            return
        calls = is_call(span)
        if known.rollout is None:
            self._begin_rollout(known, calls=calls)
        self._record_start(known, calls=calls)
        if known.is_root and known.rollout is not None:
            self._record_surroundings(known, known.rollout)

    def _miss(self, span: Span, context: Context | None) -> None:
        """After a fault: a span that the certificate may not know must not let its rollout look complete."""
        known = self.membership.of(span)
        if known is None or not known.counted:
            self.rollouts.missed(current_rollout_id(context) if known is None else known.rollout)

    def _begin_rollout(self, known: Running, *, calls: bool) -> None:
        """Begin a rollout around a span that is in none, where it is a call or matches a glob."""
        if self.membership.matches(known.span.name):
            _make_root(known, _named(known))
            return
        if calls and not self._join(known):
            _make_root(known, _outermost(known))
            self.membership.share_parent(known)

    def _join_ended(self, known: Running, span: ReadableSpan) -> ReadableSpan:
        """Put a span that ended in no rollout into one, if one began around it or its end shows it to be a call.

        Gives it with the rollout's id, as what may be written.
        """
        if self.membership.rollout_around(known) is None and not was_call(span):
            return span
        mark: dict[str, str | bool] = {}
        if not self._join(known, since_ns=span.start_time):
            mark = {**self._about, **_outermost(known)}
            known.rollout, known.is_root = os.urandom(16).hex(), True
            self.membership.share_parent(known)
        rollout = known.rollout or ""
        self.rollouts.started(rollout, is_root=known.is_root)
        known.counted = True
        return self._rewritten(with_attributes(span, {**mark, attributes.ROLLOUT_ID: rollout}))

    def _join(self, known: Running, *, since_ns: int | None = None) -> bool:
        """Put a span into the rollout that is around it by now or that begins there; False where it is to begin one.

        `since_ns` is when a call started that only its end shows to be one. A call without a parent that began
        meanwhile may be a recording of the same request by another instrumentor. Recordings in two rollouts are never
        compared, so then both are the process's.
        """
        around = self.membership.outermost(known)[:-1]
        rollout = self.membership.rollout_around(known)
        own = self._own
        if rollout is None:
            self.rollouts.calls_outside += 1
        if rollout is not None:
            around = list(takewhile(lambda above: above.rollout is None, reversed(around)))
        elif own is not None and (known.above is None or (since_ns is not None and own.was_joined_since(since_ns))):
            rollout = own.join()
        elif around:
            rollout = _make_root(around[0], _outermost(around[0]))
        else:
            return False
        known.rollout = rollout
        for above in around:
            above.rollout = rollout
            self._record_start(above, calls=False)
        for ended in self._waiting.pop(key_of(known.span)[0]):
            self.rollouts.started(rollout, is_root=False)
            self.rollouts.ended(rollout, self._write(self._line(ended)), is_root=False)
        return True

    def _record_start(self, known: Running, *, calls: bool) -> None:
        """Mark and count a start, and write it where it would be missed: a crash leaves it unfinished.

        That is a root's, step's and call's, and any in a process whose counts no certificate has.
        """
        if known.rollout is None:
            return
        if known.is_root:
            said = known.span.attributes or {}
            known.span.set_attributes({name: value for name, value in self._about.items() if name not in said})
        else:
            known.span.set_attribute(attributes.ROLLOUT_ID, known.rollout)
        certified = self.rollouts.started(known.rollout, is_root=known.is_root, parent=known.outer)
        known.counted = True
        if known.is_root or calls or not certified or attributes.STEP_INDEX in (known.span.attributes or {}):
            self.rollouts.add(known.rollout, self._write(self._line(start_of(known.span))))

    def _record_surroundings(self, known: Running, rollout: str) -> None:
        """Record that the spans around a nested rollout began: it may end long before they do."""
        for above in self.membership.outermost(known)[:-1]:
            if above.rollout is not None:
                self.rollouts.add(rollout, self._write(self._line(start_of(above.span))))

    def _end(self, span: ReadableSpan) -> None:
        known = self.membership.of(span)
        if known is not None and known.is_root and known.rollout is not None:
            close_dropped(known.rollout)
        is_ours = known is not None and (known.rollout is not None or known.is_aside)
        if is_ours or attributes.ROLLOUT_ID in (span.attributes or {}):  # which a span of many attributes has lost
            span = self._rewritten(span)  # before anything else can fail: others see what is not rewritten
        if known is None:
            return
        if known.rollout is None and not known.is_aside:
            span = self._join_ended(known, span)
        self.membership.end(span)
        if known.rollout is None and not known.is_aside:
            self._waiting.add(span)
            return
        self._record_end(self._lines.line(span), known)

    def _record_end(self, line: bytes, known: Running) -> None:
        written = self._write(line)
        if known.is_aside:
            self.rollouts.add(known.rollout or "", written)
        elif known.rollout is not None:
            self.rollouts.ended(known.rollout, written, is_root=known.is_root)

    def _write(self, line: bytes) -> Line:
        """Give the line to the spool, and say where it stands; the line itself where no disk has it."""
        if not self._is_asked:
            self._is_asked = True
            at_child_exit(self.shutdown)
        return self.spool.write(line) or line

    def _line(self, span: ReadableSpan) -> bytes:
        return self._lines.line(self._rewritten(span))

    def _rewritten(self, span: ReadableSpan) -> ReadableSpan:
        for rewrite in self._rewrites:
            span = rewrite(span)
        return span

    def _flush(self, timeout: float) -> bool:
        return self.spool.flush(timeout) and not self.faults

    def _shut_down(self) -> None:
        if self._own is not None:
            self._own.end()
        self._tell_running()
        self.spool.close()

    def _tell_running(self) -> None:
        """Say which spans never ended: their rollouts count them as missing, and only we know their names."""
        names = sorted({self._rewritten(start_of(span)).name for span in self.membership.still_running()})
        if names:
            said = ", ".join(names[:_NAMED]) + (", …" if len(names) > _NAMED else "")
            say_once("spans of rollouts have not ended, so that their trajectories are incomplete: %s", said)

    def _after_fork(self) -> None:
        self.membership.start_anew()
        self.rollouts.start_anew()
        self._guest.faults = 0
        self._is_asked = False


def _make_root(known: Running, mark: Mapping[str, str | bool]) -> str:
    """Make a span of the app a rollout's own."""
    known.rollout, known.is_root = os.urandom(16).hex(), True
    known.span.set_attributes({attributes.ROLLOUT_ID: known.rollout, **mark})
    return known.rollout


def _named(known: Running) -> dict[str, str | bool]:
    """The mark of a span that is a rollout's own, also where its parent is not recorded."""
    return {attributes.ROLLOUT_NAME: known.span.name}


def _outermost(known: Running) -> dict[str, str | bool]:
    """The mark of a span that nothing runs around here. What its parent belongs to, others may know."""
    return _named(known) if known.above is None else {attributes.ROLLOUT_PROVISIONAL: True}
