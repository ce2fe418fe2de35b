"""RolloutRegistry: which rollout each running span belongs to, and which spans belong to none yet.

Invariant: the rollout of a span is the first of these that is there:

    1. the rollout id on the span itself          3. the rollout of the code that starts it (context, then baggage)
    2. the rollout of its parent in this process  4. none; then a new rollout may begin (below)

A new rollout begins with a span that matches a glob of `rollout_spans`, and with an LLM call. A request that matches a
glob begins one also if it was sent from within another such rollout. For a call the outermost running span of its trace
becomes the rollout's own span, as in the conversion of dumps; a call without a parent joins the process's own rollout
(`ProcessRollout`). If the outermost span has a parent elsewhere, the new id is provisional.

Whether a span is a call: instrumentors of clients say so at the start of a span, those of frameworks often only by
attributes that they set before its end. So a span that ended in no rollout waits in `PendingSpans` while the outermost
span of its trace runs: a call that shows later may make the trace a rollout. The rules for an ended span are those of
the conversion of dumps.
"""

import os
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
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

from art_otel import attributes, spans
from art_otel.conventions import Role, may_be_call, may_have_role, role_of
from art_otel.conventions.dialects.genai import OPERATION_NAME
from art_otel.conventions.dialects.openinference import SPAN_KIND
from art_otel.conventions.exchanges import whole_attributes
from art_otel.forks import after_fork
from art_otel.live import RolloutBuffer
from art_otel.spans import Value
from art_otel.tracing.api.context import SCOPE, current_rollout_id, remote_rollout_id
from art_otel.tracing.api.run import record_span_counts
from art_otel.tracing.internal_errors import handle_internal_errors, warn_once
from art_otel.tracing.sdk.span_lines import as_dict

SpanIds: TypeAlias = tuple[int, int]

_REMEMBERED: Final = 20_000
"""How many ended or remote spans are remembered, so that their late children still find the rollout."""

_SEVERAL: Final = 2
"""With the second call in the process's own rollout the registry looks whether the calls are those of requests."""

REQUESTS_OF: Final = f"{attributes.METADATA_PREFIX}art.requests_of"
"""Metadata of a process's own rollout: the web or task framework whose requests made the calls."""

CALLS_AFTER: Final = f"{attributes.METADATA_PREFIX}art.calls_after"
"""Metadata of a process's own rollout: the name of the request whose rollout ended without calls just before calls
came here. Often these calls are that request's, made in a thread without its context."""

_MAX_RUNNING: Final = 100_000
"""How many running spans are known. Spans that an app never ends must not fill its memory: the oldest are forgotten."""


@dataclass(kw_only=True, slots=True)
class ActiveSpan:
    """A span that runs.

    - `key`, `above`: the ids of the span and of its parent.
    - `rollout`: the rollout's id; None while the span is in none. `is_root`: the span is the rollout's own span.
    - `outer`: the rollout in which this span's own rollout is nested.
    - `counted`: the span is in the span counts of its rollout.
    - `is_aside`: the span gives a reward to a rollout and is no part of that rollout.
    - `is_call`: the span is an LLM call, as far as its start tells. `is_written`: its start is in the spool.
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
    """The running spans of this process, and the rollouts of parents that have ended or run in another process.

    `globs` are patterns of span names; a span with a matching name is a rollout.
    """

    def __init__(self, globs: Sequence[str] = ()) -> None:
        self._globs = tuple(globs)
        self._running: OrderedDict[SpanIds, ActiveSpan] = OrderedDict()
        self._elsewhere: OrderedDict[SpanIds, str] = OrderedDict()

    def begin(self, span: Span, context: Context | None) -> ActiveSpan:
        """Register a span that starts, with its rollout by rules 1 to 3 of this module (a call begins none here)."""
        key, above = key_of(span), span.parent
        active = ActiveSpan(key=key, span=span, above=None if above is None else (above.trace_id, above.span_id))
        said = as_dict(span.attributes)
        active.is_call = vars(span)[_IS_CALL] = is_call(span, said)
        _spans[key] = span
        around = self._of_parent(active.above) or current_rollout_id(context)
        declared = _declared(said)
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
        """The entry of a running span; None where the span is not known, or was forgotten."""
        return self._running.get(key_of(span))

    def matches(self, name: str) -> bool:
        """Whether a span of this name is a rollout by the globs."""
        return any(fnmatchcase(name, glob) for glob in self._globs)

    def _is_request(self, span: Span, context: Context | None) -> bool:
        """Whether a span with a remote parent is a request, or a task, that a glob makes a rollout of its own.

        A request that was sent from within `with art_otel.rollout(...)` is a part of that rollout instead.
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
        """The running calls of a rollout (None: of all) whose starts are not written yet."""
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
        """After a fork: running spans are left to the parent process; new spans below them still find their rollout."""
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
        """Let later calls below the same parent join this root's rollout.

        For example two calls below one request of another process: the first becomes a root, the second joins it.
        """
        if root.above is not None and root.rollout is not None:
            self._remember(root.above, root.rollout)

    def _remember(self, key: SpanIds, rollout: str) -> None:
        self._elsewhere[key] = rollout
        while len(self._elsewhere) > _REMEMBERED:
            self._elsewhere.popitem(last=False)

    def _of_linked(self, span: Span) -> str | None:
        """The rollout of the first linked span that this process knows; None where it knows none of them."""
        linked = (self._of_parent((link.context.trace_id, link.context.span_id)) for link in span.links)
        return next((rollout for rollout in linked if rollout is not None), None)

    def _of_parent(self, above: SpanIds | None) -> str | None:
        if above is None:
            return None
        running = self._running.get(above)
        return self._elsewhere.get(above) if running is None else running.rollout


