"""RecordingSpanProcessor: records the spans of rollouts as they start and end.

    on_start ─► RolloutRegistry: which rollout? ─► mark and count the span; write its start where a crash would lose it
    on_end ─► rewrites (scrubbing, leaving content out) ─► OtlpJsonEncoder ─► the spool ─► RolloutBuffer

Invariant: nothing here raises into the app, whatever the spans hold and whatever the disk does; a fault is counted and
logged. A span is in the spool when `on_end` returns. Spans outside rollouts are left alone, unless their trace becomes
a rollout later.
"""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import takewhile
from types import MethodType
from typing import Any, Final, TypeAlias

from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.sdk.trace.sampling import Decision, Sampler, SamplingResult
from opentelemetry.trace import Link, SpanKind, StatusCode, get_current_span
from opentelemetry.trace.span import TraceState
from opentelemetry.util.types import Attributes

from art_otel import attributes
from art_otel.calls import Message
from art_otel.conventions import may_have_role, parse_call
from art_otel.conventions.dialects.genai import REQUEST_MODEL
from art_otel.conventions.dialects.openinference import INPUT_VALUE, OUTPUT_VALUE, SPAN_KIND
from art_otel.forks import WeakMethods, after_fork
from art_otel.live import Line, RolloutBuffer
from art_otel.spool import MemorySpool, Spool
from art_otel.tracing.api.context import RECORDED, SCOPE, TRACE_STATE, current_rollout_id, rollout_id_of
from art_otel.tracing.internal_errors import InternalErrorHandler, warn_once
from art_otel.tracing.sdk.rollout_registry import (
    ActiveSpan,
    PendingSpans,
    ProcessRollout,
    RolloutRegistry,
    scope_of,
    snapshot,
    was_call,
)
from art_otel.tracing.sdk.span_lines import OtlpJsonEncoder, SpanParts, SpanScrubber, as_dict, start_of, with_attributes

_NAMED: Final = 5
"""So many names of spans that never ended stand in the warning."""
_SAYS_OF_CALLS: Final = frozenset({attributes.STEP_INDEX, attributes.UNTRAINED})
"""Attributes by which a span changes what the calls inside it mean. After a crash such a call may be recorded and the
end of the span around it not, so the start of that span is written at once."""
_PROBLEM: Final = "a fault while recording spans; the app is not affected, but its trace may miss something"

Rewrite: TypeAlias = Callable[[ReadableSpan], ReadableSpan]
"""Changes an ended span before any other processor sees it (scrubbing, leaving content out), and returns the span that
may be written."""


