"""RolloutRegistry: which rollout each running span belongs to, and what belongs to none yet.

Invariant: a span belongs to the rollout its own id names, else to that of its local parent, else to that of the code
that started it (context, then baggage). Of spans in no rollout those that match a glob begin one, as does a request
that matches one and was sent from within such a rollout; and so does an LLM call: the outermost running span of its
trace becomes the rollout, as in dumps; a call without a parent joins the process's own rollout. Where the outermost
span has a parent (of another process, or ended), its id is provisional.

Which spans are calls: one that ended is a call exactly when a dump's is. Instrumentors of clients say so when a span
starts; those of frameworks may say so only by what they put on it before it ends. So spans that ended in no rollout
wait as long as the outermost span of their trace runs (`PendingSpans`). `ProcessRollout` is the process's own.
"""

import os
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from inspect import currentframe
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias, cast
from weakref import WeakValueDictionary

from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, Span
from opentelemetry.trace import Span as ApiSpan
from opentelemetry.trace import SpanContext, Tracer
from opentelemetry.util.types import Attributes

from art_otel import attributes, spans
from art_otel.conventions import Role, may_be_call, may_have_role, role_of
from art_otel.conventions.dialects.genai import OPERATION_NAME
from art_otel.conventions.dialects.openinference import SPAN_KIND
from art_otel.conventions.exchanges import whole_attributes
from art_otel.forks import after_fork
from art_otel.live import RolloutBuffer
from art_otel.tracing.api.context import SCOPE, current_rollout_id, remote_rollout_id
from art_otel.tracing.api.run import record_span_counts
from art_otel.tracing.internal_errors import handle_internal_errors, warn_once
from art_otel.tracing.sdk.span_lines import as_dict

SpanIds: TypeAlias = tuple[int, int]

_REMEMBERED: Final = 20_000
"""Spans that do not run here, whose late children still find their rollout."""

_SEVERAL: Final = 2
"""Calls in the process's own rollout from which on it is asked whose they are."""

REQUESTS_OF: Final = f"{attributes.METADATA_PREFIX}art.requests_of"
"""Metadata of a process's own rollout whose calls are of requests or tasks: the framework's name."""

CALLS_AFTER: Final = f"{attributes.METADATA_PREFIX}art.calls_after"
"""Metadata of a process's own rollout that got calls when a request's rollout had ended without any: its name."""

_MAX_RUNNING: Final = 100_000
"""Spans that an app starts and never ends must not fill its memory; the oldest are forgotten."""


@dataclass(kw_only=True, slots=True)
class ActiveSpan:
    """A span that runs. `rollout` is None while it is in none; `is_root` says that it is a rollout's own span.

    `outer` is the rollout that a rollout's own span is nested in; `counted` says that it is in the span counts;
    `is_aside` that it gives a reward and is no part of what it judges; `is_call` that it is an LLM call; `is_written`
    that its start is.
    """

    key: SpanIds
    span: Span
    above: SpanIds | None
    rollout: str | None = None
    is_root: bool = False
    outer: str | None = None
    counted: bool = False
    is_aside: bool = False
    is_call: bool = False
    is_written: bool = False