def key_of(span: ReadableSpan) -> SpanIds:
    """The trace id and the span id of a span; (0, 0) where it has none."""
    context = span.get_span_context()
    return (context.trace_id, context.span_id) if context is not None else (0, 0)


def _is_reward(span: Span) -> bool:
    """Whether the span gives a reward: it is named like one, and it names a rollout or art-otel made it."""
    return span.name.startswith(attributes.REWARD_SPAN_PREFIX) and (
        scope_of(span) == SCOPE or _declared(as_dict(span.attributes)) is not None
    )


def _declared(span_attributes: Mapping[str, Value]) -> str | None:
    value = span_attributes.get(attributes.ROLLOUT_ID)
    return value if isinstance(value, str) and value else None


_spans: Final[WeakValueDictionary[SpanIds, Span]] = WeakValueDictionary()
"""The living spans of this process by their ids. Some instrumentors make a proxy of a span the current one, and the
proxy has only the ids."""

_TOOL: Final = "execute_tool"
_IS_CALL: Final = "_art_otel_is_call"
"""The attribute of the span object that says whether the span looked like a call when it started."""


def path_up(context: SpanContext | None) -> Iterator[Span]:
    """The span with these ids and the spans around it, the innermost first, as far as they are still alive.

    The path ends at a request that came to this process. Its remote parent may be a span of this process, too (a server
    that calls itself), but that one belongs to the sender.
    """
    while context is not None and not context.is_remote:
        span = _spans.get((context.trace_id, context.span_id))
        if span is None:
            return
        yield span
        context = span.parent


def is_call(span: ReadableSpan, said: Mapping[str, Value]) -> bool:
    """Whether a span with these attributes will be an LLM call, as far as its start tells."""
    operation, kind = said.get(OPERATION_NAME), said.get(SPAN_KIND)
    return _may_be_call(
        scope_of(span),
        span.name,
        operation if isinstance(operation, str) else None,
        kind if isinstance(kind, str) else None,
    )


@lru_cache(maxsize=1024)
def _may_be_call(scope: str, name: str, operation: str | None, kind: str | None) -> bool:
    """`may_be_call`, cached: an app starts many spans with the same scope and name."""
    return may_be_call(scope, name, {OPERATION_NAME: operation, SPAN_KIND: kind})


def was_call(span: ReadableSpan) -> bool:
    """Whether a span is an LLM call by all its attributes, also those that were set after its start."""
    return _role(span) == "inference"


def is_followed(span: ApiSpan) -> bool:
    """Whether the span's TracerProvider is one that art-otel records, so that the registry saw the span start."""
    return _IS_CALL in vars(span)


def runs_code(span: ApiSpan) -> bool:
    """Whether a span is that of a tool or an agent: calls inside it are its own, not those of a call around it."""
    if isinstance(span, ReadableSpan) and scope_of(span) == SCOPE:  # a span of art-otel has its role from the start
        return (span.attributes or {}).get(OPERATION_NAME) == _TOOL
    return isinstance(span, ReadableSpan) and _role(span) in ("tool", "agent")


def _role(span: ReadableSpan) -> Role:
    """The role of a span: "inference", "tool", "agent", …; "other" at once if no attribute could decide it."""
    attributes = span.attributes or {}
    if not span.dropped_attributes and not may_have_role(attributes):
        return "other"
    return role_of(snapshot(span))