class RecordingSpanProcessor(SpanProcessor):
    """Add it to a TracerProvider, before its other processors: they get the spans as the rewrites left them.

    - `spool`: where lines go. None: lines are kept in memory as long as their rollouts are open.
    - `rollouts`: the buffer from which the app gathers trajectories.
    - `rewrites`: change each span of a rollout when it ends. `keeps_bodies` is True if all of them only take secrets
      out of the bodies of requests and answers.
    - `rollout_spans`: globs of span names; a matching span that is in no rollout begins one (`POST /solve*`).
    - `rollout_attributes`: names of attributes (`session.id`); traces with one value of it are one rollout.
    - `process_rollout`: gathers the calls that have no span around them.
    - `about`: attributes for each rollout's own span, such as the split; values that the app set itself stay.
    """

    def __init__(
        self,
        *,
        spool: Spool | None = None,
        rollouts: RolloutBuffer | None = None,
        rewrites: Sequence[Rewrite] = (),
        rollout_spans: Sequence[str] = (),
        rollout_attributes: Sequence[str] = (),
        process_rollout: ProcessRollout | None = None,
        about: Mapping[str, str] | None = None,
    ) -> None:
        self._handle_internal_errors = InternalErrorHandler(_PROBLEM)
        self.rollouts = RolloutBuffer() if rollouts is None else rollouts
        self.spool: Spool = MemorySpool() if spool is None else spool
        self.registry = RolloutRegistry(rollout_spans)
        self.keeps_bodies = all(isinstance(rewrite, SpanScrubber) for rewrite in rewrites)
        self._rollout_attributes = tuple(rollout_attributes)
        self._rewritten: Rewrite = partial(_rewrite, tuple(rewrites))  # no method: it would hold the processor
        self._process_rollout = process_rollout
        self._about = dict(about or {})
        self._lines = OtlpJsonEncoder()
        self._pending = PendingSpans()
        self._is_asked = False
        self.rollouts.on_look(self.show_running)
        after_fork(self._after_fork)

    @property
    def faults(self) -> int:
        """How many exceptions of ours were kept from the app in this process."""
        return self._handle_internal_errors.faults

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """Find the rollout of a span that starts, mark the span with it, and record that the span began."""
        try:
            self._start(span, parent_context)
        except Exception as error:  # noqa: BLE001 # a fault of ours, which the app must not notice
            self._handle_internal_errors.note(error)
            with self._handle_internal_errors:
                self._miss(span, parent_context)

    def on_end(self, span: ReadableSpan) -> None:
        """Record a span that ended, if it is part of a rollout."""
        try:
            self._end(span)
        except Exception as error:  # noqa: BLE001 # a fault of ours, which the app must not notice
            self._handle_internal_errors.note(error)

    def shutdown(self) -> None:
        """End the process's own rollout and close the spool. A span that ends later is still recorded."""
        with self._handle_internal_errors:
            self._shut_down()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Write the starts of running calls, and flush the spool to the disk itself.

        Returns False if the disk did not confirm in time, or if a line was dropped or a fault of ours happened before.
        """
        self.show_running()
        with self._handle_internal_errors:
            return self._flush(timeout_millis / 1000)
        return False

    def show_running(self, rollout_id: str | None = None) -> None:
        """Write the starts of the calls that run now, in one rollout or in all, because their rollout is read now.

        A trajectory that is read while a call runs then says that it is unfinished, instead of lacking the call.
        """
        with self._handle_internal_errors:
            for active in self.registry.running_calls(rollout_id):
                self._write_start(active)

    def _start(self, span: Span, context: Context | None) -> None:
        active = self.registry.begin(span, context)
        if active.is_aside:
            if active.rollout is not None:
                span.set_attribute(attributes.ROLLOUT_ID, active.rollout)
            return
        if active.rollout is None:
            self._begin_rollout(active)
        self._record_start(active)
        if active.is_root and active.rollout is not None:
            self._record_ancestors(active, active.rollout)

    def _miss(self, span: Span, context: Context | None) -> None:
        """After a fault, count the span as missing, so that its rollout does not look complete without it."""
        active = self.registry.of(span)
        if active is None or not active.counted:
            self.rollouts.missed(current_rollout_id(context) if active is None else active.rollout)

    def _begin_rollout(self, active: ActiveSpan) -> None:
        """Begin a rollout for a span that is in none, if the span matches a glob or is an LLM call."""
        if self.registry.matches(active.span.name):
            _make_root(active, _named(active))
            return
        if active.is_call and not self._join(active):
            _make_root(active, _outermost(active))
            self.registry.share_parent(active)

    def _join_ended(self, active: ActiveSpan, span: ReadableSpan) -> ReadableSpan:
        """Put a span that ran in no rollout into one when it ends, if there is now a reason to.

        The reason is a rollout that began around the span meanwhile, or attributes that show only at the end that the
        span is an LLM call. Returns the span with the rollout's id, ready to be written; else the span as it was.
        """
        if self.registry.rollout_around(active) is None and not was_call(span):
            return span
        mark: dict[str, str | bool] = {}
        if not self._join(active, since_ns=span.start_time):
            mark = {**self._about, **_outermost(active)}
            active.rollout, active.is_root = os.urandom(16).hex(), True
            self.registry.share_parent(active)
        rollout = active.rollout or ""
        self.rollouts.started(rollout, is_root=active.is_root)
        active.counted = True
        return self._rewritten(with_attributes(span, {**mark, attributes.ROLLOUT_ID: rollout}))

    def _join(self, active: ActiveSpan, *, since_ns: int | None = None) -> bool:
        """Put a call's span into a rollout, with the spans around it; False where the call itself must begin one.

            an ancestor is in a rollout      that rollout
            the call has no parent           the process's own rollout, if there is one
            running spans are around         a new rollout, whose own span is the outermost of them

        `since_ns` is the start of a call that only its end shows to be one. If another call without a parent began
        since then, both may be recordings of one request by two instrumentors. Recordings are compared only within one
        rollout, so this call joins the process's rollout, too.
        """
        around = self.registry.outermost(active)[:-1]
        rollout = self.registry.rollout_around(active)
        process_rollout = self._process_rollout
        if rollout is None:
            self.rollouts.calls_outside += 1
        if rollout is not None:
            around = list(takewhile(lambda above: above.rollout is None, reversed(around)))
        elif process_rollout is not None and (
            active.above is None or (since_ns is not None and process_rollout.was_joined_since(since_ns))
        ):
            rollout = self._join_process_rollout(process_rollout)
        elif around:
            rollout = _make_root(around[0], _outermost(around[0]))
        else:
            return False
        active.rollout = rollout
        for above in around:
            above.rollout = rollout
            self._record_start(above)
        for ended in self._pending.pop(active.key[0]):  # spans of the trace that ended before it was a rollout
            self.rollouts.started(rollout, is_root=False)
            self.rollouts.ended(rollout, self._write(self._line(ended)), is_root=False)
        return True

    def _join_process_rollout(self, process_rollout: ProcessRollout) -> str:
        """Put a call into the process's own rollout, and write that rollout's start again if something was noted on it.

        A server is often killed, so the end of the process's rollout may never be written.
        """
        rollout = process_rollout.join()
        noted = process_rollout.take_noted()
        active = self.registry.of(noted) if isinstance(noted, Span) else None
        if active is not None:
            self._write_start(active)
        return rollout

    def _record_start(self, active: ActiveSpan) -> None:
        """Mark and count a span that started, and write its start if a crash would else leave no trace of it.

        Starts are written of:
        - a rollout's own span, a step, and a span that marks the calls in it as untrained;
        - any span in a process in which the rollout's own span does not run, since no count tells of it;
        - a call whose rollout's own span does not count spans (it is a span of the app's).

        The start of any other call is written only by `show_running`.
        """
        if active.rollout is None:
            return
        if active.is_root:
            existing = active.span.attributes or {}
            active.span.set_attributes({name: value for name, value in self._about.items() if name not in existing})
        else:
            active.span.set_attribute(attributes.ROLLOUT_ID, active.rollout)
        recorded = self.rollouts.started(active.rollout, is_root=active.is_root, parent=active.outer)
        active.counted = True
        if active.is_root:
            recorded.is_counted = scope_of(active.span) == SCOPE
        if active.is_call:
            recorded.has_llm_calls = True
        is_missed = active.is_root or not recorded.is_here or (active.is_call and not recorded.is_counted)
        if is_missed or not _SAYS_OF_CALLS.isdisjoint(as_dict(active.span.attributes)):
            self._write_start(active)

    def _write_start(self, active: ActiveSpan, rollout: str | None = None) -> None:
        """Write that a span has begun, and hold the line for the span's own rollout, or for the given one."""
        active.is_written = active.is_written or rollout is None
        self.rollouts.add(rollout or active.rollout or "", self._write(self._line(start_of(active.span))))

    def _record_ancestors(self, active: ActiveSpan, rollout: str) -> None:
        """Write the starts of the spans around a nested rollout, which may end, and be read, long before they do."""
        for above in self.registry.outermost(active)[:-1]:
            if above.rollout is not None:
                self._write_start(above, rollout)

    def _end(self, span: ReadableSpan) -> None:
        active = self.registry.of(span)
        if active is not None and active.is_root:
            with self._handle_internal_errors:  # without these texts the span is recorded as it is
                match self.rollouts.take_ends(active.rollout or ""):
                    case (ReadableSpan() as first, ReadableSpan() as last):
                        _add_root_texts(span, first, last)
                    case _:
                        pass
        is_ours = active is not None and (active.rollout is not None or active.is_aside)
        # The attribute alone does not tell: the SDK drops the oldest attributes of a span with too many of them.
        if is_ours or attributes.ROLLOUT_ID in (span.attributes or {}):
            span = self._rewritten(span)  # before anything else can fail: others see what is not rewritten
        if active is None:
            return
        if active.rollout is None and not active.is_aside:
            span = self._join_ended(active, span)
        self.registry.end(active)
        if active.rollout is None and not active.is_aside:
            self._pending.add(span)
            return
        self._record_end(span, active)

    def _record_end(self, span: ReadableSpan, active: ActiveSpan) -> None:
        if self._rollout_attributes:
            span = self._with_joined_id(span, active)
        written = self._write(self._lines.line(span))
        if active.is_aside:
            self.rollouts.add(active.rollout or "", written)
        elif active.rollout is not None:
            # Their texts go on the rollout's own span for collectors alone: to read them costs as much as a call.
            is_failed = span.status.status_code is StatusCode.ERROR
            if active.is_call and not is_failed and not is_spooled_only(active.span):
                self.rollouts.note_answered(active.rollout, span, as_dict(span.attributes).get(REQUEST_MODEL))
            if not active.is_call and not self.rollouts.has_llm_calls(active.rollout) and was_call(span):
                self.rollouts.note_call(active.rollout)
            is_apps_root = active.is_root and scope_of(span) != SCOPE
            if is_apps_root and self._process_rollout is not None and not self.rollouts.has_llm_calls(active.rollout):
                self._process_rollout.ended_without_calls(span.name)  # its calls may come to the process's own rollout
            self.rollouts.ended(active.rollout, written, is_root=active.is_root)

    def _with_joined_id(self, span: ReadableSpan, active: ActiveSpan) -> ReadableSpan:
        """Add to a span the value by which its trace is joined with others, if the app did not begin the rollout.

        A rollout that the app began by name has an id of its own and is not joined with any other.
        """
        rollout, process_rollout = active.rollout, self._process_rollout
        is_of_process = process_rollout is not None and rollout == process_rollout.rollout_id
        if active.is_aside or rollout is None or not (is_of_process or self.rollouts.is_made_up(rollout)):
            return span
        for name in self._rollout_attributes:
            value = (span.attributes or {}).get(name, span.resource.attributes.get(name))
            if isinstance(value, str | int | float) and not isinstance(value, bool) and value != "":
                return with_attributes(span, {attributes.ROLLOUT_JOINED_ID: str(value)})
        return span

    def _write(self, line: bytes) -> Line:
        """Write the line to the spool, and return where it stands; the line itself where the disk refused it."""
        if not self._is_asked:
            self._is_asked = True
            at_child_exit(self.shutdown)
        return self.spool.write(line) or line

    def _line(self, span: ReadableSpan) -> bytes:
        return self._lines.line(self._rewritten(span))

    def _flush(self, timeout: float) -> bool:
        return self.spool.flush(timeout) and not self.faults

    def _shut_down(self) -> None:
        if self._process_rollout is not None:
            self._process_rollout.end()
        self.show_running()
        self._tell_running()
        self.spool.close()

    def _tell_running(self) -> None:
        """Warn of spans that never ended, by name: the trajectories only say how many are missing."""
        names = sorted({self._rewritten(start_of(span)).name for span in self.registry.still_running()})
        if names:
            listed = ", ".join(names[:_NAMED]) + (", …" if len(names) > _NAMED else "")
            warn_once("spans of rollouts have not ended, so that their trajectories are incomplete: %s", listed)

    def _after_fork(self) -> None:
        self.registry.start_anew()
        self.rollouts.start_anew()
        self._handle_internal_errors.faults = 0
        self._is_asked = False


