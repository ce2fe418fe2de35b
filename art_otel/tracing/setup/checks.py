"""Checks: how a program of this environment would be traced, what is missing and what collides.

Invariant: looking changes nothing here; judging what was seen is done on data alone.
"""

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, entry_points, version
from pathlib import Path
from typing import Final, Literal, TypeAlias

from art_otel.tracing.autoload import ENABLED, is_sdk_off
from art_otel.tracing.sdk.span_parts import content_environment
from art_otel.tracing.setup.client_libraries import CLIENT_LIBRARIES, OPENAI, ClientLibrary
from art_otel.tracing.setup.exporters import GROUP, entry_points_of, exporter_names
from art_otel.tracing.setup.instrument import DISABLED, Installed, installed_instrumentors, is_disabled
from art_otel.tracing.setup.probe import Probe, probe
from art_otel.tracing.setup.settings import Problem, Settings, read_settings

Level: TypeAlias = Literal["ok", "note", "warning", "problem"]

_LENGTH_LIMITS: Final = ("OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT", "OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT")
_COUNT_LIMITS: Final = ("OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", "OTEL_ATTRIBUTE_COUNT_LIMIT")
_DISTRO: Final = "opentelemetry_distro"


@dataclass(frozen=True, kw_only=True, slots=True)
class Check:
    """The result of one check. A `problem` makes tracing useless, a `warning` costs something."""

    name: str
    level: Level
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Environment:
    """What the checks judge.

    `clients` has the version of each client library that is installed, by module; `exporters` are those that are
    installed, by name.
    """

    environ: Mapping[str, str]
    settings: Settings
    problems: Sequence[Problem]
    clients: Mapping[str, str]
    instrumentors: Sequence[Installed]
    exporters: frozenset[str]
    has_distro: bool
    probe: Probe

    @property
    def candidates(self) -> list[Installed]:
        """The instrumentors of openai that may be used, the first one first."""
        wanted = self.settings.instrumentor
        return [one for one in self.of_library(OPENAI) if wanted in ("auto", one.kind)]

    def of_library(self, library: ClientLibrary) -> list[Installed]:
        """The instrumentors of a client library, the preferred first."""
        return [one for one in self.instrumentors if one.library is library]


def inspect_environment(environ: Mapping[str, str]) -> Environment:
    """Inspect this environment; the probe runs a process of its own."""
    settings, problems = read_settings(environ, {})
    return Environment(
        environ=environ,
        settings=settings,
        problems=problems,
        clients={
            library.module: installed
            for library in CLIENT_LIBRARIES
            if (installed := _version(library.distribution)) is not None
        },
        instrumentors=installed_instrumentors(),
        exporters=frozenset(entry_point.name for entry_point in entry_points(group=GROUP)),
        has_distro=bool(entry_points(group=_DISTRO)),
        probe=probe(environ),
    )


def run_checks(about: Environment) -> list[Check]:
    """Run every check, in the order in which tracing needs things."""
    return [check for run_check in _CHECKS for check in run_check(about)]


def _settings(about: Environment) -> Iterator[Check]:
    for problem in about.problems:
        used = getattr(about.settings, problem.name)
        yield Check(name="settings", level="warning", text=f"{problem.text}; {used!r} is used")


def _enabled(about: Environment) -> Iterator[Check]:
    if not about.environ.get(ENABLED):
        yield Check(name="enabled", level="note", text=f"{ENABLED} is not set here: set it to 1, or use `art-otel run`")
    elif not about.settings.enabled:
        yield Check(name="enabled", level="problem", text=f"{ENABLED}={about.environ[ENABLED]} turns tracing off")
    else:
        yield Check(name="enabled", level="ok", text=f"{ENABLED}={about.environ[ENABLED]}")
    if is_sdk_off(about.environ):
        yield Check(name="enabled", level="problem", text="OTEL_SDK_DISABLED=true: OTel makes no span")


def _client(about: Environment) -> Iterator[Check]:
    if not about.clients:
        names = ", ".join(library.distribution for library in CLIENT_LIBRARIES)
        yield Check(name="client", level="problem", text=f"none of {names} is installed in this environment")
    for library in CLIENT_LIBRARIES:
        if library.module in about.clients:
            yield Check(name="client", level="ok", text=f"{library.distribution} {about.clients[library.module]}")


def _instrumentor(about: Environment) -> Iterator[Check]:
    for library in CLIENT_LIBRARIES:
        if library.module in about.clients:
            yield from _openai_instrumentor(about) if library is OPENAI else _instrumentor_of(library, about)
            yield from _several(about.of_library(library))


def _instrumentor_of(library: ClientLibrary, about: Environment) -> Iterator[Check]:
    installed = about.of_library(library)
    if is_disabled(about.environ, library):
        text = f"{DISABLED}={about.environ[DISABLED]}: no call of {library.distribution} is recorded"
        yield _instrumented("warning", text)
    elif about.settings.instrumentor == "none":
        text = f"ART_OTEL_INSTRUMENTOR=none: calls of {library.distribution} are left to the app"
        yield _instrumented("note", text)
    elif installed:
        text = f"{installed[0].label} will be used for {library.distribution}, unless the app starts another"
        yield _instrumented("ok", text)
    else:
        yield _instrumented(
            "note" if library.is_general else "warning",
            f"none is installed for {library.distribution}: its calls to models are not recorded, or not whole;"
            f" pip install 'art-otel[{library.extra}]'",
        )