def snapshot(span: ReadableSpan) -> spans.Span:
    """The span in the form that the conventions read, without its ids and times."""
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
    """Whether a running span is an LLM call, by its start or by the attributes that it has got since."""
    was_one = vars(span).get(_IS_CALL)
    if was_one or not isinstance(span, ReadableSpan):
        return bool(was_one)
    if was_one is False and scope_of(span) == SCOPE:  # a span of art-otel has its role from the start
        return False
    return is_call(span, as_dict(span.attributes)) or was_call(span)


def scope_of(span: ReadableSpan) -> str:
    """The name of the instrumentation scope of a span, which is the name of its instrumentor's package."""
    scope = span.instrumentation_scope
    return "" if scope is None else scope.name


MAX_SPANS: Final = 2_000
MAX_BYTES: Final = 16 << 20


class PendingSpans:
    """Ended spans in no rollout, by trace, while the outermost span of the trace still runs.

    At most `MAX_SPANS` spans with `MAX_BYTES` of text are kept; beyond that the oldest traces go first. If such a trace
    becomes a rollout later, its trajectory lacks these spans.
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
        """Take out the spans of a trace."""
        entries = self._traces.pop(trace_id, [])
        self._count -= len(entries)
        self._bytes -= sum(size for _, size in entries)
        return [span for span, _ in entries]


def _size(span: ReadableSpan) -> int:
    """About how many characters of text a span holds. It is measured once, because an ended span does not change."""
    mappings = [span.attributes or {}, *(event.attributes or {} for event in span.events)]
    return sum(_length(value) for attributes in mappings for value in attributes.values())


def _length(value: object) -> int:
    if isinstance(value, str | bytes):
        return len(value)
    return sum(map(_length, cast(Sequence[object], value))) if isinstance(value, Sequence) else 8


class Framework(NamedTuple):
    """A web or task framework, which calls the app's code for each request or task.

    `distribution` is its name on PyPI, `module` the beginning of the module names that are on the call stack around the
    app's code. The spans of its OTel instrumentor match `globs` (comma-separated). `extra` is the extra of the
    instrumentor that some servers need, such as "[asgi]".
    """

    distribution: str
    module: str
    globs: str
    extra: str = ""

    @property
    def instrumentor(self) -> str:
        """The name on PyPI of OTel's instrumentor for this framework."""
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
    """The framework that called the code that runs now, found on the call stack; None where none did."""
    frame = currentframe()
    while frame is not None:
        module = str(frame.f_globals.get("__name__"))
        for framework in FRAMEWORKS:
            if module.startswith(framework.module) and framework.distribution in sys.modules:
                return framework
        frame = frame.f_back
    return None


class ProcessRollout:
    """The process's own rollout, which gathers the calls that have no span around them.

    The rollout begins with the first such call and ends with the process that began it. Calls of a forked child carry
    its id, too, and the child does not end it. `tracer` makes the rollout's own span; `rollouts` counts its spans but
    holds no lines, because the rollout lasts as long as the process and its trajectory is never gathered here.

    Servers are often killed before the own span ends. So when something is noted on the span, `take_noted` returns it
    once, for its start to be written again with the note.
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
        """The value of CALLS_AFTER on the rollout's own span."""
        self._is_noted = False
        self._pid = os.getpid()
        # A lock that another thread holds at the fork would never be released in the child.
        after_fork(self._after_fork)

    def join(self) -> str:
        """Count a call into the rollout, and return the rollout's id; the first call begins the rollout."""
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
        """The rollout's id; None before the first call."""
        return self._id

    def ended_without_calls(self, name: str) -> None:
        """Note that a rollout with this name, whose own span is one of the app's (a request), ended without calls."""
        self._without_calls = name

    def take_noted(self) -> ApiSpan | None:
        """The rollout's own span, if something was noted on it since the last time; else None."""
        with self._lock:
            is_noted, self._is_noted = self._is_noted, False
            return self._span if is_noted else None

    def was_joined_since(self, time_ns: int) -> bool:
        """Whether a call joined the rollout at that time or later."""
        return self._id is not None and self._joined_ns >= time_ns

    def end(self) -> None:
        """End the rollout, with its span counts. A later call begins another rollout."""
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
        """Warn if the calls are made for requests or tasks of a framework.

        All of them in one rollout are of no use for training: each request should be a rollout.
        """
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
        """Warn that calls came outside of any rollout after a request without calls: they may be that request's."""
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
