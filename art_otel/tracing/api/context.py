"""Context: which rollout the running code belongs to, who waits for those that begin in it, and who makes their spans.

Invariant: what travels is OTel's own Context and W3C baggage, so a rollout crosses tasks, threads that were given the
context, and HTTP. An id in the baggage is believed as `trust_rollout_ids` says. A rollout that begins in a GatherScope
is taken by it, and opens a nested scope, which takes the rollouts that begin inside that rollout. The recorder keeps
all of them until `release`.
"""

import os
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from contextvars import Token
from functools import wraps
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, ParamSpec, TypeAlias, TypeVar, cast

from opentelemetry import baggage, trace
from opentelemetry import context as otel_context
from opentelemetry.context import Context
from opentelemetry.trace import ProxyTracerProvider, Span, Tracer, TracerProvider

from art_otel import attributes
from art_otel.errors import UsageError
from art_otel.spool.runs import RUN

if TYPE_CHECKING:
    from art_otel.live import RolloutBuffer
    from art_otel.tracing.api.running import RunningTrajectory
    from art_otel.tracing.api.scalars import ScalarValue

AskVersion: TypeAlias = Callable[[str | None], str | None]
"""Gives the version of the weights that sample now, by the request's model."""

Trust: TypeAlias = Literal["own", "any", "none"]
"""Whose rollout ids are believed where they come with a request: those of this run's processes, anybody's, nobody's."""

_RUNNING: Final = otel_context.create_key("art-otel-running")
_SCOPE: Final = otel_context.create_key("art-otel-gather-scope")
RUN_ENTRY: Final = "art_otel.run"
"""The entry of the baggage that says which run the rollout is of."""
TRACE_STATE: Final = "art-otel"
RECORDED: Final = "recorded"
"""The member of W3C's tracestate, and its value, by which an app says that it records a trace that is not sampled."""

_UNNAMED_RUN: Final = os.urandom(8).hex()
"""The run where no variable names one: this process and its forks. Gathering leaves the environment as it was."""

_trust: Trust = "own"
_rollout_spans: Sequence[str] = ()

_P = ParamSpec("_P")
_R = TypeVar("_R")


def trust_rollout_ids(trust: Trust) -> None:
    """Set whose rollout ids this process believes."""
    global _trust  # noqa: PLW0603 # one a process, as the settings are
    _trust = trust


def name_rollout_spans(globs: Sequence[str]) -> None:
    """Set the names of spans that are rollouts in this process, whoever makes them."""
    global _rollout_spans  # noqa: PLW0603 # one a process, as the settings are
    _rollout_spans = globs


def span_of_named_rollout() -> Span | None:
    """The span that the code runs in, where names make spans to rollouts: what it is given is its rollout's.

    One that has ended counts where it is in a rollout: a task may go on when its request has been answered.
    """
    span = trace.get_current_span()
    return span if _rollout_spans and (span.is_recording() or rollout_id_of(span) is not None) else None


def rollout_id_of(span: Span) -> str | None:
    """The id of the rollout that a span of this process is recorded in."""
    held = cast("Mapping[str, object] | None", getattr(span, "attributes", None))
    rollout_id = (held or {}).get(attributes.ROLLOUT_ID)
    return rollout_id if isinstance(rollout_id, str) else None


def with_rollout(running: "RunningTrajectory", context: Context | None = None, *, tell_others: bool = True) -> Context:
    """A context in which code belongs to a rollout; `tell_others`: also the code of other services that it calls."""
    if tell_others:
        context = baggage.set_baggage(attributes.ROLLOUT_ID, running.rollout_id, context)
        context = baggage.set_baggage(RUN_ENTRY, _run_name(), context)
    return otel_context.set_value(_RUNNING, running, context)


def running_trajectory(context: Context | None = None) -> "RunningTrajectory | None":
    """The rollout of this process that the code belongs to."""
    return cast("RunningTrajectory | None", otel_context.get_value(_RUNNING, context))


def current_rollout_id(context: Context | None = None) -> str | None:
    """The id of the rollout that the code belongs to, also of one that another service runs and that is believed."""
    running = running_trajectory(context)
    if running is not None:
        return running.rollout_id
    remote = remote_rollout_id(context)
    return remote if remote is not None and _is_believed(context) else None


def remote_rollout_id(context: Context | None = None) -> str | None:
    """The id that came with a request, whoever sent it."""
    remote = baggage.get_baggage(attributes.ROLLOUT_ID, context)
    return remote if isinstance(remote, str) and remote else None


def _is_believed(context: Context | None) -> bool:
    return _trust == "any" or (_trust == "own" and baggage.get_baggage(RUN_ENTRY, context) == _run_name())


def _run_name() -> str:
    return os.environ.get(RUN) or _UNNAMED_RUN


def with_untrained(label: str, context: Context | None = None) -> Context:
    """A context in which the policy does not learn from calls, also in other services; `label` says what they are for.

    Rollouts that begin in it, and gateways that get its requests, mark their own spans with it.
    """
    return baggage.set_baggage(attributes.UNTRAINED, label, context)


def untrained_label(context: Context | None = None) -> str | None:
    """What the calls of the code are for, if the policy does not learn from them."""
    label = baggage.get_baggage(attributes.UNTRAINED, context)
    return label if isinstance(label, str) and label else None


def detach(token: Token[Any]) -> None:
    """Give a context variable back what it was before the token, as one of OTel's context that was attached.

    This is impossible where a coroutine is closed by whoever collects it: it set the variable in its own task only.
    OTel logs an error then, and the variable raises ValueError.
    """
    with suppress(ValueError):
        token.var.reset(token)


