"""Context: which rollout the running code belongs to, who gathers the rollouts that begin, and which tracer is used.

Invariant: a rollout travels by OTel's own Context and by W3C baggage; so it crosses tasks, threads that were given the
context, and HTTP. An id in the baggage is believed as `trust_rollout_ids` says. Gathering works by scopes:

    gather ─► GatherScope ─ takes ─► rollout A ─ opens ─► nested GatherScope ─ takes ─► rollouts that begin inside A

The recorder keeps all taken rollouts until the scope's `release`.
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
"""A function of the app that returns the version of the weights that sample now, for the model of a request."""

Trust: TypeAlias = Literal["own", "any", "none"]
"""Which rollout ids in requests are believed: those from processes of the same run, all, or none."""

_RUNNING: Final = otel_context.create_key("art-otel-running")
_SCOPE: Final = otel_context.create_key("art-otel-gather-scope")
RUN_ENTRY: Final = "art_otel.run"
"""The baggage entry that names the run of the rollout."""
TRACE_STATE: Final = "art-otel"
RECORDED: Final = "recorded"
"""`art-otel=recorded` in W3C's tracestate: the app records this trace although it is not sampled."""

_UNNAMED_RUN: Final = os.urandom(8).hex()
"""The name of the run where the environment has none: this process and its forks. Gathering without a set-up does not
change the environment."""

_trust: Trust = "own"
_rollout_spans: Sequence[str] = ()

_P = ParamSpec("_P")
_R = TypeVar("_R")


def trust_rollout_ids(trust: Trust) -> None:
    """Set which rollout ids in requests this process believes."""
    global _trust  # noqa: PLW0603 # one a process, as the settings are
    _trust = trust


def name_rollout_spans(globs: Sequence[str]) -> None:
    """Set the globs of span names; a matching span of any library is a rollout in this process."""
    global _rollout_spans  # noqa: PLW0603 # one a process, as the settings are
    _rollout_spans = globs


def span_of_named_rollout() -> Span | None:
    """The current span, if globs of span names are set, so that a reward without a target can go to its rollout.

    A span that has ended counts, too, if it is in a rollout: a background task may go on after its request's answer.
    """
    span = trace.get_current_span()
    return span if _rollout_spans and (span.is_recording() or rollout_id_of(span) is not None) else None


def rollout_id_of(span: Span) -> str | None:
    """The id of the rollout in which a span of this process is recorded; None where it is in none."""
    held = cast("Mapping[str, object] | None", getattr(span, "attributes", None))
    rollout_id = (held or {}).get(attributes.ROLLOUT_ID)
    return rollout_id if isinstance(rollout_id, str) else None


def with_rollout(running: "RunningTrajectory", context: Context | None = None, *, tell_others: bool = True) -> Context:
    """The context for the code of a rollout. `tell_others`: services that it calls get the rollout's id as baggage."""
    if tell_others:
        context = baggage.set_baggage(attributes.ROLLOUT_ID, running.rollout_id, context)
        context = baggage.set_baggage(RUN_ENTRY, _run_name(), context)
    return otel_context.set_value(_RUNNING, running, context)


def running_trajectory(context: Context | None = None) -> "RunningTrajectory | None":
    """The rollout of this process in which the code runs; None outside of rollouts."""
    return cast("RunningTrajectory | None", otel_context.get_value(_RUNNING, context))


def current_rollout_id(context: Context | None = None) -> str | None:
    """The id of the rollout in which the code runs; also of another service's rollout, if its id is believed."""
    running = running_trajectory(context)
    if running is not None:
        return running.rollout_id
    remote = remote_rollout_id(context)
    return remote if remote is not None and _is_believed(context) else None


def remote_rollout_id(context: Context | None = None) -> str | None:
    """The rollout id that came with a request as baggage, whether it is believed or not."""
    remote = baggage.get_baggage(attributes.ROLLOUT_ID, context)
    return remote if isinstance(remote, str) and remote else None


def _is_believed(context: Context | None) -> bool:
    return _trust == "any" or (_trust == "own" and baggage.get_baggage(RUN_ENTRY, context) == _run_name())


