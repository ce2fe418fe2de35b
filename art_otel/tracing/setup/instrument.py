"""Instrument: the openai client is instrumented once, and by the app's own choice where it makes one.

Invariant: an instrumentor that the app, or opentelemetry-instrument, starts is the one in use: ours never stands beside
it. Ours starts when `openai` has been imported and nobody instruments it; it gives way when somebody does later.
"""

import logging
import os
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final, cast

from opentelemetry import trace
from opentelemetry.metrics import NoOpMeterProvider
from opentelemetry.trace import NoOpTracerProvider, ProxyTracerProvider, TracerProvider
from wrapt import wrap_function_wrapper

from art_otel.tracing.setup.relay import RelayTracerProvider
from art_otel.tracing.setup.settings import MODULES, Instrumentor
from art_otel.tracing.setup.unwrap import unwrap

logger = logging.getLogger(__name__)

GROUP: Final = "opentelemetry_instrumentor"
CLIENT: Final = "openai"
INSTRUMENTOR_MODULE: Final = "opentelemetry.instrumentation.instrumentor"
DISABLED: Final = "OTEL_PYTHON_DISABLED_INSTRUMENTATIONS"


@dataclass(frozen=True, kw_only=True, slots=True)
class Installed:
    """An instrumentor of this environment. `kind` is None for one that is not known here."""

    kind: Instrumentor | None
    entry_point: EntryPoint

    @property
    def label(self) -> str:
        """What people call it."""
        return self.kind or self.entry_point.value

    @property
    def active(self) -> bool:
        """Whether it instruments the client now."""
        module = sys.modules.get(self.entry_point.module)
        # Making another instance would run __init__ on the one there is, which resets what the app has set.
        instance = getattr(getattr(module, self.entry_point.attr, None), "_instance", None)
        return bool(getattr(instance, "is_instrumented_by_opentelemetry", False))


def installed_instrumentors() -> list[Installed]:
    """Those of the openai client, the preferred first."""
    by_module: dict[str, Instrumentor] = {module: kind for kind, module in MODULES.items()}
    unique = {found.value: found for found in entry_points(group=GROUP, name=CLIENT)}
    found = [Installed(kind=by_module.get(entry.module), entry_point=entry) for entry in unique.values()]
    order = list(MODULES)
    return sorted(found, key=lambda one: len(order) if one.kind is None else order.index(one.kind))


def is_disabled(environ: Mapping[str, str]) -> bool:
    """Whether OTel's own variable says that the client is not to be instrumented."""
    return bool({CLIENT, "*"} & {name.strip() for name in environ.get(DISABLED, "").split(",")})


def _is_half_imported(name: str) -> bool:
    """Whether the import of a module has begun and not ended."""
    spec = getattr(sys.modules.get(name), "__spec__", None)
    return bool(getattr(spec, "_initializing", False))


class _Ours(RelayTracerProvider):
    """What our instrumentor makes spans with, until it gives way; wrappers that are left then pass calls through."""

    def __init__(self) -> None:
        self.is_active = True
        self._nothing = NoOpTracerProvider()

    def provider(self) -> TracerProvider:
        """The process's, or one that records nothing and keeps the parent of what is below."""
        return trace.get_tracer_provider() if self.is_active else self._nothing


class Instrumentation:
    """One a process. `on_provider` learns of providers that the app gives to an instrumentor of its own."""

    def __init__(self, on_provider: Callable[[TracerProvider], None]) -> None:
        self._on_provider = on_provider
        self._lock = threading.RLock()
        self._ours: tuple[Any, _Ours] | None = None
        self._starting: int | None = None
        self._awaited: tuple[str, Instrumentor] | None = None
        self._is_apps = False
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._after_fork)

    def watch(self) -> None:
        """Learn of every instrumentor that starts. Call it once OTel's BaseInstrumentor has been imported."""
        wrap_function_wrapper(INSTRUMENTOR_MODULE, "BaseInstrumentor.instrument", self._before_instrument)

    def start(self, wanted: Instrumentor, *, imported: str | None = None) -> None:
        """Instrument the client, which has been imported, unless somebody has or does.

        `imported` is a module whose import has just come to its end, which Python itself does not know yet.
        """
        with self._lock:
            if self._ours is not None:
                self._ours[1].is_active = True
            if self._is_apps or self._ours is not None or wanted == "none" or is_disabled(os.environ):
                return
            self._awaited = None
            found = installed_instrumentors()
            if any(one.active for one in found):
                return
            candidates = [one for one in found if wanted in ("auto", one.kind)]
            if not candidates:
                what = "an instrumentor of the openai client" if wanted == "auto" else wanted
                logger.warning("art-otel: LLM calls are not recorded: %s is not installed", what)
            for one in candidates:
                module = one.entry_point.module
                if one.kind is not None and module != imported and _is_half_imported(module):
                    self._awaited = (module, wanted)
                    return
                if self._start(one):
                    return

    def imported(self, module: str) -> None:
        """An instrumentor has been imported: start it if that was waited for, as where it imports the client itself."""
        awaited = self._awaited
        if awaited is not None and awaited[0] == module:
            self.start(awaited[1], imported=module)

    def pause(self) -> None:
        """Let calls pass through ours until `start`: to take it away and put it back takes a tenth of a second."""
        with self._lock:
            if self._ours is not None:
                self._ours[1].is_active = False

    def stop(self) -> None:
        """Take ours away."""
        with self._lock:
            if self._ours is not None:
                instrumentor, spans = self._ours
                self._ours = None
                spans.is_active = False
                instrumentor.uninstrument()
                unwrap(CLIENT, type(instrumentor).__module__)

    def _start(self, one: Installed) -> bool:
        self._starting = threading.get_ident()
        ours = _Ours()
        try:
            instrumentor = one.entry_point.load()()
            # Metrics are none of our business, and would count twice beside those of an instrumentor of the app.
            instrumentor.instrument(tracer_provider=ours, meter_provider=NoOpMeterProvider())
        except Exception as error:  # noqa: BLE001 # an instrumentor may fail in any way; the next one may do
            logger.warning("art-otel: %s does not start: %s: %s", one.entry_point.value, type(error).__name__, error)
            return False
        finally:
            self._starting = None
        if not instrumentor.is_instrumented_by_opentelemetry:  # it has said why: a version that it does not support
            return False
        self._ours = (instrumentor, ours)
        return True

    def _before_instrument(
        self,
        wrapped: Callable[..., object],
        instance: object,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> object:
        if self._starting != threading.get_ident():
            self._give_way(type(instance), kwargs)
        return wrapped(*args, **kwargs)

    def _give_way(self, kind: type, kwargs: Mapping[str, object]) -> None:
        try:
            names = {(one.entry_point.module, one.entry_point.attr) for one in installed_instrumentors()}
            if (kind.__module__, kind.__qualname__) not in names:
                return
            self._is_apps = True
            self.stop()
            provider = kwargs.get("tracer_provider")
            if provider is not None and not isinstance(provider, ProxyTracerProvider):  # one is still to be set
                self._on_provider(cast(TracerProvider, provider))
        except Exception:  # the app instruments here; no fault of ours may stop it
            logger.warning("art-otel: could not give way to %s", kind.__qualname__, exc_info=True)

    def _after_fork(self) -> None:
        self._lock = threading.RLock()