class RolloutRegistry:
    """Every running span of the process and, for a while, those above it that do not run here: most have ended."""

    def __init__(self, globs: Sequence[str] = ()) -> None:
        self._globs = tuple(globs)
        self._running: OrderedDict[SpanIds, ActiveSpan] = OrderedDict()
        self._elsewhere: OrderedDict[SpanIds, str] = OrderedDict()

    def begin(self, span: Span, context: Context | None) -> ActiveSpan:
        """Note a span that starts; its rollout as far as the rules without calls tell."""
        key, above = key_of(span), span.parent
        active = ActiveSpan(key=key, span=span, above=None if above is None else (above.trace_id, above.span_id))
        active.is_call = vars(span)[_IS_CALL] = is_call(span)
        _spans[key] = span
        around = self._of_parent(active.above) or current_rollout_id(context)
        declared = _declared(span.attributes)
        if around is None and declared is not None and declared == remote_rollout_id(context):
            declared = None  # the app copies baggage onto its spans, also where it is not believed
        is_received = above is not None and above.is_remote
        if is_received and declared is None and around is not None and self._is_request(span, context):
            active.outer = around
        elif declared is None or declared == around:
            active.rollout = around
            if around is None and _is_reward(span):
                active.rollout, active.is_aside = self._of_linked(span), True
        elif _is_reward(span):
            active.rollout, active.is_aside = declared, True
        else:
            active.rollout, active.outer, active.is_root = declared, around, True
        self._running[key] = active
        while len(self._running) > _MAX_RUNNING:
            self._running.popitem(last=False)
        return active

    def of(self, span: ReadableSpan) -> ActiveSpan | None:
        """What is known of a running span."""
        return self._running.get(key_of(span))

    def matches(self, name: str) -> bool:
        """Whether a span of this name is a rollout by the globs."""
        return any(fnmatchcase(name, glob) for glob in self._globs)

    def _is_request(self, span: Span, context: Context | None) -> bool:
        """Whether a span with a remote parent is a request or a task that is a rollout by a glob, whoever sent it.

        One that an explicit rollout sent is a part of that.
        """
        return self.matches(span.name) and current_rollout_id(context) is None

    def outermost(self, active: ActiveSpan) -> list[ActiveSpan]:
        """The running spans above this one, the outermost first, and itself."""
        path = [active]
        # Another thread may end a span at any time, so each is looked up once.
        while (above := path[-1].above) is not None and (running := self._running.get(above)) is not None:
            path.append(running)
        return path[::-1]

    def rollout_around(self, active: ActiveSpan) -> str | None:
        """Return the rollout of the nearest ancestor that is in one, also if that ancestor has ended."""
        above = active.above
        while above is not None:
            ancestor = self._running.get(above)
            if ancestor is None:
                return self._elsewhere.get(above)
            if ancestor.rollout is not None:
                return ancestor.rollout
            above = ancestor.above
        return None

    def running_calls(self, rollout: str | None) -> list[ActiveSpan]:
        """The calls of a rollout, or of all, that run and whose starts are not written."""
        return [
            active
            for active in list(self._running.values())
            if active.is_call and not active.is_written and rollout in (active.rollout, None)
        ]

    def still_running(self) -> list[Span]:
        """The spans of rollouts that have not ended, one of each name."""
        spans = (active.span for active in list(self._running.values()) if active.rollout is not None)
        return list({span.name: span for span in spans}.values())

    def start_anew(self) -> None:
        """After a fork: what runs is the parent's to end, but new children still find their rollout."""
        for key, active in self._running.items():
            if active.rollout is not None:
                self._elsewhere[key] = active.rollout
        self._running.clear()

    def end(self, active: ActiveSpan) -> None:
        """Forget a span that ended."""
        self._running.pop(active.key, None)
        if active.rollout is not None:
            self._remember(active.key, active.rollout)

    def share_parent(self, root: ActiveSpan) -> None:
        """Let the calls that begin below a root's parent later, with nothing else around, be of its rollout too."""
        if root.above is not None and root.rollout is not None:
            self._remember(root.above, root.rollout)

    def _remember(self, key: SpanIds, rollout: str) -> None:
        self._elsewhere[key] = rollout
        while len(self._elsewhere) > _REMEMBERED:
            self._elsewhere.popitem(last=False)

    def _of_linked(self, span: Span) -> str | None:
        """The rollout of a span that this one links to, if one is active."""
        linked = (self._of_parent((link.context.trace_id, link.context.span_id)) for link in span.links)
        return next((rollout for rollout in linked if rollout is not None), None)

    def _of_parent(self, above: SpanIds | None) -> str | None:
        if above is None:
            return None
        running = self._running.get(above)
        return self._elsewhere.get(above) if running is None else running.rollout


