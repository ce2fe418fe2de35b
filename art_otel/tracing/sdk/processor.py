"""RecordingSpanProcessor: the spans of rollouts, recorded as they start and end.

Invariant: nothing here raises into the app, whatever its spans hold and whatever the disk does: a fault is counted and
logged. What `on_end` took is in the spool when it returns. Spans outside rollouts are left alone, unless their trace
becomes a rollout later. A process that multiprocessing or Celery made leaves by os._exit and runs no exit handlers, so
there the spool ends with what these run instead.
"""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import takewhile
from types import MethodType
from typing import Any, Final, TypeAlias, cast

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
from art_otel.tracing.sdk.span_lines import OtlpJsonEncoder, SpanParts, SpanScrubber, start_of, with_attributes

_NAMED: Final = 5
_SAYS_OF_CALLS: Final = frozenset({attributes.STEP_INDEX, attributes.UNTRAINED})
"""Attributes of a span that say something of the calls in it, which may be recorded where its end is not."""
_PROBLEM: Final = "a fault while recording spans; the app is not affected, but its trace may miss something"

Rewrite: TypeAlias = Callable[[ReadableSpan], ReadableSpan]
"""Changes a span before anybody else sees it (scrubbing, leaving content out) and gives what may be written."""


class RecordingSpanProcessor(SpanProcessor):
    """Give it to a TracerProvider, before its other processors.

    `rewrites` change each span of a rollout. `keeps_bodies` says that they leave bodies as they are, but for secrets.
    `about` is put on each rollout's own span that does not say it itself. Without a `spool` lines are in memory, as
    long as their rollouts are open. `rollout_spans` are globs of span names that begin a rollout. `rollout_attributes`
    are names of attributes that traces of one rollout share: the lines of their spans say it. `process_rollout` gathers
    calls that nothing is around.
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
        """A span of the app starts: find its rollout, mark it, and record that it began."""
        try:
            self._start(span, parent_context)
        except Exception as error:  # noqa: BLE001 # a fault of ours, which the app must not notice
            self._handle_internal_errors.note(error)
            with self._handle_internal_errors:
                self._miss(span, parent_context)

    def on_end(self, span: ReadableSpan) -> None:
        """A span of the app ended: record it if it is part of a rollout."""
        try:
            self._end(span)
        except Exception as error:  # noqa: BLE001 # a fault of ours, which the app must not notice
            self._handle_internal_errors.note(error)

    def shutdown(self) -> None:
        """End the process's own rollout and close the spool; what ends later is still recorded."""
        with self._handle_internal_errors:
            self._shut_down()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Whether everything so far is on the disk, not only with the file system."""
        self.show_running()
        with self._handle_internal_errors:
            return self._flush(timeout_millis / 1000)
        return False

    def show_running(self, rollout_id: str | None = None) -> None:
        """Record that the calls of a rollout, or of all, have begun that run now: somebody looks before they end."""
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
        """After a fault: a span that the span counts may miss must not let its rollout look complete."""
        active = self.registry.of(span)
        if active is None or not active.counted:
            self.rollouts.missed(current_rollout_id(context) if active is None else active.rollout)

    def _begin_rollout(self, active: ActiveSpan) -> None:
        """Begin a rollout around a span that is in none, where it is a call or matches a glob."""
        if self.registry.matches(active.span.name):
            _make_root(active, _named(active))
            return
        if active.is_call and not self._join(active):
            _make_root(active, _outermost(active))
            self.registry.share_parent(active)

    def _join_ended(self, active: ActiveSpan, span: ReadableSpan) -> ReadableSpan:
        """Put a span that ended in no rollout into one, if one began around it or its end shows it to be a call.

        Gives it with the rollout's id, as what may be written.
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
        """Put a span into the rollout that is around it by now or that begins there; False where it is to begin one.

        `since_ns` is when a call started that only its end shows to be one. A call without a parent that began
        meanwhile may be a recording of the same request by another instrumentor. Recordings in two rollouts are never
        compared, so then both are the process's.
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
        for ended in self._pending.pop(active.key[0]):
            self.rollouts.started(rollout, is_root=False)
            self.rollouts.ended(rollout, self._write(self._line(ended)), is_root=False)
        return True

    def _join_process_rollout(self, process_rollout: ProcessRollout) -> str:
        """Put a call into the process's own rollout, and write what that learns of its calls: it may never end."""
        rollout = process_rollout.join()
        noted = process_rollout.take_noted()
        active = self.registry.of(noted) if isinstance(noted, Span) else None
        if active is not None:
            self._write_start(active)
        return rollout

    def _record_start(self, active: ActiveSpan) -> None:
        """Mark and count a start, and write it where it would be missed: a crash leaves it unfinished.

        That is a root's, a step's, that of a span that marks the calls in it as untrained, any in a process whose
        counts no rollout span has, and a call's whose rollout's own span does not count its spans. That of any other
        call is written when somebody looks while it runs.
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
        if is_missed or not _SAYS_OF_CALLS.isdisjoint(active.span.attributes or ()):
            self._write_start(active)

    def _write_start(self, active: ActiveSpan, rollout: str | None = None) -> None:
        """Write that a span has begun, for its own rollout or another."""
        active.is_written = active.is_written or rollout is None
        self.rollouts.add(rollout or active.rollout or "", self._write(self._line(start_of(active.span))))

    def _record_ancestors(self, active: ActiveSpan, rollout: str) -> None:
        """Record that the spans around a nested rollout began: it may end long before they do."""
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
        if is_ours or attributes.ROLLOUT_ID in (span.attributes or {}):  # which a span of many attributes has lost
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
            if active.is_call and span.status.status_code is not StatusCode.ERROR:
                self.rollouts.note_answered(active.rollout, span, (span.attributes or {}).get(REQUEST_MODEL))
            if not active.is_call and not self.rollouts.has_llm_calls(active.rollout) and was_call(span):
                self.rollouts.note_call(active.rollout)
            if active.is_root and scope_of(span) != SCOPE and not self.rollouts.has_llm_calls(active.rollout):
                self._note_without_calls(span.name)
            self.rollouts.ended(active.rollout, written, is_root=active.is_root)

    def _with_joined_id(self, span: ReadableSpan, active: ActiveSpan) -> ReadableSpan:
        """Let a span say by which value its trace is joined with others, if its rollout was made up for it."""
        rollout, process_rollout = active.rollout, self._process_rollout
        is_of_process = process_rollout is not None and rollout == process_rollout.rollout_id
        if active.is_aside or rollout is None or not (is_of_process or self.rollouts.is_made_up(rollout)):
            return span
        for name in self._rollout_attributes:
            value = (span.attributes or {}).get(name, span.resource.attributes.get(name))
            if isinstance(value, str | int | float) and not isinstance(value, bool) and value != "":
                return with_attributes(span, {attributes.ROLLOUT_JOINED_ID: str(value)})
        return span

    def _note_without_calls(self, name: str) -> None:
        """Note that a request's span ended, or another of the app that is a rollout, and no call began in it."""
        if self._process_rollout is not None:
            self._process_rollout.ended_without_calls(name)

    def _write(self, line: bytes) -> Line:
        """Give the line to the spool, and say where it stands; the line itself where no disk has it."""
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
        """Warn of spans that never ended: their rollouts only count them as missing, and do not have their names."""
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
    """Whether nobody but processors that keep bodies gets a span, and no limit cuts them: then bodies are enough.

    Whoever else gets it reads attributes, which the bodies mean.
    """
    limits: Any = getattr(span, "_limits", None)
    if limits is None or limits.max_span_attribute_length is not None:
        return False
    several: object = getattr(span, "_span_processor", None)
    processors = cast(tuple[object, ...], getattr(several, "_span_processors", ()))  # the SDK's; others hide them
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
    """The mark of a span that is a rollout's own, also where its parent is not recorded."""
    return {attributes.ROLLOUT_NAME: active.span.name}