def is_spooled_only(span: object) -> bool:
    """Whether a span goes to our spool alone, with no limit on the length of its attributes.

    Then the raw bodies of request and answer are enough, because our reader parses them. Any other processor, such as
    an exporter to a collector, needs the standard attributes instead.
    """
    limits: Any = getattr(span, "_limits", None)
    if limits is None or limits.max_span_attribute_length is not None:
        return False
    several: object = getattr(span, "_span_processor", None)
    processors: tuple[object, ...] = getattr(several, "_span_processors", ())  # the SDK's; others hide them
    for each in processors:
        if not isinstance(each, RecordingSpanProcessor) or not each.keeps_bodies:
            return False
    return bool(processors)


def _rewrite(rewrites: Sequence[Rewrite], span: ReadableSpan) -> ReadableSpan:
    for rewrite in rewrites:
        span = rewrite(span)
    return span


def _make_root(active: ActiveSpan, mark: Mapping[str, str | bool]) -> str:
    """Make a span of the app the root span of a new rollout."""
    active.rollout, active.is_root = os.urandom(16).hex(), True
    active.span.set_attributes({attributes.ROLLOUT_ID: active.rollout, **mark})
    return active.rollout


def _named(active: ActiveSpan) -> dict[str, str | bool]:
    """The attribute that makes a span a rollout's own span, also if the span has a parent that is not recorded."""
    return {attributes.ROLLOUT_NAME: active.span.name}