def key_of(span: ReadableSpan) -> SpanIds:
    """What the span is known by."""
    context = span.get_span_context()
    return (context.trace_id, context.span_id) if context is not None else (0, 0)


def _is_reward(span: Span) -> bool:
    """Whether the span gives a reward: it names a rollout, or art-otel made it."""
    return span.name.startswith(attributes.REWARD_SPAN_PREFIX) and (
        scope_of(span) == SCOPE or _declared(span.attributes) is not None
    )


def _declared(span_attributes: Attributes) -> str | None:
    value = (span_attributes or {}).get(attributes.ROLLOUT_ID)
    return value if isinstance(value, str) and value else None


_spans: Final[WeakValueDictionary[SpanIds, Span]] = WeakValueDictionary()
"""Spans of this process by their ids, so that they are found where a proxy of one is current; none is kept alive."""

_TOOL: Final = "execute_tool"
_IS_CALL: Final = "_art_otel_is_call"
"""What a span has that was seen to be a call as it started."""


def path_up(context: SpanContext | None) -> Iterator[Span]:
    """The span with these ids and those around it, the innermost first, as long as somebody holds them.

    The parent of a request that this process got is none of them: it may be of this process too, and waits elsewhere.
    """
    while context is not None and not context.is_remote:
        span = _spans.get((context.trace_id, context.span_id))
        if span is None:
            return
        yield span
        context = span.parent


def is_call(span: ReadableSpan) -> bool:
    """Whether a span that has just started will be an LLM call."""
    said = span.attributes or {}
    operation, kind = said.get(OPERATION_NAME), said.get(SPAN_KIND)
    return _may_be_call(
        scope_of(span),
        span.name,
        operation if isinstance(operation, str) else None,
        kind if isinstance(kind, str) else None,
    )


@lru_cache(maxsize=1024)
def _may_be_call(scope: str, name: str, operation: str | None, kind: str | None) -> bool:
    """Decide it once for all spans that say the same."""
    return may_be_call(scope, name, {OPERATION_NAME: operation, SPAN_KIND: kind})


def was_call(span: ReadableSpan) -> bool:
    """Whether a span is an LLM call by all that it says."""
    return _role(span) == "inference"


def is_followed(span: ApiSpan) -> bool:
    """Whether a span's start was recorded."""
    return _IS_CALL in vars(span)


def runs_code(span: ApiSpan) -> bool:
    """Whether a span is a tool's or an agent's, whose calls are its own."""
    if isinstance(span, ReadableSpan) and scope_of(span) == SCOPE:  # one of ours says so at once
        return (span.attributes or {}).get(OPERATION_NAME) == _TOOL
    return isinstance(span, ReadableSpan) and _role(span) in ("tool", "agent")


def _role(span: ReadableSpan) -> Role:
    """Return the role of a span. Most spans have no attribute that could decide it, so these are not converted."""
    attributes = span.attributes or {}
    if not span.dropped_attributes and not may_have_role(attributes):
        return "other"
    return role_of(snapshot(span))


def snapshot(span: ReadableSpan) -> spans.Span:
    """What a span says, as the conventions read it; without its ids and times."""
    return spans.Span(
        trace_id="",
        span_id="",
        name=span.name,
        kind=cast(spans.SpanKind, span.kind.name.lower()),
        start_ns=0,
        end_ns=None,
        attributes=whole_attributes(as_dict(span.attributes or {})),
        scope=spans.Scope(name=scope_of(span)),
        dropped_attributes_count=span.dropped_attributes,
    )


def is_call_by_now(span: ApiSpan) -> bool:
    """Whether a span that runs is an LLM call, by how it began or by what it has come to say."""
    was_one = vars(span).get(_IS_CALL)
    if was_one or not isinstance(span, ReadableSpan):
        return bool(was_one)
    if was_one is False and scope_of(span) == SCOPE:  # one of ours says so at once
        return False
    return is_call(span) or was_call(span)


