"""Context: which rollout the running code belongs to.

Invariant: what travels is OTel's own Context and W3C baggage, so a rollout crosses tasks, threads that were given the
context, and HTTP. Nothing here needs the SDK.
"""

from collections.abc import Callable
from contextlib import suppress
from contextvars import Token
from functools import wraps
from typing import TYPE_CHECKING, Final, ParamSpec, TypeVar, cast

from opentelemetry import baggage
from opentelemetry import context as otel_context
from opentelemetry.context import Context

from art_otel import attributes

if TYPE_CHECKING:
    from art_otel.tracing.api.running.running import RunningTrajectory

_RUNNING: Final = otel_context.create_key("art-otel-running")

_P = ParamSpec("_P")
_R = TypeVar("_R")


def with_rollout(running: "RunningTrajectory", context: Context | None = None, *, tell_others: bool = True) -> Context:
    """A context in which code belongs to a rollout; `tell_others`: also the code of other services that it calls."""
    if tell_others:
        context = baggage.set_baggage(attributes.ROLLOUT_ID, running.rollout_id, context)
    return otel_context.set_value(_RUNNING, running, context)


def running_trajectory(context: Context | None = None) -> "RunningTrajectory | None":
    """The rollout of this process that the code belongs to."""
    return cast("RunningTrajectory | None", otel_context.get_value(_RUNNING, context))


def current_rollout_id(context: Context | None = None) -> str | None:
    """The id of the rollout that the code belongs to, also of one that another service runs."""
    running = running_trajectory(context)
    if running is not None:
        return running.rollout_id
    remote = baggage.get_baggage(attributes.ROLLOUT_ID, context)
    return remote if isinstance(remote, str) and remote else None


def detach(token: Token[Context]) -> None:
    """Leave a context that was attached, as OTel does, which logs an error where that cannot be.

    It cannot be where a coroutine is closed by whoever collects it: what it attached was attached in its own task only.
    """
    with suppress(ValueError):
        token.var.reset(token)


def in_context(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Bind a function to the current rollout, for a thread or a pool, which start without a context.

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