def _outermost(active: ActiveSpan) -> dict[str, str | bool]:
    """The attribute for the outermost running span of this process, when that becomes a rollout's own span.

    If the span has a parent elsewhere, the new id is provisional: the parent's process may know the true rollout.
    """
    return _named(active) if active.above is None else {attributes.ROLLOUT_PROVISIONAL: True}


_QUERY: Final = frozenset({"db.system", "db.system.name"})
_REQUEST: Final = frozenset({"http.method", "http.request.method"})
"""Attributes that a span of a database query, or of an HTTP request, has at its start (before and since OTel 1.23)."""


class RolloutSampler(Sampler):
    """Records spans for rollouts that the app's own sampler (`inner`) would drop; exporters still do not get them.

        inner says sample   the span is recorded and exported, as before
        inner says drop     the span is recorded without the sampled flag, so that exporters leave it out
        ... a query or an HTTP request outside of rollouts: dropped, since no LLM call can be below it

    Other services get the unsampled flag, too. So that a gateway of ours does not take their calls for a rollout of
    their own, the trace state says that this app records the trace.
    """

    def __init__(self, inner: Sampler) -> None:
        self.inner = inner

    def should_sample(
        self,
        parent_context: Context | None,
        trace_id: int,
        name: str,
        kind: SpanKind | None = None,
        attributes: Attributes = None,
        links: Sequence[Link] | None = None,
        trace_state: TraceState | None = None,
    ) -> SamplingResult:
        """Decide as the inner sampler; record what it drops, and say so in the trace state."""
        result = self.inner.should_sample(parent_context, trace_id, name, kind, attributes, links, trace_state)
        if result.decision is not Decision.DROP:
            return result
        # A span of the SDK costs five times as much if it is recorded, and most spans of an app are queries.
        is_needed = not _is_leaf(kind, attributes) or _is_in_rollout(parent_context)
        decision = Decision.RECORD_ONLY if is_needed else Decision.DROP
        return SamplingResult(decision, attributes, _recorded(result.trace_state))

    def get_description(self) -> str:
        """Return the description of the inner sampler."""
        return self.inner.get_description()


