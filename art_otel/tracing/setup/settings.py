"""Settings: the settings of tracing, each with an environment variable and a keyword of `configure()`.

Invariant: each setting is one row of Settings, and one of docs/spec/settings.md. Variable and keyword mean the same and
go through the same parser, whose ValueError says what to write. A keyword takes precedence over the variable, and the
variable over the default. An invalid variable never leads to recording more than was asked for. An unknown variable
`ART_OTEL_…` is warned about once.
"""

import inspect
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from difflib import get_close_matches
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Final,
    Generic,
    Literal,
    NamedTuple,
    ParamSpec,
    TypeAlias,
    TypeVar,
    cast,
    get_args,
)

import msgspec

from art_otel.calls import ClosedStreams
from art_otel.live.limits import MAX_AGE, MAX_OPEN
from art_otel.scrubbing import Scrubbing, SecretMatch
from art_otel.spool.runs import DEFAULT_DIR, RUN
from art_otel.tracing.api.context import AskVersion, Trust
from art_otel.tracing.autoload import as_switch
from art_otel.tracing.internal_errors import warn_once

if TYPE_CHECKING:
    from art_otel.scrubbing import Scrubber

Instrumentor: TypeAlias = Literal["auto", "none", "openllmetry", "genai-openai", "openinference", "openai-v2"]

_Given = TypeVar("_Given")
_Value = TypeVar("_Value")
_P = ParamSpec("_P")
_R = TypeVar("_R")
_Self = TypeVar("_Self")

_PREFIX: Final = "ART_OTEL_"
_NO_SETTINGS: Final = frozenset({RUN, "ART_OTEL_RUN_PID"})
"""Variables that are no settings: the name of the run, and the pid by which `art-otel run` marks its program."""


def _switch(value: object) -> bool:
    is_on = as_switch(value)
    if is_on is None:
        raise ValueError("write 1 or 0")
    return is_on


def _text(value: object) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str) or not value.strip():
        raise ValueError("write a string that is not empty")
    return value


def _text_or_function(value: object) -> str | AskVersion | None:
    """Accept a text, a function of the request's model, or a function without parameters.

    A parameter with a default does not count: `lambda version=version: version` is a function without parameters.
    """
    if not callable(value):
        return _text(value)
    try:
        parameters = list(inspect.signature(value).parameters.values())
    except (TypeError, ValueError):  # as of functions that are written in C
        parameters = []
    required = [one.kind for one in parameters if one.default is one.empty and one.kind not in _COLLECTED]
    if len(required) > 1 or inspect.Parameter.KEYWORD_ONLY in required:
        raise ValueError("write a string, or a function that takes the request's model or nothing")
    return cast(AskVersion, value) if required else VersionOfAnyModel(cast("Callable[[], str | None]", value))


class VersionOfAnyModel(msgspec.Struct, frozen=True):
    """Adapts a function without parameters to `AskVersion`: the version is the same for every model."""

    function: Callable[[], str | None]

    def __call__(self, _model: str | None) -> str | None:
        """Call the function."""
        return self.function()


_COLLECTED: Final = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def _path(value: object) -> Path:
    """Make a path absolute, so that it stays the same when the app changes its folder."""
    if not isinstance(value, str | Path) or not str(value).strip():
        raise ValueError("write a path")
    try:
        return Path(value).expanduser().absolute()
    except RuntimeError as error:
        raise ValueError("write a path; its ~ leads to no home folder") from error


def _switch_or_path(value: object) -> bool | Path:
    is_on = as_switch(value)
    return _path(value) if is_on is None else is_on


def _number(value: object) -> float:
    try:
        number = float(cast(Any, value))
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number) or number < 0 or isinstance(value, bool):
        raise ValueError("write a number of 0 or more")
    return number


def _number_or_never(value: object) -> float | None:
    return None if value in (None, "never") else _number(value)


def _count(value: object) -> int:
    number = _number(value)
    if number < 1 or not number.is_integer():
        raise ValueError("write a whole number of 1 or more")
    return int(number)


def _names(value: object) -> tuple[str, ...]:
    parts = value.split(",") if isinstance(value, str) else value
    names = list(cast(Iterable[object], parts)) if isinstance(parts, Iterable) else [parts]
    if not all(isinstance(name, str) for name in names):
        raise ValueError("write names separated by commas")
    return tuple(name.strip() for name in cast(list[str], names) if name.strip())


