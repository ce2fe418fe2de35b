"""Client: what is done to the openai client: it is instrumented, and its answers are captured.

Invariant: nothing of it is imported before the app imports it, and after `stop` its calls leave no trace.
"""

import os
import sys
from collections.abc import Mapping, MutableMapping
from typing import TYPE_CHECKING, Final

from art_otel.tracing.import_hooks import after_import
from art_otel.tracing.setup.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable

    from opentelemetry.trace import TracerProvider

    from art_otel.tracing.setup.instrument import Instrumentation

CLIENT: Final = "openai"
INSTRUMENTORS: Final = "opentelemetry.instrumentation.instrumentor"
_OFF: Final = Settings(enabled=False)


class Switches:
    """Variables that the instrumentors read. What the user has set stays; what we have set may change."""

    def __init__(self, environ: MutableMapping[str, str]) -> None:
        self._environ = environ
        self._ours: dict[str, str] = {}

    def apply(self, wanted: Mapping[str, str]) -> None:
        """Set those that nobody else has."""
        for name, value in wanted.items():
            if self._environ.get(name) == self._ours.get(name):
                self._environ[name] = self._ours[name] = value

    def withdraw(self) -> None:
        """Take away those that we have set and nobody has changed."""
        for name, value in self._ours.items():
            if self._environ.get(name) == value:
                del self._environ[name]
        self._ours.clear()


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
        """Act by these settings, now or when the app imports the client."""
        self._settings = settings
        if not self._is_hooked:
            self._is_hooked = True
            after_import(INSTRUMENTORS, self._watch)
            after_import(CLIENT, self._start)
        elif CLIENT in sys.modules:
            self._start()

    def hold(self) -> None:
        """Instrument nothing until `release`: opentelemetry-instrument is at it."""
        self._is_held = True

    def release(self) -> None:
        """Instrument the client, now or when the app imports it, if nobody has."""
        self._is_held = False
        if CLIENT in sys.modules:
            self._start()

    def stop(self) -> None:
        """Leave the variables as they were and the client to itself; our instrumentor passes its calls through."""
        self._settings = _OFF
        self._switches.withdraw()
        if self._instrumentation is not None:
            self._instrumentation.pause()
        if CLIENT in sys.modules:
            from art_otel.tracing.openai import uninstall  # noqa: PLC0415

            uninstall()

    def _watch(self) -> None:
        """What all instrumentors are made of was imported; they look for their switches when they begin."""
        self._switch_content()
        self._instrumentations().watch()

    def _start(self) -> None:
        """The client was imported."""
        if not self._settings.enabled:
            return
        self._switch_content()
        self._capture()
        if not self._is_held:
            self._instrumentations().start(self._settings.instrumentor)

    def _switch_content(self) -> None:
        if self._settings.enabled:
            from art_otel.tracing.sdk.content import content_environment  # noqa: PLC0415 # loads the SDK

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
