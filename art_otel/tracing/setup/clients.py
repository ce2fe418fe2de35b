"""Clients: the client libraries whose calls are recorded, and their instrumentors.

Invariant: each client library is one row of `CLIENT_LIBRARIES`; the start of instrumentors and the doctor read the
rows. A library is not imported before the app imports it, and after `stop` its calls leave no spans.
"""

import os
import sys
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from art_otel.tracing.internal_errors import after_import
from art_otel.tracing.setup.settings import Instrumentor, Settings

if TYPE_CHECKING:
    from collections.abc import Callable

    from opentelemetry.trace import TracerProvider

    from art_otel.tracing.setup.instrument import Instrumentation

INSTRUMENTORS: Final = "opentelemetry.instrumentation.instrumentor"
_OFF: Final = Settings(enabled=False)


OPENAI_INSTRUMENTORS: Final[Mapping[Instrumentor, str]] = {
    "openllmetry": "opentelemetry.instrumentation.openai",
    "genai-openai": "opentelemetry.instrumentation.genai.openai",
    "openinference": "openinference.instrumentation.openai",
    "openai-v2": "opentelemetry.instrumentation.openai_v2",
}
"""The modules of the instrumentors of the openai client, the preferred one first."""

BREAKING: Final[Mapping[Instrumentor | None, str]] = {
    "openllmetry": "instructor, Starlette's StreamingResponse and `with` of Completions raise TypeError",
    "openinference": "instructor and Starlette's StreamingResponse raise TypeError",
}
"""What instrumentors of the openai client break in an app that streams (OpenLLMetry 0.62.4, OpenInference 0.1.66)."""