class KeptContext:
    """A context for code that runs in pieces: each finds it as the one before has left it."""

    __slots__ = ("_context",)

    def __init__(self, context: Context) -> None:
        self._context = context

    def inside(self, call: Callable[_P, _R], *args: _P.args, **kwargs: _P.kwargs) -> _R:
        """Call it in the context. The next call finds the context as this one leaves it."""
        token = otel_context.attach(self._context)
        try:
            return call(*args, **kwargs)
        finally:
            self._context = otel_context.get_current()
            detach(token)

    async def inside_async(self, awaited: Awaitable[_R]) -> _R:
        """Await a value in the context. The next call finds the context as this one leaves it."""
        token = otel_context.attach(self._context)
        try:
            return await awaited
        finally:
            self._context = otel_context.get_current()
            detach(token)

    def attach(self) -> Token[Context]:
        """Make the code from here on run in the context, until what this gave is detached."""
        return otel_context.attach(self._context)


def in_context(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Bind a function to the current rollout, for a thread or a pool, because these start without a context.

    Write `pool.submit(in_context(ask), question)`.
    """
    here = otel_context.get_current()

    @wraps(function)
    def run(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        token = otel_context.attach(here)
        try:
            return function(*args, **kwargs)
        finally:
            detach(token)

    return run


_recorder: "RolloutBuffer | None" = None


def use_recorder(recorder: "RolloutBuffer | None") -> None:
    """Make this the one in which the rollouts of this process are recorded."""
    global _recorder  # noqa: PLW0603 # one a process, as the tracer provider is
    _recorder = recorder


def recorder() -> "RolloutBuffer | None":
    """Return what records the rollouts of this process. None where tracing is off, or the app exports spans itself.

    Without it the API still makes its spans, and knows nothing of what became of them.
    """
    return _recorder


class TakenRollout(NamedTuple):
    """A rollout, and the scope of the rollouts that begin inside it."""

    running: "RunningTrajectory"
    nested: "GatherScope"


class GatherScope:
    """`group_id` and `shared` are span attributes for rollouts that have none of them; `shared` for nested ones too.

    `rollouts` are those taken, in the order they began. `is_nested` says that the scope is inside a rollout: nobody
    waits for one to begin there.
    """

    def __init__(
        self, group_id: str | None = None, shared: "Mapping[str, ScalarValue] | None" = None, *, is_nested: bool = False
    ) -> None:
        self.is_nested = is_nested
        self.rollouts: list[TakenRollout] = []
        self.recorder: RolloutBuffer | None = None
        self.refusal: UsageError | None = None
        outer = scope_in(otel_context.get_current())
        self.shared: Mapping[str, ScalarValue] = {**({} if outer is None else outer.shared), **(shared or {})}
        of_group = {} if group_id is None else {attributes.GROUP_ID: group_id}
        self.span_attributes: Mapping[str, ScalarValue] = {**self.shared, **of_group}
        self._outer = outer if outer is not None and outer.is_nested and not is_nested else None

    def take(self, running: "RunningTrajectory") -> "GatherScope":
        """Keep a rollout that begins, and return its nested scope. Raises UsageError where nothing records."""
        self.recorder = recorder()
        nested = GatherScope(is_nested=True)
        if self.recorder is None:
            if self.is_nested:  # the recording ended meanwhile; nobody asked for this rollout
                return nested
            self.refusal = UsageError(
                "nothing records, so there is no trajectory to gather: tracing is turned off (ART_OTEL_ENABLED=0,"
                " OTEL_SDK_DISABLED=true or configure(enabled=False)), or the tracer provider takes no span processors"
            )
            raise self.refusal
        self.hold(TakenRollout(running, nested), self.recorder)
        if self._outer is not None:  # gathered inside a rollout that is gathered as well
            self._outer.hold(self.rollouts[-1], self.recorder)
        return nested

    def hold(self, taken: TakenRollout, recorder: "RolloutBuffer") -> None:
        """Keep a rollout until `release`."""
        self.recorder = recorder
        recorder.keep(taken.running.rollout_id)
        self.rollouts.append(taken)

    def release(self) -> None:
        """Let the recorder drop the rollouts: nobody waits for them any more."""
        if self.recorder is not None:
            for running, nested in self.rollouts:
                self.recorder.release(running.rollout_id)
                nested.release()


def all_running(rollouts: Sequence[TakenRollout]) -> "Iterator[RunningTrajectory]":
    """The rollouts and those nested in them, at any depth."""
    for running, nested in list(rollouts):
        yield running
        yield from all_running(nested.rollouts)


def scope_in(context: Context) -> GatherScope | None:
    """The scope that takes what begins in the context."""
    return cast(GatherScope | None, otel_context.get_value(_SCOPE, context))


def with_scope(scope: GatherScope, context: Context | None = None) -> Context:
    """The context (else the current one), in which what begins is taken by the scope."""
    return otel_context.set_value(_SCOPE, scope, context)


SCOPE: Final = "art_otel"

_cached: tuple[TracerProvider | None, Tracer | None] = (None, None)
_default_provider: TracerProvider | None = None


def use_default_provider(provider: TracerProvider | None) -> None:
    """Make this the one whose spans are recorded as long as the app sets none."""
    global _default_provider  # noqa: PLW0603 # one a process, as OTel's own is
    _default_provider = provider


def tracer() -> Tracer:
    """Return the tracer of art-otel from the current provider; without OTel's SDK its spans record nothing."""
    global _cached  # noqa: PLW0603 # one a provider; making a tracer costs more than a span
    provider = trace.get_tracer_provider()
    if _default_provider is not None and type(provider) is ProxyTracerProvider:
        provider = _default_provider
    cached_provider, cached_tracer = _cached
    if cached_tracer is None or cached_provider is not provider:
        cached_tracer = provider.get_tracer(SCOPE)
        _cached = (provider, cached_tracer)
    return cached_tracer
