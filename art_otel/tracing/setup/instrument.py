"""Instrument: starts one instrumentor for each client library, unless the app starts one itself.

    the app, or opentelemetry-instrument, starts one     that one is used; ours is stopped
    the setting `instrumentor` names one                 that one is started, and records every request
    neither ("auto")                                     the preferred one is started, and bypassed for some requests

Invariant: two instrumentors never record one library at the same time. Some wrappers of a stopped instrumentor stay in
the library (OpenLLMetry's do); they pass calls through. In the third case two kinds of requests bypass the instrumentor
(`BYPASSED`) and get spans of art-otel: those that it would break, and those whose spans go to the spool only.
"""

import logging
import os
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final, NamedTuple, cast

from opentelemetry import trace
from opentelemetry.instrumentation.dependencies import get_dist_dependency_conflicts
from opentelemetry.metrics import NoOpMeterProvider
from opentelemetry.trace import NoOpTracer, ProxyTracerProvider, Span, Tracer, TracerProvider
from wrapt import wrap_function_wrapper

from art_otel.forks import after_fork
from art_otel.tracing.internal_errors import is_of_signal
from art_otel.tracing.openai.capture import lead_around_openllmetry
from art_otel.tracing.openai.client import Patches
from art_otel.tracing.setup.clients import (
    BY_ENTRY_POINT,
    BYPASSED,
    INSTRUMENTORS,
    OPENAI,
    OPENAI_INSTRUMENTORS,
    ClientLibrary,
)
from art_otel.tracing.setup.settings import Instrumentor

logger = logging.getLogger(__name__)

GROUP: Final = "opentelemetry_instrumentor"
DISABLED: Final = "OTEL_PYTHON_DISABLED_INSTRUMENTATIONS"
_NOTHING: Final = NoOpTracer()


@dataclass(frozen=True, kw_only=True, slots=True)
class InstalledInstrumentor:
    """An installed instrumentor. `kind` is its name in the setting `instrumentor`; None where it has none."""

    kind: Instrumentor | None
    entry_point: EntryPoint

    @property
    def label(self) -> str:
        """The name in settings, else the entry point."""
        return self.kind or self.entry_point.value

    @property
    def library(self) -> ClientLibrary:
        """The client library that this instrumentor is for."""
        return BY_ENTRY_POINT[self.entry_point.name]

    @property
    def refuses(self) -> str | None:
        """Why the instrumentor does not start: the version that it supports, and the installed one; else None."""
        dist = self.entry_point.dist
        conflict = None if dist is None else get_dist_dependency_conflicts(dist)
        if conflict is None or not conflict.found:
            return None
        required, _, _ = str(conflict.required).partition(";")
        return f"{required} only, and {conflict.found} is installed"

    @property
    def rank(self) -> int:
        """The position among the instrumentors of the library; 0 is the preferred one."""
        order = self.library.instrumentors
        return order.index(self.entry_point.module) if self.entry_point.module in order else len(order)

    @property
    def active(self) -> bool:
        """Whether the instrumentor is started now."""
        module = sys.modules.get(self.entry_point.module)
        # Making another instance would run __init__ on the one there is, which resets what the app has set.
        instance = getattr(getattr(module, self.entry_point.attr, None), "_instance", None)
        return bool(getattr(instance, "is_instrumented_by_opentelemetry", False))


def installed_instrumentors() -> list[InstalledInstrumentor]:
    """The installed instrumentors of client libraries, the preferred ones first."""
    kinds: dict[str, Instrumentor] = {module: kind for kind, module in OPENAI_INSTRUMENTORS.items()}
    unique = {entry.value: entry for entry in entry_points(group=GROUP) if entry.name in BY_ENTRY_POINT}
    installed = [InstalledInstrumentor(kind=kinds.get(entry.module), entry_point=entry) for entry in unique.values()]
    return sorted(installed, key=lambda one: one.rank)


def is_disabled(environ: Mapping[str, str], library: ClientLibrary = OPENAI) -> bool:
    """Whether OTEL_PYTHON_DISABLED_INSTRUMENTATIONS names the client library."""
    return bool({*library.entry_points, "*"} & {name.strip() for name in environ.get(DISABLED, "").split(",")})


def _is_half_imported(name: str) -> bool:
    """Whether the import of a module is still running: the app imports an instrumentor, which imports its client."""
    spec = getattr(sys.modules.get(name), "__spec__", None)
    return bool(getattr(spec, "_initializing", False))


class _Pausable(TracerProvider):
    """The provider for our instrumentor: the process's own one, or, while it is not `active`, one without spans.

    So an instrumentor can be paused: its wrappers then pass calls through, and spans below a call keep their parent.
    """

    def __init__(self) -> None:
        self.active = True

    def get_tracer(self, *scope: Any, **kwargs: Any) -> Tracer:  # noqa: ANN401 # as OTel
        """A tracer that looks at `active` for each span."""
        return _PausableTracer(self, trace.get_tracer_provider().get_tracer(*scope, **kwargs))


