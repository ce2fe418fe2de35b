"""Configure: sets up the tracing of this process, once and as late as possible.

Invariant: there is one set-up in a process, however often it is asked for. Its costs come when they are needed: hooks
wait until a client library is imported, the SDK and the spool wait for the first span. OTel's global provider belongs
to the app: art-otel never sets it, and when the app does, even after the first spans, every tracer moves to the app's
provider without a warning. Only `configure()` raises, and only for the settings that its caller gave.
"""

import concurrent.futures.thread  # noqa: F401 # pyright: ignore[reportUnusedImport] # not to be had once the main thread has ended
import logging
import os
import threading
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, cast

from opentelemetry import trace
from opentelemetry.trace import ProxyTracer, ProxyTracerProvider, Tracer, TracerProvider
from wrapt import wrap_function_wrapper

from art_otel.errors import UsageError
from art_otel.forks import after_fork
from art_otel.runlog.folder import RunDefaults, use_run_defaults
from art_otel.spool.runs import name_run
from art_otel.tracing import autoload
from art_otel.tracing.api.context import recorder, use_default_provider
from art_otel.tracing.internal_errors import InternalErrorHandler, guarded, warn_once
from art_otel.tracing.setup.clients import Client
from art_otel.tracing.setup.settings import VARIABLES, Settings, read_settings, takes_settings, warn_of_unknown
from art_otel.tracing.setup.streamed_answers import watch_answers

if TYPE_CHECKING:
    from art_otel.tracing.setup.recording import Recording

logger = logging.getLogger(__name__)

_OFF: Final = Settings(enabled=False)
_GLOBAL: Final = "_TRACER_PROVIDER"
_SET: Final = "_set_tracer_provider"
_PROXIED: Final = "_tracer"
_SCOPE: Final = ("_instrumenting_module_name", "_instrumenting_library_version", "_schema_url", "_attributes")
_DEFAULT: Final = "_art_otel_default"
_MAKING: Final = InternalErrorHandler("tracing could not be started; the app runs without it")


@takes_settings(Settings)
def configure(**keywords: object) -> "Tracing":
    """Turn tracing on in this process. Each keyword also exists as an environment variable (docs/spec/settings.md).

    - Where it goes: `dir`, `spool`, `spool_days`, `exporters`; `project` and `model` for the run log.
    - What is recorded: `capture_content`, `scrub`, `scrub_patterns`, `scrub_keeps`, `request_tokens`, `policy_version`,
      `policy_version_header`, `closed_streams`, and by which `instrumentor`.
      `policy_version` may be a function, also of the request's model, such as `lambda model: model` for LoRA adapters.
    - Rollouts: `rollout_spans`, `rollout_attributes`, `split`, `trust_rollout_ids`, `grace_seconds`,
      `max_open_rollouts`, `max_rollout_hours`.

    Call it before the first span. A later call may add keywords; the keywords of earlier calls stay. `project` and
    `model` may change at any time. `ART_OTEL_ENABLED=0` turns tracing off. Raises UsageError for an invalid setting,
    and for a setting that differs from one with which spans were already recorded.
    """
    tracing.change(os.environ, keywords)
    return tracing