def _is_leaf(kind: SpanKind | None, names: Attributes) -> bool:
    """Whether a span that starts is a database query or an HTTP request, and no LLM call."""
    if not names or (_QUERY.isdisjoint(names) and (kind is not SpanKind.CLIENT or _REQUEST.isdisjoint(names))):
        return False
    return not may_have_role(names) and attributes.ROLLOUT_ID not in names


def _is_in_rollout(context: Context | None) -> bool:
    """Whether a span that starts in the context is in a rollout: its parent is, or the code that starts the span."""
    return rollout_id_of(get_current_span(context)) is not None or current_rollout_id(context) is not None


def _recorded(state: TraceState | None) -> TraceState:
    """The trace state with the member that says that this app records the trace."""
    state = TraceState() if state is None else state
    return state if TRACE_STATE in state else state.add(TRACE_STATE, RECORDED)


class SystemIdGenerator(IdGenerator):
    """Takes trace and span ids from the operating system. `inner` is the generator that it replaces, if any.

    OTel's own generator uses `random`. Agents seed `random` for each episode, and then two spans would share an id.
    """

    def __init__(self, inner: IdGenerator | None = None) -> None:
        self.inner = inner

    def generate_span_id(self) -> int:
        """Eight random bytes, not all zero."""
        return _random_number(8)

    def generate_trace_id(self) -> int:
        """Sixteen random bytes, not all zero."""
        return _random_number(16)

    def is_trace_id_random(self) -> bool:
        """True: W3C's random flag may be set."""
        return True