def _openai_instrumentor(about: Environment) -> Iterator[Check]:
    wanted, installed = about.settings.instrumentor, about.of_library(OPENAI)
    names = ", ".join(one.label for one in installed)
    if is_disabled(about.environ):
        yield _instrumented("problem", f"{DISABLED}={about.environ[DISABLED]}: no LLM call is recorded")
    elif wanted == "none":
        yield _instrumented(
            "note", "ART_OTEL_INSTRUMENTOR=none: calls that the app does not record get spans of art-otel"
        )
    elif not about.candidates:
        missing = "none is installed" if not installed else f"{wanted} is not installed, only {names}"
        yield _instrumented(
            "warning", f"{missing}: calls get spans of art-otel; pip install opentelemetry-instrumentation-openai"
        )
    else:
        yield _instrumented("ok", f"{about.candidates[0].label} will be used, unless the app starts another")


def _several(installed: list[Installed]) -> Iterator[Check]:
    if len(installed) > 1:
        names = ", ".join(one.label for one in installed)
        yield _instrumented(
            "warning",
            f"{len(installed)} are installed ({names}): art-otel starts one, but opentelemetry-instrument starts all,"
            " and then each call has a span of each, read as one call; keep one",
        )


def _instrumented(level: Level, text: str) -> Check:
    return Check(name="instrumentor", level=level, text=text)


def _content(about: Environment) -> Iterator[Check]:
    if not about.settings.capture_content:
        text = "ART_OTEL_CAPTURE_CONTENT=0: structure is kept, messages are not; nothing can be learnt from it"
        yield Check(name="content", level="warning", text=text)
        return
    against = [
        f"{name}={about.environ[name]} (art-otel would set {value})"
        for name, value in content_environment(capture=True).items()
        if about.environ.get(name) and about.environ[name].lower() != value.lower()
    ]
    if against:
        yield Check(name="content", level="warning", text=f"calls or messages may be missing: {', '.join(against)}")
    else:
        yield Check(name="content", level="ok", text="messages are captured")


def _limits(about: Environment) -> Iterator[Check]:
    cut = [f"{name}={about.environ[name]}" for name in _LENGTH_LIMITS if about.environ.get(name)]
    if cut:
        yield Check(name="limits", level="problem", text=f"{', '.join(cut)} cuts messages in the middle: unset it")
    counts = [about.environ[name] for name in _COUNT_LIMITS if about.environ.get(name)]
    if counts and counts[0].isdecimal() and int(counts[0]) < 128:
        yield Check(name="limits", level="warning", text=f"spans keep {counts[0]} attributes only; the default is 128")
    elif not counts and [one.kind for one in about.candidates[:1]] == ["openinference"]:
        text = "OpenInference writes several attributes a message, spans keep 128: set"
        yield Check(name="limits", level="warning", text=f"{text} {_COUNT_LIMITS[0]}=100000")


def _exporters(about: Environment) -> Iterator[Check]:
    wanted = exporter_names(about.settings.exporters, about.environ)
    for name in wanted:
        if not about.exporters & set(entry_points_of(name, about.environ)):
            yield _exported(
                "warning", f"{name} is asked for and not installed: pip install opentelemetry-exporter-otlp"
            )
        else:
            yield _exported("ok", f"spans go to {name}")
    if not wanted:
        yield _exported("note", "spans go to the spool only; OTEL_EXPORTER_OTLP_ENDPOINT would send them on")
    by_distro = about.has_distro and not about.environ.get("OTEL_TRACES_EXPORTER")
    if by_distro and not about.exporters & set(entry_points_of("otlp", about.environ)):
        yield _exported(
            "warning",
            "opentelemetry-instrument would start nothing at all: its distro exports to otlp, which is not installed;"
            " set OTEL_TRACES_EXPORTER=none or install it",
        )


def _exported(level: Level, text: str) -> Check:
    return Check(name="exporters", level=level, text=text)


def _spool(about: Environment) -> Iterator[Check]:
    folder = about.settings.spool_folder
    if folder is None:
        yield Check(
            name="spool", level="warning", text="ART_OTEL_SPOOL=0: what ended is lost when the program is killed"
        )
        return
    nearest = next((path for path in (folder, *folder.parents) if path.exists()), Path("/"))
    try:
        with tempfile.TemporaryFile(dir=nearest):
            yield Check(name="spool", level="ok", text=f"{folder}")
    except OSError as error:
        yield Check(name="spool", level="problem", text=f"{folder} cannot be written: {nearest}: {error.strerror}")


def _probe(about: Environment) -> Iterator[Check]:
    """Judge how the probe's call was traced."""
    result = about.probe
    for line in result.messages:
        if not any(problem.text in line for problem in about.problems):
            yield Check(name="probe", level="warning", text=line)
    if about.settings.spool_folder is not None and not result.lines:
        yield Check(name="probe", level="problem", text="a span that was made to try it is not in the spool")
    elif OPENAI.module not in about.clients:
        yield Check(name="probe", level="ok", text="a new process records")
    elif len(result.active) == 1:
        yield Check(name="probe", level="ok", text=f"a new process records; {result.active[0]} instruments its client")
    else:
        yield Check(name="probe", level="warning", text="a new process records, but nothing instruments its client")


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


_CHECKS: Final[tuple[Callable[[Environment], Iterator[Check]], ...]] = (
    _settings,
    _enabled,
    _client,
    _instrumentor,
    _content,
    _limits,
    _exporters,
    _spool,
    _probe,
)
