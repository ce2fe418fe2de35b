"""Doctor: says how a program in this environment would be traced, what is missing, and what conflicts.

Invariant: the inspection changes nothing here. Its probe is a small program that makes one span of a call; it runs in a
process and a folder of its own. The checks themselves look only at the collected data (`Environment`).
"""

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, entry_points, version
from pathlib import Path
from typing import Final, Literal, TypeAlias

from art_otel.spool.runs import DIR
from art_otel.tracing.autoload import ENABLED, is_sdk_off
from art_otel.tracing.sdk.rollout_registry import FRAMEWORKS, Framework
from art_otel.tracing.sdk.span_lines import content_environment
from art_otel.tracing.setup.clients import BREAKING, BYPASSED, CLIENT_LIBRARIES, OPENAI, ClientLibrary
from art_otel.tracing.setup.instrument import DISABLED, InstalledInstrumentor, installed_instrumentors, is_disabled
from art_otel.tracing.setup.providers import EXPORTERS, entry_points_of, exporter_names
from art_otel.tracing.setup.settings import Problem, Settings, read_settings

Level: TypeAlias = Literal["ok", "note", "warning", "problem"]
Findings: TypeAlias = Iterator[tuple[Level, str]]

_LENGTH_LIMITS: Final = ("OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT", "OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT")
_COUNT_LIMITS: Final = ("OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", "OTEL_ATTRIBUTE_COUNT_LIMIT")
_FEW_ATTRIBUTES: Final = 1000
"""Lower limits are reached by long conversations: OpenInference writes two or more attributes for each message."""
_DISTRO: Final = "opentelemetry_distro"
_OURS: Final = frozenset({"starlette"})
"""Frameworks that art-otel itself requires: that they are installed does not mean that the app uses them."""
_PROBE_SECONDS: Final = 120
_NOT_PROBED: Final = ("ART_OTEL_SPOOL", "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
_PROBE: Final = """
import contextlib, json
import art_otel
with contextlib.suppress(ImportError):
    import openai
from opentelemetry import trace  # after openai, as in most apps

from art_otel.tracing.setup.clients import OPENAI
from art_otel.tracing.setup.instrument import installed_instrumentors

call = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "probe"}
trace.get_tracer("gen_ai.probe").start_span("chat probe", attributes=call, kind=trace.SpanKind.CLIENT).end()
print(json.dumps([one.label for one in installed_instrumentors() if one.library is OPENAI and one.active]))
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Check:
    """The result of one check. A `problem` makes tracing useless; with a `warning` something is lost."""

    name: str
    level: Level
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Probe:
    """The result of the probe: the number of lines in its spool, the active instrumentors, and what was logged."""

    lines: int
    active: list[str]
    messages: list[str]


@dataclass(frozen=True, kw_only=True, slots=True)
class Environment:
    """The data that the checks look at.

    - `clients`: the versions of the installed client libraries, by module. `exporters`: the installed span exporters.
    - `frameworks`: installed web and task frameworks whose instrumentors are not installed.
    """

    environ: Mapping[str, str]
    settings: Settings
    problems: Sequence[Problem]
    clients: Mapping[str, str]
    instrumentors: Sequence[InstalledInstrumentor]
    exporters: frozenset[str]
    frameworks: Sequence[Framework]
    has_distro: bool
    probe: Probe

    def of_library(self, library: ClientLibrary) -> list[InstalledInstrumentor]:
        """The instrumentors that support the installed version of a client library, the preferred one first."""
        return [one for one in self.instrumentors if one.library is library and one.refuses is None]

    def missing(self, library: ClientLibrary) -> str:
        """Why no instrumentor of a client library can be used."""
        refusing = [one for one in self.instrumentors if one.library is library and one.refuses is not None]
        refused = "; ".join(f"{one.label} instruments {one.refuses}" for one in refusing)
        return refused or f"none is installed for {library.distribution}"

    @property
    def candidates(self) -> list[InstalledInstrumentor]:
        """The instrumentors of the openai client that the settings allow, in the order in which they are tried."""
        wanted = self.settings.instrumentor
        return [one for one in self.of_library(OPENAI) if wanted in ("auto", one.kind)]

    def name(self, variable: str) -> str:
        """A variable with its value, for messages."""
        return f"{variable}={self.environ[variable]}"


def inspect_environment(environ: Mapping[str, str]) -> Environment:
    """Inspect this environment; the probe runs a process of its own."""
    settings, problems = read_settings(environ, {})
    versions = {library.module: _version(library.distribution) for library in CLIENT_LIBRARIES}
    return Environment(
        environ=environ,
        settings=settings,
        problems=problems,
        clients={module: installed for module, installed in versions.items() if installed is not None},
        instrumentors=installed_instrumentors(),
        exporters=frozenset(entry_point.name for entry_point in entry_points(group=EXPORTERS)),
        frameworks=[one for one in FRAMEWORKS if _version(one.distribution) and not _version(one.instrumentor)],
        has_distro=bool(entry_points(group=_DISTRO)),
        probe=probe(environ),
    )


def probe(environ: Mapping[str, str]) -> Probe:
    """Run the probe with tracing on and nothing exported."""
    with tempfile.TemporaryDirectory(prefix="art-otel-doctor-") as folder:
        kept = {name: value for name, value in environ.items() if name not in _NOT_PROBED}
        changed = {ENABLED: "1", DIR: folder, "OTEL_TRACES_EXPORTER": "none"}
        command = [sys.executable, "-c", _PROBE]
        try:
            done = subprocess.run(  # noqa: S603 # our own words
                command,
                env=kept | changed,
                cwd=folder,
                capture_output=True,
                text=True,
                timeout=_PROBE_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return Probe(lines=0, active=[], messages=[f"nothing was recorded within {_PROBE_SECONDS} seconds"])
        lines = sum(file.read_bytes().count(b"\n") for file in Path(folder, "spool").rglob("*.jsonl"))
    messages = [line for line in done.stderr.splitlines() if line.strip()]
    return Probe(lines=lines, active=json.loads(done.stdout) if done.returncode == 0 else [], messages=messages)


def run_checks(about: Environment) -> list[Check]:
    """Run every check, in the order in which tracing needs things."""
    return [Check(name=name, level=level, text=text) for name, check in _CHECKS.items() for level, text in check(about)]


def _settings(about: Environment) -> Findings:
    for problem in about.problems:
        yield "warning", f"{problem.text}; {getattr(about.settings, problem.name)!r} is used"


def _enabled(about: Environment) -> Findings:
    if not about.environ.get(ENABLED):
        yield "note", f"{ENABLED} is not set here: set it to 1, or use `art-otel run`"
    elif not about.settings.enabled:
        yield "problem", f"{about.name(ENABLED)} turns tracing off"
    else:
        yield "ok", about.name(ENABLED)
    if is_sdk_off(about.environ):
        yield "problem", "OTEL_SDK_DISABLED=true: OTel makes no span"


def _client(about: Environment) -> Findings:
    clients = {library.module: library.distribution for library in CLIENT_LIBRARIES if not library.is_framework}
    if clients.keys().isdisjoint(about.clients):
        names = ", ".join(clients.values())
        yield "problem", f"none of {names} is installed in this environment"
    for library in CLIENT_LIBRARIES:
        if library.module in about.clients:
            yield "ok", f"{library.distribution} {about.clients[library.module]}"


def _instrumentor(about: Environment) -> Findings:
    for library in CLIENT_LIBRARIES:
        if library.module not in about.clients:
            continue
        yield _openai_instrumentor(about) if library is OPENAI else _instrumentor_of(library, about)
        if library is OPENAI:
            yield from _bypassed(about)
        installed = about.of_library(library)
        if len(installed) > 1:
            names = ", ".join(one.label for one in installed)
            text = (
                f"{len(installed)} are installed ({names}): art-otel starts one, but opentelemetry-instrument starts "
                "all, so each call gets a span from each (they are read as one call); keep one"
            )
            yield "warning", text


def _instrumentor_of(library: ClientLibrary, about: Environment) -> tuple[Level, str]:
    installed = about.of_library(library)
    if is_disabled(about.environ, library):
        return "warning", f"{about.name(DISABLED)}: no call of {library.distribution} is recorded"
    if about.settings.instrumentor == "none":
        return "note", f"ART_OTEL_INSTRUMENTOR=none: calls of {library.distribution} are left to the app"
    if installed:
        return "ok", f"{installed[0].label} will be used for {library.distribution}, unless the app starts another"
    if library.is_framework:
        standard = re.sub("[._]", "-", library.instrumentors[0])
        return (
            "note",
            f"{about.missing(library)}: its tools are not recorded; pip install {standard}",
        )
    lost = "its calls to models are not recorded, or not whole"
    advice = f"{about.missing(library)}: {lost}; pip install 'art-otel[{library.extra}]'"
    return "note" if library.is_general else "warning", advice


def _openai_instrumentor(about: Environment) -> tuple[Level, str]:
    wanted, installed = about.settings.instrumentor, about.of_library(OPENAI)
    if is_disabled(about.environ):
        return "problem", f"{about.name(DISABLED)}: no LLM call is recorded"
    if wanted == "none":
        return "note", "ART_OTEL_INSTRUMENTOR=none: calls that the app does not record get spans of art-otel"
    if about.candidates:
        return "ok", f"{about.candidates[0].label} will be used, unless the app starts another"
    others = ", ".join(one.label for one in installed)
    missing = f"{wanted} is not installed, only {others}" if installed else about.missing(OPENAI)
    return "warning", f"{missing}: calls get spans of art-otel; pip install opentelemetry-instrumentation-openai"


def _bypassed(about: Environment) -> Findings:
    """Say which requests of the openai client its instrumentor would break, and what becomes of them."""
    used = about.candidates[0].kind if about.candidates and not is_disabled(about.environ) else None
    if used not in BREAKING:
        return
    breaks = f"{used} replaces the client's streams by an object of its own, so {BREAKING[used]}"
    if about.settings.instrumentor == "auto" and used in BYPASSED:
        yield "note", f"{breaks}: streams get spans of art-otel, unless ART_OTEL_INSTRUMENTOR={used} is set"
    else:
        yield "warning", f"{breaks}: set ART_OTEL_INSTRUMENTOR=none if the app uses one of them"


def _requests(about: Environment) -> Findings:
    listed = {one.distribution: one for one in about.frameworks if one.distribution not in _OURS}
    for framework in listed.values():
        text = (
            f"{framework.distribution} is installed and {framework.instrumentor} is not: all calls in the requests or "
            "tasks of a process are one rollout, unless the app decorates their handler with @art_otel.rollout; or "
            f"install the instrumentor and set ART_OTEL_ROLLOUT_SPANS='{framework.globs}'"
        )
        yield "note", text


def _content(about: Environment) -> Findings:
    if not about.settings.capture_content:
        yield (
            "warning",
            "ART_OTEL_CAPTURE_CONTENT=0: the structure is kept without messages, so nothing can be learned from it",
        )
        return
    against = [
        f"{about.name(variable)} (art-otel would set {value})"
        for variable, value in content_environment(capture=True).items()
        if about.environ.get(variable) and about.environ[variable].lower() != value.lower()
    ]
    if against:
        yield "warning", f"calls or messages may be missing: {', '.join(against)}"
    else:
        yield "ok", "messages are captured"


def _limits(about: Environment) -> Findings:
    cut = [about.name(variable) for variable in _LENGTH_LIMITS if about.environ.get(variable)]
    if cut:
        yield "problem", f"{', '.join(cut)} cuts messages in the middle: unset it"
    counts = [about.environ[variable] for variable in _COUNT_LIMITS if about.environ.get(variable)]
    if counts and counts[0].isdecimal() and int(counts[0]) < _FEW_ATTRIBUTES:
        advice = "unset it, and art-otel's provider keeps all"
        yield "warning", f"spans keep {counts[0]} attributes only, and lose long prompts: {advice}"
    elif not counts and [one.kind for one in about.candidates[:1]] == ["openinference"]:
        text = "OpenInference writes several attributes a message, and a tracer provider of the app keeps 128"
        yield "note", f"{text}: if the app makes one, set {_COUNT_LIMITS[0]}=100000"


def _exporters(about: Environment) -> Findings:
    wanted = exporter_names(about.settings.exporters, about.environ)
    for name in wanted:
        if about.exporters & set(entry_points_of(name, about.environ)):
            yield "ok", f"spans go to {name}"
        else:
            yield "warning", f"{name} is asked for and not installed: pip install opentelemetry-exporter-otlp"
    if not wanted:
        yield "note", "spans go to the spool only; OTEL_EXPORTER_OTLP_ENDPOINT would send them on"
    by_distro = about.has_distro and not about.environ.get("OTEL_TRACES_EXPORTER")
    if by_distro and not about.exporters & set(entry_points_of("otlp", about.environ)):
        why = "its distro exports to otlp, which is not installed; set OTEL_TRACES_EXPORTER=none or install it"
        yield "warning", f"opentelemetry-instrument would start nothing at all: {why}"


def _spool(about: Environment) -> Findings:
    folder = about.settings.spool_folder
    if folder is None:
        yield "warning", "ART_OTEL_SPOOL=0: rollouts that have ended are lost when the program is killed"
        return
    nearest = next((path for path in (folder, *folder.parents) if path.exists()), Path("/"))
    try:
        with tempfile.TemporaryFile(dir=nearest):
            yield "ok", f"{folder}"
    except OSError as error:
        yield "problem", f"{folder} cannot be written: {nearest}: {error.strerror}"


def _probe(about: Environment) -> Findings:
    """Judge how the probe's call was traced."""
    result = about.probe
    for line in result.messages:
        if not any(problem.text in line for problem in about.problems):
            yield "warning", line
    if about.settings.spool_folder is not None and not result.lines:
        yield "problem", "a test span did not reach the spool"
    elif OPENAI.module not in about.clients:
        yield "ok", "a new process records"
    elif len(result.active) == 1:
        yield "ok", f"a new process records; {result.active[0]} instruments its client"
    else:
        yield "warning", "a new process records, but nothing instruments its client"


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


_CHECKS: Final[Mapping[str, Callable[[Environment], Findings]]] = {
    "settings": _settings,
    "enabled": _enabled,
    "client": _client,
    "instrumentor": _instrumentor,
    "requests": _requests,
    "content": _content,
    "limits": _limits,
    "exporters": _exporters,
    "spool": _spool,
    "probe": _probe,
}