def _random_number(size: int) -> int:
    while not (number := int.from_bytes(os.urandom(size), "big")):
        pass
    return number


_LONGEST_TEXT: Final = 10_000
"""Characters of a text on a rollout's own span; the span of the call has the whole text."""


def _add_root_texts(root: ReadableSpan, first: ReadableSpan, last: ReadableSpan) -> None:
    """Put two texts on a rollout's own span: the last user message of the first call, and the answer of the last call.

    Phoenix and MLflow list a trace by the input and output of its root span, in the names of OpenInference:
    https://github.com/Arize-ai/openinference/blob/main/spec/semantic_conventions.md. Trajectories do not use them. The
    calls' spans were scrubbed before, and so are these texts. A root span that has such attributes stays as it is.
    """
    asked, answered = parse_call(snapshot(first)), parse_call(snapshot(last))
    messages = [message for message in asked.input_messages or () if message.role == "user"]
    choices = answered.choices or ()
    texts = {
        INPUT_VALUE: _text(messages[-1]) if messages else None,
        OUTPUT_VALUE: _text(choices[0].message) if choices else None,
    }
    parts = SpanParts.of(root)
    if any(texts.values()) and parts.attributes.keys().isdisjoint((SPAN_KIND, *texts)):
        parts.attributes[SPAN_KIND] = "CHAIN"
        parts.attributes |= {name: text[:_LONGEST_TEXT] for name, text in texts.items() if text}
        parts.put(root)


def _text(message: Message) -> str | None:
    called = [f"{call.name}({call.arguments})" for call in message.tool_calls]
    return message.content or message.refusal or "\n".join(called) or None


_LAST: Final = -1000
"""The priority of our finalizer: after the app's finalizers and after the children of the child, which may all make
calls."""

_at_exit: Final = WeakMethods()
"""Methods that end the recording of spans in a child process."""
_after_all: Final = WeakMethods()
"""Methods that run after these, when no more spans come: exporters send the rest."""

_finalized_pid: int | None = None
"""The process in which `_call_all` is registered with multiprocessing; a forked child has another pid."""


def at_child_exit(method: MethodType, *, is_last: bool = False) -> None:
    """Call a method at the end of this process, if multiprocessing or Celery started it and the object still lives.

    Such a child leaves by `os._exit`, which runs no exit handlers. So the method is called by what these two run
    instead: a finalizer of multiprocessing, or Celery's signal `worker_process_shutdown`.
    """
    (_after_all if is_last else _at_exit).add(method)
    if not _is_finalized():
        _when_signalled()


def _is_finalized() -> bool:
    global _finalized_pid  # noqa: PLW0603 # one a process
    parent_process = _loaded("multiprocessing.process", "parent_process")
    if parent_process is None or parent_process() is None:
        return False
    if _finalized_pid != os.getpid():
        from multiprocessing.util import Finalize  # noqa: PLC0415 # it is loaded already

        Finalize(None, _call_all, exitpriority=_LAST)
        _finalized_pid = os.getpid()
    return True


def _when_signalled() -> None:
    """Connect to Celery's signal for the end of a worker process of a pool; nothing where Celery is not loaded."""
    signal = _loaded("celery.signals", "worker_process_shutdown")
    if signal is not None:
        signal.connect(_receive, weak=False)  # connecting the same function again changes nothing


def _receive(**_: object) -> None:
    _call_all()


def _call_all() -> None:
    _at_exit.call()
    _after_all.call()


def _loaded(module: str, name: str) -> Any:  # noqa: ANN401 # whatever it is there
    """An attribute of a module that the app has loaded; None where it is not loaded, or not completely yet."""
    return getattr(sys.modules.get(module), name, None)