class Tracing:
    """The tracing of this process. `settings` are the ones in use; `client` hooks and instruments client libraries."""

    def __init__(self) -> None:
        self.settings = _OFF
        self._keywords: dict[str, object] = {}
        self._lock = threading.RLock()
        self._is_hooked = False
        self._recording: Recording | None = None
        self._own_provider: TracerProvider | None = None
        self._memory: Settings | None = None
        """The settings of `in_memory` while they are in use, by `_memory_users` blocks."""
        self._memory_users = 0
        self._memory_provider: TracerProvider | None = None
        self.client = Client(guarded(self._attach))
        after_fork(self._after_fork)

    def __repr__(self) -> str:
        where = self.settings.spool_folder or "memory"
        return f"<Tracing into {where}>" if self.settings.enabled else "<Tracing: off>"

    @property
    def is_set_up(self) -> bool:
        """Whether settings are in use, from `configure()`, the environment or `in_memory`."""
        return self.settings is not _OFF

    def flush(self, timeout: float = 30.0) -> bool:
        """Write all ended spans to the disk itself, within `timeout` seconds; False if that failed."""
        recording = self._recording
        return recording is None or recording.processor.force_flush(int(timeout * 1000))

    def shutdown(self) -> None:
        """End the process's own rollout, close the spool, and restore providers and clients.

        A later `configure()` begins anew.
        """
        with self._lock:
            self._let_go()
            self.settings, self._keywords = _OFF, {}
            autoload.turn_tracing(off=False)
            use_run_defaults(RunDefaults())

    @contextmanager
    def in_memory(self) -> Generator[None]:
        """Record in memory while the block runs, if nothing is set up. Nothing is written or exported.

        `configure()` inside the block replaces this. After the block OTel's API stays hooked, but gives no provider.
        """
        self._enter_memory()
        try:
            yield
        finally:
            self._leave_memory()

    def _enter_memory(self) -> None:
        with self._lock:
            self._memory_users += 1
            if self.is_set_up or recorder() is not None:
                return
            settings, problems = read_settings(os.environ, {"spool": False, "exporters": ()})
            for problem in problems:
                warn_once("%s; continuing without it", problem.text)
            if settings.enabled:
                self._memory = settings
                self.begin(settings)

    def _leave_memory(self) -> None:
        with self._lock:
            self._memory_users -= 1
            if self._memory_users or self._memory is None:
                return
            if self._memory is self.settings:
                self._let_go()
                self.settings = _OFF
            self._memory = None

    def change(self, environ: Mapping[str, str], keywords: Mapping[str, object]) -> None:
        """Set up by keywords and variables. Raises UsageError for an invalid setting, or one that comes too late."""
        with self._lock:
            asked = {**self._keywords, **keywords}
            settings, problems = read_settings(environ, asked)
            if problems:
                raise UsageError("; ".join(problem.text for problem in problems))
            self.begin(settings)
            self._keywords = {name: getattr(settings, name) for name in asked}  # paths stay where they were
            use_run_defaults(_run_defaults(settings, asked))

    def begin(self, settings: Settings) -> None:
        """Set up by these settings. Raises UsageError if spans were already recorded by other ones."""
        with self._lock:
            if settings == self.settings:
                return
            warn_of_unknown(os.environ)
            if self._recording is not None and replace(settings, **_of_run_log(self.settings)) == self.settings:
                self.settings = settings
                return
            self._require_nothing_recorded(settings)
            providers = self._let_go()
            self.settings = settings
            autoload.turn_tracing(off=not settings.enabled)
            if settings.enabled:
                self._set_up()
                for provider in providers:
                    self._attach(provider)

    def _set_up(self) -> None:
        if self.settings is not self._memory:
            name_run()  # now, so that processes which the app starts find the name and join this run
        self.client.begin(self.settings)
        if not self._is_hooked:
            self._is_hooked = True
            watch_answers()
            if not _hook_providers(guarded(self._attach), self._default_provider):
                problem = "opentelemetry-api has changed: an app without a tracer provider records nothing"
                logger.warning("art-otel: %s", problem)
        provider = _provider_in_use()
        if provider is not None:
            self._attach(provider)

    def _default_provider(self) -> TracerProvider | None:
        """Our provider for an app that has set none, made when it is needed; None where nothing is recorded."""
        own_provider = self._own_provider
        if own_provider is not None or not self.settings.enabled:
            return own_provider
        return self._make_provider()

    def _make_provider(self) -> TracerProvider | None:
        with self._lock, _MAKING:
            is_memory = self.settings is self._memory
            provider = self._own_provider or (self._memory_provider if is_memory else None)
            if provider is None:
                from art_otel.tracing.setup.providers import make_provider  # noqa: PLC0415 # loads the SDK

                provider = make_provider(self.settings, os.environ)
            if is_memory:
                self._memory_provider = provider
            self._attach(provider)
            self._own_provider = provider  # last, when it is complete: other threads read it without the lock
            use_default_provider(provider)
        return self._own_provider

    def _attach(self, provider: TracerProvider) -> None:
        with self._lock:
            if not self.settings.enabled:
                return
            if self._recording is None:
                from art_otel.tracing.setup.recording import make_recording  # noqa: PLC0415 # loads the SDK

                self._recording = make_recording(self.settings)
            self._recording.attach(provider)

    def _let_go(self) -> list[TracerProvider]:
        """Undo the set-up; returns the app's own providers that were recorded."""
        recording, self._recording = self._recording, None
        own_provider, self._own_provider = self._own_provider, None
        use_default_provider(None)
        self.client.stop()
        providers = [] if recording is None else recording.end()
        return [provider for provider in providers if provider is not own_provider]

    def _require_nothing_recorded(self, settings: Settings) -> None:
        if self._recording is None or not self._recording.begun or self.settings is self._memory:
            return
        changed = [name for name in VARIABLES if getattr(settings, name) != getattr(self.settings, name)]
        raise UsageError(
            f"{', '.join(changed)}: spans were recorded by other settings already; call art_otel.configure() before the"
            " first span, or call shutdown() on its result"
        )

    def _after_fork(self) -> None:
        self._lock = threading.RLock()