def scope_of(span: ReadableSpan) -> str:
    """The name of the scope that the span was made in: its instrumentor's."""
    scope = span.instrumentation_scope
    return "" if scope is None else scope.name


MAX_SPANS: Final = 2_000
MAX_BYTES: Final = 16 << 20


class PendingSpans:
    """Ended spans by trace, whose outermost span still runs: at most `MAX_SPANS`, with `MAX_BYTES` of text.

    Beyond that the oldest traces go: they are none of a rollout's business as far as anybody knows.
    """

    def __init__(self) -> None:
        self._traces: OrderedDict[int, list[tuple[ReadableSpan, int]]] = OrderedDict()
        self._count = 0
        self._bytes = 0

    def add(self, span: ReadableSpan) -> None:
        """Keep a span until its trace becomes a rollout or its outermost span ends."""
        context = span.get_span_context()
        trace_id = 0 if context is None else context.trace_id
        if span.parent is None or span.parent.is_remote:
            self.pop(trace_id)
            return
        size = _size(span)
        self._traces.setdefault(trace_id, []).append((span, size))
        self._count += 1
        self._bytes += size
        while self._count > MAX_SPANS or (self._bytes > MAX_BYTES and self._traces):
            self.pop(next(iter(self._traces)))

    def pop(self, trace_id: int) -> list[ReadableSpan]:
        """The spans of a trace, which wait no longer."""
        entries = self._traces.pop(trace_id, [])
        self._count -= len(entries)
        self._bytes -= sum(size for _, size in entries)
        return [span for span, _ in entries]


def _size(span: ReadableSpan) -> int:
    """About how much text a span holds; what has ended does not change."""
    mappings = [span.attributes or {}, *(event.attributes or {} for event in span.events)]
    return sum(_length(value) for attributes in mappings for value in attributes.values())


def _length(value: object) -> int:
    if isinstance(value, str | bytes):
        return len(value)
    return sum(map(_length, cast(Sequence[object], value))) if isinstance(value, Sequence) else 8


class Framework(NamedTuple):
    """What calls the app's code for each request or task, with its instrumentor, whose spans match `globs`.

    `module` is that of its code around the app's. `extra` of the instrumentor is needed for a part of its servers.
    """

    distribution: str
    module: str
    globs: str
    extra: str = ""

    @property
    def instrumentor(self) -> str:
        """The distribution of OTel's instrumentor of it."""
        return f"opentelemetry-instrumentation-{self.distribution}"


FRAMEWORKS: Final = (
    Framework("fastapi", "fastapi.routing", "GET /*,POST /*"),
    Framework("fastapi", "anyio._backends", "GET /*,POST /*"),  # it runs plain functions in threads of anyio
    Framework("flask", "flask.app", "GET /*,POST /*"),
    Framework("django", "django.core.handlers", "GET *,POST *", "[asgi]"),
    Framework("celery", "celery.app.trace", "run/*"),
    Framework("starlette", "starlette.routing", "GET /*,POST /*"),
    Framework("tornado", "tornado.web", "*Handler.*"),
)


def _framework_around() -> Framework | None:
    """The framework that has called the code which runs here."""
    frame = currentframe()
    while frame is not None:
        module = str(frame.f_globals.get("__name__"))
        for framework in FRAMEWORKS:
            if module.startswith(framework.module) and framework.distribution in sys.modules:
                return framework
        frame = frame.f_back
    return None


