"""Client: what is done to client libraries: they are instrumented, and the answers of openai are captured.

Invariant: nothing of one is imported before the app imports it, and after `stop` its calls leave no trace.
"""

import os
import sys
from collections.abc import Mapping, MutableMapping
from functools import partial
from typing import TYPE_CHECKING, Final

from art_otel.tracing.internal_errors import after_import
from art_otel.tracing.setup.client_libraries import CLIENT_LIBRARIES, OPENAI, ClientLibrary
from art_otel.tracing.setup.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable

    from opentelemetry.trace import TracerProvider

    from art_otel.tracing.setup.instrument import Instrumentation

INSTRUMENTORS: Final = "opentelemetry.instrumentation.instrumentor"
_OFF: Final = Settings(enabled=False)


class Switches:
    """Variables that the instrumentors read. What the user has set stays; what we have set may change."""

    def __init__(self, environ: MutableMapping[str, str]) -> None:
        self._environ = environ
        self._written: dict[str, str] = {}

    def apply(self, wanted: Mapping[str, str]) -> None:
        """Set those that nobody else has."""
        for name, value in wanted.items():
            if self._environ.get(name) == self._written.get(name):
                self._environ[name] = self._written[name] = value

    def withdraw(self) -> None:
        """Take away those that we have set and nobody has changed."""
        for name, value in self._written.items():
            if self._environ.get(name) == value:
                del self._environ[name]
        self._written.clear()


class Client:
    """One a process. `on_provider` learns of providers that the app gives to an instrumentor of its own."""

    def __init__(self, on_provider: "Callable[[TracerProvider], None]") -> None:
        self._on_provider = on_provider
        self._settings = _OFF
        self._is_held = False
        self._is_hooked = False
        self._switches = Switches(os.environ)
        self._instrumentation: Instrumentation | None = None

    def begin(self, settings: Settings) -> None:
        """Act by these settings, now or when the app imports a client library."""
        self._settings = settings
        if not self._is_hooked:
            self._is_hooked = True
            after_import(INSTRUMENTORS, self._watch)
            for library in CLIENT_LIBRARIES:
                after_import(library.module, partial(self._start, library))
        else:
            self._start_imported()

    def hold(self) -> None:
        """Instrument nothing until `release`: opentelemetry-instrument is at it."""
        self._is_held = True

    def release(self) -> None:
        """Instrument each client library, now or when the app imports it, if nobody has."""
        self._is_held = False
        self._start_imported()

    def stop(self) -> None:
        """Leave the variables as they were and the clients alone; our instrumentors pass their calls through."""
        self._settings = _OFF
        self._switches.withdraw()
        if self._instrumentation is not None:
            self._instrumentation.pause()
        if OPENAI.module in sys.modules:
            from art_otel.tracing.openai import uninstall  # noqa: PLC0415

            uninstall()

    def _watch(self) -> None:
        """What all instrumentors are made of was imported; they look for their switches when they begin."""
        self._switch_content()
        self._instrumentations().watch()

    def _start_imported(self) -> None:
        for library in CLIENT_LIBRARIES:
            if library.module in sys.modules:
                self._start(library)

    def _start(self, library: ClientLibrary) -> None:
        """The library was imported."""
        if not self._settings.enabled:
            return
        self._switch_content()
        if library is OPENAI:
            self._capture()
        if not self._is_held:
            self._instrumentations().start(self._settings.instrumentor, library)

    def _switch_content(self) -> None:
        if self._settings.enabled:
            from art_otel.tracing.sdk.span_parts import content_environment  # noqa: PLC0415 # loads the SDK

            self._switches.apply(content_environment(self._settings.capture_content))

    def _capture(self) -> None:
        from art_otel.scrubbing import Scrubber  # noqa: PLC0415 # loaded with the client
        from art_otel.tracing.openai import install  # noqa: PLC0415 # as above
        from art_otel.tracing.setup.instrument import is_disabled  # noqa: PLC0415 # as above

        version = self._settings.policy_version
        install(
            request_tokens=self._settings.request_tokens,
            policy_version_header=self._settings.policy_version_header,
            policy_version=version if version is None or callable(version) else lambda: version,
            scrubber=None if self._settings.scrub == "off" else Scrubber(self._settings.scrub),
            makes_spans=not is_disabled(os.environ),
        )

    def _instrumentations(self) -> "Instrumentation":
        if self._instrumentation is None:
            from art_otel.tracing.setup.instrument import Instrumentation  # noqa: PLC0415 # reads the metadata of packages

            self._instrumentation = Instrumentation(self._on_provider)
        return self._instrumentation