def _of_run_log(settings: Settings) -> dict[str, Any]:
    """The settings that do not affect recording, so that they may change at any time."""
    return {"project": settings.project, "model": settings.model}


def _run_defaults(settings: Settings, keywords: Mapping[str, object]) -> RunDefaults:
    """The defaults for run logs that keywords set. The variables are read by the run logs themselves."""
    return RunDefaults(
        project=settings.project if "project" in keywords else None,
        model=settings.model if "model" in keywords else None,
        dir=settings.dir if "dir" in keywords else None,
    )


def _provider_in_use() -> TracerProvider | None:
    """The global provider that the app has set; None where it has set none."""
    provider = cast(TracerProvider | None, getattr(trace, _GLOBAL, None))
    return None if isinstance(provider, ProxyTracerProvider) else provider


def _hook_providers(on_set: Callable[[TracerProvider], None], default: Callable[[], TracerProvider | None]) -> bool:
    """Hook OTel's API: call `on_set` with each provider that is set; while none is set, spans are made by `default()`.

    Returns False, with nothing changed, if this version of the API has other internals.
    """
    native = vars(ProxyTracer).get(_PROXIED)
    proxy_fields = vars(ProxyTracer("", None, None))
    if not isinstance(native, property) or not all(hasattr(trace, name) for name in (_GLOBAL, _SET)):
        return False
    if not proxy_fields.keys() >= set(_SCOPE):
        return False

    def tracer(proxy: ProxyTracer) -> Tracer:
        provider = default() if getattr(trace, _GLOBAL) is None else None
        return cast(Tracer, native.__get__(proxy)) if provider is None else _tracer_of(proxy, provider)

    def after_set(wrapped: Callable[..., None], _: object, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        wrapped(*args, **kwargs)
        provider = _provider_in_use()
        if provider is not None:
            on_set(provider)

    setattr(ProxyTracer, _PROXIED, property(tracer))
    wrap_function_wrapper(trace, _SET, after_set)
    return True


def _tracer_of(proxy: ProxyTracer, provider: TracerProvider) -> Tracer:
    """The tracer of the provider for a proxy tracer's scope; remembered on the proxy."""
    cached: tuple[TracerProvider, Tracer] | None = vars(proxy).get(_DEFAULT)
    if cached is None or cached[0] is not provider:
        scope = [vars(proxy)[name] for name in _SCOPE]
        cached = vars(proxy)[_DEFAULT] = (provider, provider.get_tracer(*scope))
    return cached[1]


tracing: Final = Tracing()