class ProcessRollout:
    """The process's own rollout, which gathers the calls that nothing is around.

    It begins with the first such call, so a process without any leaves no trace of it, and ends once, in the process
    that began it: a forked child's calls carry its id, and the child does not end it. `tracer` makes its span,
    `rollouts` knows how many spans it has.

    Nobody asks for its trajectory while it runs, which is as long as the process does, so `rollouts` only counts it.
    Servers are killed, so what is noted on its span is to be written again before it ends: `take_noted` gives it.
    """

    def __init__(
        self,
        tracer: Callable[[], Tracer],
        rollouts: RolloutBuffer,
        name: str | None = None,
    ) -> None:
        self._tracer = tracer
        self._rollouts = rollouts
        self._name = name or Path(sys.argv[0] if sys.argv else "").name or "python"
        self._lock = threading.RLock()
        self._span: ApiSpan | None = None
        self._id: str | None = None
        self._joined_ns = 0
        self._calls = 0
        self._without_calls: str | None = None
        self._calls_after: str | None = None
        """What its span says in CALLS_AFTER."""
        self._is_noted = False
        self._pid = os.getpid()
        after_fork(self._after_fork)

    def join(self) -> str:
        """Begin the rollout if it has not begun, and give its id."""
        with self._lock:
            self._joined_ns = time.time_ns()
            self._calls += 1
            if self._calls == _SEVERAL:
                self._warn_of_requests()
            if self._id is None:
                self._id = os.urandom(16).hex()
                named = {attributes.ROLLOUT_ID: self._id, attributes.ROLLOUT_NAME: self._name}
                self._span = self._tracer().start_span(
                    f"{attributes.ROLLOUT_SPAN_PREFIX}{self._name}", context=Context(), attributes=named
                )
                self._rollouts.count_only(self._id)
                self._pid = os.getpid()
            if self._without_calls is not None and self._without_calls != self._calls_after:
                self._warn_of_lost_calls(self._without_calls)
            return self._id

    @property
    def rollout_id(self) -> str | None:
        """Its id, None before it begins."""
        return self._id

    def ended_without_calls(self, name: str) -> None:
        """Note that a rollout ended without calls that a span of the app is, as that of a request."""
        self._without_calls = name

    def take_noted(self) -> ApiSpan | None:
        """Its span, once after something was noted on it."""
        with self._lock:
            is_noted, self._is_noted = self._is_noted, False
            return self._span if is_noted else None

    def was_joined_since(self, time_ns: int) -> bool:
        """Whether a call joined it at that time or later."""
        return self._id is not None and self._joined_ns >= time_ns

    def end(self) -> None:
        """End it, with its span counts; a call that comes later begins another."""
        with self._lock:
            span, rollout_id = self._span, self._id
            self._span = self._id = None
            self._without_calls = self._calls_after = None
            self._calls = 0
            if span is None or rollout_id is None or self._pid != os.getpid():
                return
            with handle_internal_errors:
                record_span_counts(span, self._rollouts.counts(rollout_id))
            with handle_internal_errors:  # the app's span processors may raise
                span.end()

    def _warn_of_requests(self) -> None:
        """Warn where the calls are those of requests or tasks: they are one rollout, which teaches nothing."""
        framework = _framework_around()
        if framework is None or self._span is None:
            return
        self._note(REQUESTS_OF, framework.distribution)
        warn_once(
            "all calls in requests or tasks of %s are in one rollout, that of this process. Decorate the handler "
            "with @art_otel.rollout, or start its instrumentor (pip install '%s') and set ART_OTEL_ROLLOUT_SPANS='%s'",
            framework.distribution,
            framework.instrumentor + framework.extra,
            framework.globs,
        )

    def _warn_of_lost_calls(self, name: str) -> None:
        """Warn where calls begin in no rollout behind a request that had none: they may be its own."""
        self._calls_after = name
        self._note(CALLS_AFTER, name)
        warn_once(
            "calls begin outside of any rollout after %r ended without one. If they belong to it: threads and pools "
            "start without its context; wrap the function with art_otel.in_context(function) "
            "(docs/how-to/web-servers.md)",
            name,
        )

    def _note(self, name: str, value: str) -> None:
        if self._span is not None:
            self._span.set_attribute(name, value)
            self._is_noted = True

    def _after_fork(self) -> None:
        self._lock = threading.RLock()