def _patterns(value: object) -> tuple[re.Pattern[str], ...]:
    is_one = isinstance(value, str | re.Pattern)
    try:
        return tuple(map(re.compile, cast(Iterable[str], (value,) if is_one else value)))
    except (re.error, TypeError) as error:
        raise ValueError(f"write a regular expression, or a list of them ({error})") from error


def _keeps(value: object) -> Callable[[SecretMatch], bool] | None:
    """Accept a function, or a regex, which keeps the secrets in which it matches."""
    if value is None or callable(value):
        return cast("Callable[[SecretMatch], bool] | None", value)
    try:
        return KeptSecrets(re.compile(cast(str, value)))
    except (re.error, TypeError) as error:
        raise ValueError(f"write a regular expression, or a function ({error})") from error


class KeptSecrets(msgspec.Struct, frozen=True):
    """The function for `scrub_keeps` that keeps the secrets in which a regex matches."""

    regex: re.Pattern[str]

    def __call__(self, match: SecretMatch) -> bool:
        """Whether the regex matches in the secret."""
        return self.regex.search(match.text) is not None


def _exporters(value: object) -> tuple[str, ...] | None:
    return None if value is None else tuple(name for name in _names(value) if name.lower() != "none")


def _one_of(literal: Any) -> Callable[[object], Any]:  # noqa: ANN401 # a Literal has no type of its own
    words = get_args(literal)

    def choose(value: object) -> Any:  # noqa: ANN401 # one of the words
        if value not in words:
            raise ValueError(f"write one of {', '.join(words)}")
        return value

    return choose


class Setting(Generic[_Given, _Value]):
    """A row of Settings: the parser from given values to the setting's value, and the default.

    It is a descriptor so that type checkers know the types of given values (`__set__`) and of the value (`__get__`).
    """

    def __init__(self, parse: Callable[[object], _Value], *, default: _Value) -> None:
        self.parse = parse
        self._default = default

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, settings: object, owner: type | None = None) -> _Value:
        return self._default if settings is None else vars(settings)[self._name]

    def __set__(self, settings: object, given: _Given) -> None:
        vars(settings)[self._name] = self.parse(given)


_Switch: TypeAlias = Setting[bool | str, bool]
_TextSetting: TypeAlias = Setting[str | None, str | None]
_NamesSetting: TypeAlias = Setting[str | Sequence[str], tuple[str, ...]]
_Keep: TypeAlias = Callable[[SecretMatch], bool]
_Regex: TypeAlias = str | re.Pattern[str]


@dataclass(frozen=True, kw_only=True)
class Settings:
    """All settings; docs/spec/settings.md describes them. None means not set."""

    # Where it goes
    enabled: _Switch = Setting(_switch, default=True)
    dir: Setting[str | Path, Path] = Setting(_path, default=Path(DEFAULT_DIR))
    spool: Setting[bool | str | Path, bool | Path] = Setting(_switch_or_path, default=True)
    spool_days: Setting[str | float | None, float | None] = Setting(_number_or_never, default=30.0)
    exporters: Setting[str | Sequence[str] | None, tuple[str, ...] | None] = Setting(_exporters, default=None)
    """Names of OTel's span exporters, such as "otlp"; None: OTLP, if OTEL_EXPORTER_OTLP_* names an endpoint."""
    project: _TextSetting = Setting(_text, default=None)
    model: _TextSetting = Setting(_text, default=None)
    # What is recorded
    capture_content: _Switch = Setting(_switch, default=True)
    scrub: Setting[Scrubbing, Scrubbing] = Setting(_one_of(Scrubbing), default="on")
    scrub_patterns: Setting[_Regex | Sequence[_Regex], tuple[re.Pattern[str], ...]] = Setting(_patterns, default=())
    scrub_keeps: Setting[_Regex | _Keep | None, _Keep | None] = Setting(_keeps, default=None)
    request_tokens: _Switch = Setting(_switch, default=False)
    policy_version: Setting[str | Callable[[], str | None] | AskVersion | None, str | AskVersion | None] = Setting(
        _text_or_function, default=None
    )
    policy_version_header: _TextSetting = Setting(_text, default=None)
    closed_streams: Setting[ClosedStreams, ClosedStreams] = Setting(_one_of(ClosedStreams), default="mask")
    """What a stream means that the app closes early: `train`, the app ends completions in this way; `mask`, else."""
    instrumentor: Setting[Instrumentor, Instrumentor] = Setting(_one_of(Instrumentor), default="auto")
    # Rollouts
    rollout_spans: _NamesSetting = Setting(_names, default=())
    rollout_attributes: _NamesSetting = Setting(_names, default=())
    split: _TextSetting = Setting(_text, default=None)
    trust_rollout_ids: Setting[Trust, Trust] = Setting(_one_of(Trust), default="own")
    grace_seconds: Setting[float | str, float] = Setting(_number, default=2.0)
    max_open_rollouts: Setting[int | str, int] = Setting(_count, default=MAX_OPEN)
    max_rollout_hours: Setting[float | str, float] = Setting(_number, default=MAX_AGE / 3600)

    @property
    def spool_folder(self) -> Path | None:
        """The folder of the spool; None where spans are not kept on disk."""
        if self.spool is False:
            return None
        return self.dir / "spool" if self.spool is True else self.spool

    def make_scrubber(self) -> "Scrubber | None":
        """The scrubber for these settings; None for `scrub="off"`."""
        from art_otel.scrubbing import Scrubber  # noqa: PLC0415 # the patterns take long to load

        return None if self.scrub == "off" else Scrubber(self.scrub, self.scrub_patterns, self.scrub_keeps)