def _outermost(active: ActiveSpan) -> dict[str, str | bool]:
    """The mark of a span that nothing runs around here. What its parent belongs to, others may know."""
    return _named(active) if active.above is None else {attributes.ROLLOUT_PROVISIONAL: True}


_QUERY: Final = frozenset({"db.system", "db.system.name"})
_REQUEST: Final = frozenset({"http.method", "http.request.method"})
"""What instrumentors of databases, and of HTTP clients, say of a span when it starts (before and since OTel 1.23)."""


class RolloutSampler(Sampler):
    """`inner` decides what is exported, and what it drops is recorded.

    That has no sampled flag, so exporters leave it out, but for queries and requests outside of rollouts, which nothing
    can be below. Other services get the same flag, and the trace's state says that this app records the trace: a
    gateway of ours would else record its calls as a rollout of their own.
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
        """Decide as the inner sampler, but record what it drops, and say so to whoever is called from there."""
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
    """Whether a span that starts is a query or an HTTP request: no LLM call can be below it, and it is none itself."""
    if not names or (_QUERY.isdisjoint(names) and (kind is not SpanKind.CLIENT or _REQUEST.isdisjoint(names))):
        return False
    return not may_have_role(names) and attributes.ROLLOUT_ID not in names


def _is_in_rollout(context: Context | None) -> bool:
    """Whether a span that starts in the context is in a rollout, which its parent says, or the code around it."""
    return rollout_id_of(get_current_span(context)) is not None or current_rollout_id(context) is not None


def _recorded(state: TraceState | None) -> TraceState:
    """The state of a trace with the member that says that this app records it."""
    state = TraceState() if state is None else state
    return state if TRACE_STATE in state else state.add(TRACE_STATE, RECORDED)


class SystemIdGenerator(IdGenerator):
    """Trace and span ids from the operating system. `inner` is the generator in whose place it stands, if any.

    Agents seed `random` for each episode, and two spans must not share an id.
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
"""Characters of a text; its call has all of it."""


def _add_root_texts(root: ReadableSpan, first: ReadableSpan, last: ReadableSpan) -> None:
    """Put the last user message of the first call and the answer of the last on a rollout's own span, which has ended.

    Pages of traces (Phoenix, MLflow) show of a trace what its root span says, in the names of OpenInference:
    https://github.com/Arize-ai/openinference/blob/main/spec/semantic_conventions.md. Trajectories are not made of it.
    Secrets and, where that is asked for, contents were taken out of the calls before. What the app says itself stays.
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
"""After the app's finalizers and after the children of the child, which may all make calls."""

_at_exit: Final = WeakMethods()
_after_all: Final = WeakMethods()
"""What is called when the last spans have ended: exporters send them."""

_finalized_pid: int | None = None
"""The process whose end by multiprocessing is known to call them."""


def at_child_exit(method: MethodType, *, is_last: bool = False) -> None:
    """Call a method of an object at the end of this process, if that is such a child and the object still lives.

    A child that is forked later inherits this, and does it once it has recorded something.
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
    """By Celery, which sends this in the workers of its pools only."""
    signal = _loaded("celery.signals", "worker_process_shutdown")
    if signal is not None:
        signal.connect(_receive, weak=False)  # again is once


def _receive(**_: object) -> None:
    _call_all()


def _call_all() -> None:
    _at_exit.call()
    _after_all.call()


def _loaded(module: str, name: str) -> Any:  # noqa: ANN401 # whatever it is there
    """What a module has by a name; None where it is not loaded, or another thread is about to."""
    return getattr(sys.modules.get(module), name, None)
