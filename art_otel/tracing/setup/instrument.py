"""Instrument: the openai client is instrumented once, and by the app's own choice where it makes one.

Invariant: an instrumentor that the app, or opentelemetry-instrument, starts is the one in use: ours never stands beside
it. Ours starts when `openai` has been imported and nobody instruments it; it gives way when somebody does later. What
wrappers it leaves then (OpenLLMetry's do not all go) pass calls through.
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
from opentelemetry.trace import NoOpTracer, ProxyTracerProvider, Span, Tracer, TracerProvider
from wrapt import wrap_function_wrapper

from art_otel.tracing.setup.settings import MODULES, Instrumentor

logger = logging.getLogger(__name__)

GROUP: Final = "opentelemetry_instrumentor"
CLIENT: Final = "openai"
INSTRUMENTOR_MODULE: Final = "opentelemetry.instrumentation.instrumentor"
DISABLED: Final = "OTEL_PYTHON_DISABLED_INSTRUMENTATIONS"
_NOTHING: Final = NoOpTracer()


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
    """Whether the import of a module has begun and not ended, as where the app's own import of it brings the client."""
    spec = getattr(sys.modules.get(name), "__spec__", None)
    return bool(getattr(spec, "_initializing", False))


class _Pausable(TracerProvider):
    """What our instrumentor makes spans with: the process's provider, and nothing while it is not `active`.

    Then its wrappers pass calls through, and what is below a call keeps its parent.
    """

    def __init__(self, kind: Instrumentor | None) -> None:
        self.kind = kind
        self.active = True

    def get_tracer(self, *scope: Any, **named: Any) -> Tracer:  # noqa: ANN401 # as OTel
        """A tracer that asks for each span."""
        return _PausableTracer(self, trace.get_tracer_provider().get_tracer(*scope, **named))


class _PausableTracer(Tracer):
    def __init__(self, provider: _Pausable, inner: Tracer) -> None:
        self._provider = provider
        self._inner = inner

    @property
    def _tracer(self) -> Tracer:
        return self._inner if self._provider.active else _NOTHING

    def start_span(self, *given: Any, **named: Any) -> Span:  # noqa: ANN401 # as OTel
        return self._tracer.start_span(*given, **named)

    def start_as_current_span(self, *given: Any, **named: Any) -> Any:  # noqa: ANN401 # as OTel
        return self._tracer.start_as_current_span(*given, **named)


class Instrumentation:
    """One a process. `on_provider` learns of providers that the app gives to an instrumentor of its own."""

    def __init__(self, on_provider: Callable[[TracerProvider], None]) -> None:
        self._on_provider = on_provider
        self._lock = threading.RLock()
        self._ours: tuple[Any, _Pausable] | None = None
        self._starting: int | None = None
        self._is_apps = False
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._after_fork)

    def watch(self) -> None:
        """Learn of every instrumentor that starts. Call it once OTel's BaseInstrumentor has been imported."""
        wrap_function_wrapper(INSTRUMENTOR_MODULE, "BaseInstrumentor.instrument", self._before_instrument)

    def start(self, wanted: Instrumentor) -> None:
        """Instrument the client, which has been imported, unless somebody has or does."""
        with self._lock:
            if self._ours is not None and wanted in ("auto", self._ours[1].kind):
                self._ours[1].active = True
                return
            self._take_away()
            found = installed_instrumentors()
            if self._is_apps or wanted == "none" or is_disabled(os.environ) or any(one.active for one in found):
                return
            candidates = [one for one in found if wanted in ("auto", one.kind)]
            if not candidates and wanted != "auto":
                logger.warning("art-otel: %s is not installed; the calls of the client get spans of art-otel", wanted)
            for one in candidates:
                if _is_half_imported(one.entry_point.module) or self._start(one):
                    return

    def pause(self) -> None:
        """Let calls pass through ours until `start`: to take it away and put it back takes a tenth of a second."""
        with self._lock:
            if self._ours is not None:
                self._ours[1].active = False

    def _take_away(self) -> None:
        with self._lock:
            if self._ours is not None:
                instrumentor, spans = self._ours
                self._ours = None
                spans.active = False
                instrumentor.uninstrument()

    def _start(self, one: Installed) -> bool:
        self._starting = threading.get_ident()
        ours = _Pausable(one.kind)
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
            self._take_away()
            provider = kwargs.get("tracer_provider")
            if provider is not None and not isinstance(provider, ProxyTracerProvider):  # one is still to be set
                self._on_provider(cast(TracerProvider, provider))
        except Exception:  # the app instruments here; no fault of ours may stop it
            logger.warning("art-otel: could not give way to %s", kind.__qualname__, exc_info=True)

    def _after_fork(self) -> None:
        self._lock = threading.RLock()