BYPASSED: Final[frozenset[Instrumentor | None]] = frozenset[Instrumentor | None]({"openllmetry"})
"""The instrumentors that art-otel bypasses for such requests, if it chose them itself (`tracing.setup.instrument`)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ClientLibrary:
    """A client library for models.

    - `module`: what an app imports. `distribution`: what pip installs.
    - `entry_points`: the names under which its instrumentors are registered with OTel.
    - `instrumentors`: the modules of those that record content, the preferred one first.
    - `extra`: the extra of art-otel that installs an instrumentor; None where art-otel itself requires one.
    - `is_general`: programs use the library for other things, too, so its presence does not mean LLM calls.
    - `is_framework`: the library runs tools, and its instrumentor records them.
    """

    module: str
    distribution: str
    entry_points: tuple[str, ...]
    instrumentors: tuple[str, ...]
    extra: str | None
    is_general: bool = False
    is_framework: bool = False


OPENAI: Final = ClientLibrary(
    module="openai",
    distribution="openai",
    entry_points=("openai",),
    instrumentors=tuple(OPENAI_INSTRUMENTORS.values()),
    extra=None,
)
CLIENT_LIBRARIES: Final = (
    OPENAI,
    ClientLibrary(
        module="anthropic",
        distribution="anthropic",
        entry_points=("anthropic",),
        instrumentors=(
            "opentelemetry.instrumentation.anthropic",
            "opentelemetry.instrumentation.genai.anthropic",
            "openinference.instrumentation.anthropic",
        ),
        extra="anthropic",
    ),
    ClientLibrary(
        module="google.genai",
        distribution="google-genai",
        entry_points=("google-genai", "google_genai"),
        # OTel's refuses google-genai 3.
        instrumentors=("openinference.instrumentation.google_genai", "opentelemetry.instrumentation.google_genai"),
        extra="google",
    ),
    ClientLibrary(
        module="litellm",
        distribution="litellm",
        entry_points=("litellm",),
        instrumentors=("openinference.instrumentation.litellm",),
        extra="litellm",
    ),
    ClientLibrary(
        module="boto3",
        distribution="boto3",
        entry_points=("boto3", "bedrock"),
        instrumentors=(
            "opentelemetry.instrumentation.bedrock",
            "opentelemetry.instrumentation.genai.bedrock",
            "openinference.instrumentation.bedrock",
        ),
        extra="bedrock",
        is_general=True,
    ),
    # Frameworks, which call models by one of the above, and tools by themselves.
    ClientLibrary(
        module="agents",
        distribution="openai-agents",
        entry_points=("openai_agents", "openai-agents"),
        instrumentors=("openinference.instrumentation.openai_agents", "opentelemetry.instrumentation.openai_agents"),
        extra=None,
        is_framework=True,
    ),
    ClientLibrary(
        module="langchain_core",  # LangGraph's too
        distribution="langchain-core",
        entry_points=("langchain",),
        instrumentors=("openinference.instrumentation.langchain", "opentelemetry.instrumentation.langchain"),
        extra=None,
        is_framework=True,
    ),
    ClientLibrary(
        module="smolagents",
        distribution="smolagents",
        entry_points=("smolagents",),
        instrumentors=("openinference.instrumentation.smolagents",),
        extra=None,
        is_framework=True,
    ),
)

BY_ENTRY_POINT: Final[Mapping[str, ClientLibrary]] = {
    name: library for library in CLIENT_LIBRARIES for name in library.entry_points
}


class Switches:
    """Environment variables that the instrumentors read.

    Values that the user has set stay; those that we set may change.
    """

    def __init__(self, environ: MutableMapping[str, str]) -> None:
        self._environ = environ
        self._written: dict[str, str] = {}

    def apply(self, wanted: Mapping[str, str]) -> None:
        """Set the variables that are unset, or that have the value that we set before."""
        for name, value in wanted.items():
            if self._environ.get(name) == self._written.get(name):
                self._environ[name] = self._written[name] = value

    def withdraw(self) -> None:
        """Unset the variables that we have set, if they still have our value."""
        for name, value in self._written.items():
            if self._environ.get(name) == value:
                del self._environ[name]
        self._written.clear()


class Client:
    """What art-otel does to the client libraries; one in a process.

    `on_provider` is called with a provider that the app gives to an instrumentor of its own.
    """

    def __init__(self, on_provider: "Callable[[TracerProvider], None]") -> None:
        self._on_provider = on_provider
        self._settings = _OFF
        self._is_held = False
        self._is_hooked = False
        self._switches = Switches(os.environ)
        self._instrumentation: Instrumentation | None = None

    def begin(self, settings: Settings) -> None:
        """Apply the settings to each client library, now or when the app imports it."""
        self._settings = settings
        if not self._is_hooked:
            self._is_hooked = True
            after_import(INSTRUMENTORS, self._watch)
            for library in CLIENT_LIBRARIES:
                after_import(library.module, partial(self._start, library))
        else:
            self._start_imported()

    def hold(self) -> None:
        """Start no instrumentor until `release`, because opentelemetry-instrument starts them now."""
        self._is_held = True

    def release(self) -> None:
        """Instrument each client library that is not instrumented, now or when the app imports it."""
        self._is_held = False
        self._start_imported()

    def stop(self) -> None:
        """Restore the variables, remove our hooks from the clients, and let our instrumentors make no more spans."""
        self._settings = _OFF
        self._switches.withdraw()
        if self._instrumentation is not None:
            self._instrumentation.pause()
        if OPENAI.module in sys.modules:
            from art_otel.tracing.openai import uninstall  # noqa: PLC0415

            uninstall()

    def _watch(self) -> None:
        """Set the variables when the base class of instrumentors was imported: they read them when they start."""
        self._switch_content()
        self._instrumentations().watch()

    def _start_imported(self) -> None:
        for library in CLIENT_LIBRARIES:
            if library.module in sys.modules:
                self._start(library)

    def _start(self, library: ClientLibrary) -> None:
        """Hook and instrument a client library that was imported."""
        if not self._settings.enabled:
            return
        self._switch_content()
        if library is OPENAI:
            self._capture()
        if not self._is_held:
            self._instrumentations().start(self._settings.instrumentor, library)

    def _switch_content(self) -> None:
        if self._settings.enabled:
            from art_otel.tracing.sdk.span_lines import content_environment  # noqa: PLC0415 # loads the SDK

            self._switches.apply(content_environment(self._settings.capture_content))

    def _capture(self) -> None:
        from art_otel.tracing.openai import install  # noqa: PLC0415 # as above
        from art_otel.tracing.setup.instrument import is_disabled  # noqa: PLC0415 # as above

        version = self._settings.policy_version
        install(
            request_tokens=self._settings.request_tokens,
            policy_version_header=self._settings.policy_version_header,
            policy_version=version if version is None or callable(version) else lambda _model: version,
            scrubber=self._settings.make_scrubber(),
            makes_spans=not is_disabled(os.environ),
            stream_close="finished" if self._settings.closed_streams == "train" else "left",
        )

    def _instrumentations(self) -> "Instrumentation":
        if self._instrumentation is None:
            from art_otel.tracing.setup.instrument import Instrumentation  # noqa: PLC0415 # reads the metadata of packages

            self._instrumentation = Instrumentation(self._on_provider)
        return self._instrumentation