def _run_name() -> str:
    return os.environ.get(RUN) or _UNNAMED_RUN


def with_untrained(label: str, context: Context | None = None) -> Context:
    """A context whose calls are not trained, also in other services; `label` says what the calls are for ("judge").

    Rollouts that begin in the context, and gateways that get its requests, mark their own spans with the label.
    """
    return baggage.set_baggage(attributes.UNTRAINED, label, context)


def untrained_label(context: Context | None = None) -> str | None:
    """The label of the untrained calls in this context; None where calls are trained."""
    label = baggage.get_baggage(attributes.UNTRAINED, context)
    return label if isinstance(label, str) and label else None


def detach(token: Token[Any]) -> None:
    """Reset a context variable to its value before the token; used in the place of OTel's `detach`.

    A coroutine may be closed in another context than it ran in, for example by the garbage collector. Then there is
    nothing to reset: the variable raises ValueError, which is ignored here, while OTel's `detach` logs an error.
    """
    with suppress(ValueError):
        token.var.reset(token)


class KeptContext:
    """The context of code that runs in pieces, as a generator does: each piece finds it as the last one left it."""

    __slots__ = ("_context",)

    def __init__(self, context: Context) -> None:
        self._context = context

    def inside(self, call: Callable[_P, _R], *args: _P.args, **kwargs: _P.kwargs) -> _R:
        """Call a function in the context. The next call finds the context as this one leaves it."""
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
        """Make the context the current one, until the returned token is detached."""
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
    """Set the buffer in which the rollouts of this process are recorded; None for none."""
    global _recorder  # noqa: PLW0603 # one a process, as the tracer provider is
    _recorder = recorder


def recorder() -> "RolloutBuffer | None":
    """The buffer in which the rollouts of this process are recorded.

    None where tracing is off, or where the app exports spans without art-otel's processor. Then the API still makes its
    spans, but cannot read them back.
    """
    return _recorder


class TakenRollout(NamedTuple):
    """A rollout that a GatherScope has taken, and the scope for the rollouts that begin inside it."""

    running: "RunningTrajectory"
    nested: "GatherScope"


class GatherScope:
    """Takes the rollouts that begin in its context, so that their trajectories can be gathered.

    - `group_id`, `shared`: span attributes for rollouts that do not set them; `shared` also for nested rollouts.
    - `rollouts`: the taken rollouts, in the order in which they began.
    - `is_nested`: the scope is inside a rollout, so it is no error if nothing records or no rollout begins.
    - `refusal`: the error that was raised because nothing records.
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
            if self.is_nested:  # the recording ended meanwhile, and no caller waits for a nested rollout
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
        """Have the recorder keep a rollout until `release`."""
        self.recorder = recorder
        recorder.keep(taken.running.rollout_id)
        self.rollouts.append(taken)

    def release(self) -> None:
        """Let the recorder drop the taken rollouts, nested ones too."""
        if self.recorder is not None:
            for running, nested in self.rollouts:
                self.recorder.release(running.rollout_id)
                nested.release()


def all_running(rollouts: Sequence[TakenRollout]) -> "Iterator[RunningTrajectory]":
    """Iterate over the rollouts and all rollouts nested in them."""
    for running, nested in list(rollouts):
        yield running
        yield from all_running(nested.rollouts)


def scope_in(context: Context) -> GatherScope | None:
    """The scope that takes rollouts which begin in this context; None where they are not gathered."""
    return cast(GatherScope | None, otel_context.get_value(_SCOPE, context))


def with_scope(scope: GatherScope, context: Context | None = None) -> Context:
    """A context (made from the given or the current one) in which the scope takes the rollouts that begin."""
    return otel_context.set_value(_SCOPE, scope, context)


SCOPE: Final = "art_otel"

_cached: tuple[TracerProvider | None, Tracer | None] = (None, None)
_default_provider: TracerProvider | None = None


def use_default_provider(provider: TracerProvider | None) -> None:
    """Set the provider whose spans are recorded as long as the app sets none itself."""
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