class _PausableTracer(Tracer):
    def __init__(self, provider: _Pausable, inner: Tracer) -> None:
        self._provider = provider
        self._inner = inner

    @property
    def _tracer(self) -> Tracer:
        return self._inner if self._provider.active else _NOTHING

    def start_span(self, *args: Any, **kwargs: Any) -> Span:  # noqa: ANN401 # as OTel
        return self._tracer.start_span(*args, **kwargs)

    def start_as_current_span(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 # as OTel
        return self._tracer.start_as_current_span(*args, **kwargs)


class _Started(NamedTuple):
    """An instrumentor that art-otel has started for the setting `wanted`, with its provider.

    `bypass` are the patches that lead some requests around the instrumentor.
    """

    wanted: Instrumentor
    instrumentor: Any
    provider: _Pausable
    bypass: Patches


class Instrumentation:
    """Starts and stops instrumentors; one in a process.

    `on_provider` is called with a provider that the app gives to an instrumentor of its own.
    """

    def __init__(self, on_provider: Callable[[TracerProvider], None]) -> None:
        self._on_provider = on_provider
        self._lock = threading.RLock()
        self._started: dict[str, _Started] = {}
        self._starting: int | None = None
        self._by_app: set[str] = set()
        after_fork(self._after_fork)

    def watch(self) -> None:
        """Notice every instrumentor that is started. Call it after OTel's BaseInstrumentor has been imported."""
        wrap_function_wrapper(INSTRUMENTORS, "BaseInstrumentor.instrument", self._before_instrument)

    def start(self, wanted: Instrumentor, library: ClientLibrary = OPENAI) -> None:
        """Instrument an imported client library, unless the app or opentelemetry-instrument has done so.

        `wanted` names an instrumentor of the openai client; for other libraries only "none" makes a difference.
        """
        if library is not OPENAI and wanted != "none":
            wanted = "auto"
        with self._lock:
            started = self._started.get(library.module)
            if started is not None and started.wanted == wanted:
                started.provider.active = True
                return
            self._take_away(library)
            if library.module in self._by_app or wanted == "none" or is_disabled(os.environ, library):
                return
            installed = [one for one in installed_instrumentors() if one.library is library]
            if any(one.active for one in installed):
                return
            candidates = [one for one in installed if wanted in ("auto", one.kind)]
            if not candidates and wanted != "auto":
                logger.warning("art-otel: %s is not installed; the calls of the client get spans of art-otel", wanted)
            for one in candidates:
                if _is_half_imported(one.entry_point.module) or self._start(one, wanted):
                    return

    def pause(self) -> None:
        """Make no spans by our instrumentors until `start`. They stay installed: restarting one takes 0.1 s."""
        with self._lock:
            for started in self._started.values():
                started.provider.active = False

    def _take_away(self, library: ClientLibrary) -> None:
        with self._lock:
            started = self._started.pop(library.module, None)
            if started is not None:
                started.provider.active = False
                started.bypass.undo()
                started.instrumentor.uninstrument()

    def _start(self, one: InstalledInstrumentor, wanted: Instrumentor) -> bool:
        self._starting = threading.get_ident()
        provider = _Pausable()
        try:
            instrumentor = one.entry_point.load()()
            # Without metrics: art-otel does not use them, and beside the app's own they would count twice.
            instrumentor.instrument(tracer_provider=provider, meter_provider=NoOpMeterProvider())
        except Exception as error:  # an instrumentor may fail in any way; the next one may do
            if is_of_signal(error):
                raise
            logger.warning("art-otel: %s cannot be started: %s: %s", one.entry_point.value, type(error).__name__, error)
            return False
        finally:
            self._starting = None
        if not instrumentor.is_instrumented_by_opentelemetry:  # an unsupported version, which the instrumentor logged
            return False
        bypass = lead_around_openllmetry() if wanted == "auto" and one.kind in BYPASSED else Patches()
        self._started[one.library.module] = _Started(wanted, instrumentor, provider, bypass)
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
            class_path = (kind.__module__, kind.__qualname__)
            libraries = {
                one.library.module: one.library
                for one in installed_instrumentors()
                if (one.entry_point.module, one.entry_point.attr) == class_path
            }
            if not libraries:
                return
            self._by_app |= libraries.keys()
            for library in libraries.values():
                self._take_away(library)
            provider = kwargs.get("tracer_provider")
            if provider is not None and not isinstance(provider, ProxyTracerProvider):  # one is still to be set
                self._on_provider(cast(TracerProvider, provider))
        except Exception:  # the app instruments here; no fault of ours may stop it
            logger.warning(
                "art-otel: could not hand over to %s, which the app started", kind.__qualname__, exc_info=True
            )

    def _after_fork(self) -> None:
        self._lock = threading.RLock()
