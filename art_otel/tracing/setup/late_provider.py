"""LateTracerProvider: stands where the app's tracer provider will be, and makes ours only when none comes.

Invariant: an app that sets a provider of its own finds OTel as it would be without us: nothing set yet, no warning, and
every tracer moves over to what it set. Only when a span starts and nobody has set one is ours made, once a process.
"""

import logging
import os
import threading
from collections.abc import Callable
from typing import Any, Final, cast

from opentelemetry import trace
from opentelemetry.trace import NoOpTracerProvider, ProxyTracerProvider, TracerProvider
from wrapt import wrap_function_wrapper

from art_otel.tracing.setup.relay import RelayTracerProvider, can_relay

logger = logging.getLogger(__name__)

_GLOBAL: Final = "_TRACER_PROVIDER"
_SET: Final = "_set_tracer_provider"
_FROM_ENVIRONMENT: Final = "OTEL_PYTHON_TRACER_PROVIDER"
_NOTHING: Final = NoOpTracerProvider()


class LateTracerProvider(RelayTracerProvider):
    """`make` makes our provider, None while there is to be none."""

    def __init__(self, make: Callable[[], TracerProvider | None]) -> None:
        self._make = make
        self._made: TracerProvider | None = None
        self._lock = threading.RLock()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._after_fork)

    def provider(self) -> TracerProvider:
        """The app's, else ours."""
        set_by_app = cast(TracerProvider | None, getattr(trace, _GLOBAL))
        if set_by_app is not None and set_by_app is not self:
            return set_by_app
        with self._lock:
            if self._made is None:
                self._made = self._make_safely()
                if self._made is None:
                    return _NOTHING
                # The next tracers come from ours directly; an app may still set its own afterwards.
                setattr(trace, _GLOBAL, self._made)
            return self._made

    def withdraw(self) -> None:
        """Stand again where the provider that was made stands; the next span asks for another."""
        with self._lock:
            made, self._made = self._made, None
            if made is not None and getattr(trace, _GLOBAL) is made:
                setattr(trace, _GLOBAL, self)

    def _make_safely(self) -> TracerProvider | None:
        try:
            return self._make()
        except Exception:  # a span of the app starts here; it goes on without us
            logger.warning("art-otel: tracing could not begin; the app runs without it", exc_info=True)
            return _NOTHING

    def _after_fork(self) -> None:
        self._lock = threading.RLock()


def provider_in_use() -> TracerProvider | None:
    """The provider that the app, or we, have set; None while there is none."""
    provider = cast(TracerProvider | None, getattr(trace, _GLOBAL, None))
    return None if isinstance(provider, ProxyTracerProvider) else provider


def stand_in(late: LateTracerProvider, on_set: Callable[[TracerProvider], None]) -> bool:
    """Put `late` where nobody has set a provider, and tell `on_set` of each that will be set.

    False where OTel's internals are not as they were: then nothing was changed.
    """
    if not (hasattr(trace, _GLOBAL) and hasattr(trace, _SET) and can_relay()):
        return False

    def after_set(wrapped: Callable[..., None], _: object, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        wrapped(*args, **kwargs)
        provider = provider_in_use()
        if provider is not None:
            on_set(provider)

    wrap_function_wrapper(trace, _SET, after_set)
    if getattr(trace, _GLOBAL) is None and _FROM_ENVIRONMENT not in os.environ:
        setattr(trace, _GLOBAL, late)
    return True
