"""Settings: what may be set about tracing, each by an environment variable or by a keyword of `configure()`.

Invariant: a variable and its keyword mean the same and go through the same parser; a keyword comes before a variable, a
variable before the default. A variable that says something impossible never captures more than was asked for.
docs/spec/settings.md owns the table.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NamedTuple, TypeAlias, TypedDict, cast, get_type_hints

from art_otel.errors import UsageError
from art_otel.live import MAX_AGE, MAX_OPEN
from art_otel.scrubbing import Scrubbing
from art_otel.tracing.api.context import Trust
from art_otel.tracing.autoload import ENABLED
from art_otel.tracing.setup import setting_values as values

Instrumentor: TypeAlias = Literal["auto", "none", "openllmetry", "genai-openai", "openinference", "openai-v2"]

MODULES: Final[Mapping[Instrumentor, str]] = {
    "openllmetry": "opentelemetry.instrumentation.openai",
    "genai-openai": "opentelemetry.instrumentation.genai.openai",
    "openinference": "openinference.instrumentation.openai",
    "openai-v2": "opentelemetry.instrumentation.openai_v2",
}
"""Where the class of each instrumentor of the openai client is, the preferred first."""

DIR: Final = "ART_OTEL_DIR"


class Problem(NamedTuple):
    """A setting that says something impossible. `name` is its field, `text` says where and what would be right."""

    name: str
    text: str


class Source(NamedTuple):
    """Where a setting comes from. `parse` raises ValueError that says what would be right.

    `instead` makes what stands for an impossible value of the variable; None: the default does.
    """

    variable: str
    parse: Callable[[object], object]
    instead: Callable[[], object] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """Everything that may be set. None is what nobody said."""

    enabled: Annotated[bool, Source(ENABLED, values.switch, instead=bool)] = True
    dir: Annotated[Path, Source(DIR, values.path)] = Path(".art")
    project: Annotated[str | None, Source("ART_OTEL_PROJECT", values.text)] = None
    model: Annotated[str | None, Source("ART_OTEL_MODEL", values.text)] = None
    split: Annotated[str | None, Source("ART_OTEL_SPLIT", values.text)] = None
    spool: Annotated[bool | Path, Source("ART_OTEL_SPOOL", values.switch_or_path)] = True
    spool_days: Annotated[float | None, Source("ART_OTEL_SPOOL_DAYS", values.days)] = None
    capture_content: Annotated[bool, Source("ART_OTEL_CAPTURE_CONTENT", values.switch, instead=bool)] = True
    request_tokens: Annotated[bool, Source("ART_OTEL_REQUEST_TOKENS", values.switch)] = False
    scrub: Annotated[Scrubbing, Source("ART_OTEL_SCRUB", values.one_of(Scrubbing), instead=lambda: "content")] = "on"
    rollout_spans: Annotated[tuple[str, ...], Source("ART_OTEL_ROLLOUT_SPANS", values.names)] = ()
    trust_rollout_ids: Annotated[Trust, Source("ART_OTEL_TRUST_ROLLOUT_IDS", values.one_of(Trust))] = "own"
    grace_seconds: Annotated[float, Source("ART_OTEL_GRACE_SECONDS", values.seconds)] = 2.0
    max_open_rollouts: Annotated[int, Source("ART_OTEL_MAX_OPEN_ROLLOUTS", values.count)] = MAX_OPEN
    max_rollout_hours: Annotated[float, Source("ART_OTEL_MAX_ROLLOUT_HOURS", values.hours)] = MAX_AGE / 3600
    policy_version: Annotated[
        str | Callable[[], str] | None, Source("ART_OTEL_POLICY_VERSION", values.text_or_function)
    ] = None
    policy_version_header: Annotated[str | None, Source("ART_OTEL_POLICY_VERSION_HEADER", values.text)] = None
    instrumentor: Annotated[Instrumentor, Source("ART_OTEL_INSTRUMENTOR", values.one_of(Instrumentor))] = "auto"
    exporters: Annotated[tuple[str, ...] | None, Source("OTEL_TRACES_EXPORTER", values.exporters)] = None

    @property
    def spool_folder(self) -> Path | None:
        """Where ended spans are kept; None keeps none."""
        if self.spool is False:
            return None
        return self.dir / "spool" if self.spool is True else self.spool

    @staticmethod
    def from_environment(environ: Mapping[str, str]) -> "Settings":
        """What the variables say. Raises UsageError that names each variable that says something impossible."""
        settings, problems = read_settings(environ, {})
        if problems:
            raise UsageError("; ".join(problem.text for problem in problems))
        return settings


class Keywords(TypedDict, total=False):
    """The keywords of `configure()`: the fields of Settings, in any form that their parser takes."""

    enabled: bool | str
    dir: str | Path
    project: str | None
    model: str | None
    split: str | None
    spool: bool | str | Path
    spool_days: str | float | None
    capture_content: bool | str
    request_tokens: bool | str
    scrub: Scrubbing
    rollout_spans: str | list[str] | tuple[str, ...]
    trust_rollout_ids: Trust
    grace_seconds: float | str
    max_open_rollouts: int | str
    max_rollout_hours: float | str
    policy_version: str | Callable[[], str] | None
    policy_version_header: str | None
    instrumentor: Instrumentor
    exporters: str | list[str] | tuple[str, ...] | None


def read_settings(environ: Mapping[str, str], keywords: Mapping[str, object]) -> tuple[Settings, list[Problem]]:
    """Read the settings from keywords and variables, and list what is wrong with them."""
    sources_by_name = sources()
    problems = [
        Problem(name, f"{name}: configure() has no such keyword; it has {', '.join(sources_by_name)}")
        for name in keywords
        if name not in sources_by_name
    ]
    chosen: dict[str, Any] = {"dir": values.path(".art")}
    for name, source in sources_by_name.items():
        # An empty variable says nothing, as OTel has it.
        if name not in keywords and not environ.get(source.variable):
            continue
        value: object = keywords[name] if name in keywords else environ[source.variable]
        try:
            chosen[name] = source.parse(value)
        except ValueError as error:
            problems.append(Problem(name, f"{name if name in keywords else source.variable}={value!r}: {error}"))
            if source.instead is not None:
                chosen[name] = source.instead()
    return Settings(**chosen), problems


@cache
def sources() -> Mapping[str, Source]:
    """Where each field comes from, in the order of the table."""
    hints = get_type_hints(Settings, include_extras=True)
    return {entry.name: cast(tuple[Source], hints[entry.name].__metadata__)[0] for entry in fields(Settings)}