def takes_settings(_: Callable[_P, Settings]) -> Callable[[Callable[..., _R]], Callable[_P, _R]]:
    """Declare that a function with `**keywords` takes those of Settings, for type checkers and for `help`."""

    def say(function: Callable[..., _R]) -> Callable[_P, _R]:
        vars(function)["__signature__"] = inspect.signature(Settings)
        return function

    return say


def method_takes_settings(
    _: Callable[_P, Settings],
) -> Callable[[Callable[Concatenate[_Self, ...], _R]], Callable[Concatenate[_Self, _P], _R]]:
    """Declare the same for a method, for type checkers only."""
    return lambda method: method


VARIABLES: Final[Mapping[str, str]] = {
    name: "OTEL_TRACES_EXPORTER" if name == "exporters" else f"{_PREFIX}{name.upper()}"
    for name in (field.name for field in fields(Settings))
}
"""The environment variable of each setting, in the order of the documented table."""

_IMPOSSIBLE: Final[Mapping[str, Mapping[str, object]]] = {
    "enabled": {"enabled": False},
    "capture_content": {"capture_content": False},
    "scrub": {"scrub": "content"},
    "scrub_patterns": {"capture_content": False},
}
"""By setting: the values in effect if its variable is invalid, where the default would record too much."""


class Problem(NamedTuple):
    """An invalid setting. `name` is its field; `text` names the variable or keyword, and says what to write."""

    name: str
    text: str


def read_settings(environ: Mapping[str, str], keywords: Mapping[str, object]) -> tuple[Settings, list[Problem]]:
    """Read the settings from keywords and variables. Returns them with a list of the invalid ones."""
    problems = [
        Problem(name, f"{name}: configure() has no such keyword; it takes {', '.join(VARIABLES)}")
        for name in keywords
        if name not in VARIABLES
    ]
    chosen: dict[str, Any] = {}
    for name, variable in VARIABLES.items():
        # An empty variable says nothing, as OTel has it.
        if name not in keywords and not environ.get(variable):
            continue
        value: object = keywords[name] if name in keywords else environ[variable]
        try:
            chosen[name] = vars(Settings)[name].parse(value)
        except ValueError as error:
            problems.append(Problem(name, f"{name if name in keywords else variable}={value!r}: {error}"))
            chosen |= _IMPOSSIBLE.get(name, {})
    return Settings(**chosen), problems


def warn_of_unknown(environ: Mapping[str, str]) -> None:
    """Warn of unknown variables that begin with ART_OTEL_, with the name that was probably meant."""
    for name in sorted(environ):
        if not name.startswith(_PREFIX) or name in VARIABLES.values() or name in _NO_SETTINGS:
            continue
        nearest = get_close_matches(name, VARIABLES.values(), n=1)
        advice = f"did you mean {nearest[0]}?" if nearest else "docs/spec/settings.md lists the settings"
        warn_once(f"%s is not a setting and is ignored: {advice}", name)
