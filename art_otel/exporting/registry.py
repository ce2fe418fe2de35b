"""Registry: the installed exporters, their formats, and the options of a format by name.

Invariant: an exporter that cannot be loaded is listed with its problem and does not affect other exporters. Every field
of a format's config is an option; any other option raises UsageError with its name.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, fields
from importlib.metadata import EntryPoint, PackageNotFoundError, entry_points, requires
from typing import Any, Final, NamedTuple, get_type_hints

import msgspec

from art_otel.data.options import validate
from art_otel.errors import UsageError
from art_otel.exporting.exporter import Exporter, Format

GROUP: Final = "art_otel.exporters"
"""The entry-point group in which a distribution registers an Exporter under the name of its trainer."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Installed:
    """An entry point with its exporter, or with the problem why there is none."""

    name: str
    distribution: str | None
    exporter: Exporter | None
    problem: str | None = None


def installed_exporters() -> list[Installed]:
    """All installed exporters by name."""
    return sorted(map(_load, _entries()), key=lambda installed: installed.name)


def find_exporter(name: str) -> Exporter:
    """The exporter with this name. Raises UsageError with the names of all exporters."""
    matches = [_load(entry) for entry in _entries() if entry.name == name]
    if not matches:
        there = ", ".join(sorted({entry.name for entry in _entries()})) or "none"
        raise UsageError(f"no exporter {name!r} is installed (there are: {there}){_advice(name)}")
    if matches[0].exporter is None:
        raise UsageError(f"exporter {name!r} of {matches[0].distribution} cannot be loaded: {matches[0].problem}")
    return matches[0].exporter


def find_format(exporter: Exporter, name: str | None) -> Format:
    """The exporter's format with this name; its first one without a name. Raises UsageError."""
    for file_format in exporter.formats:
        if name in (None, file_format.name):
            return file_format
    there = ", ".join(file_format.name for file_format in exporter.formats)
    raise UsageError(f"exporter {exporter.name} has no format {name!r}; it has {there}")


def _advice(name: str) -> str:
    """How to install an exporter of ours, or which ones there are. A guessed name is never advised to be installed.

    Anybody may have published a distribution with that name.
    """
    names = sorted(set(_names_of_extras()))
    if name in names:
        return f"; in a checkout of art-otel: pip install ./exporters/{name}"
    return f"; art-otel has exporters for {', '.join(names)}" if names else ""


def _names_of_extras() -> Iterator[str]:
    """The exporters of art-otel's repository: each is the distribution of an extra."""
    try:
        needs = requires("art-otel") or ()
    except PackageNotFoundError:  # art-otel runs from a folder and is not installed
        return
    for need in needs:
        match = re.match(r"art-otel-([a-z0-9-]+)", need)
        if match:
            yield match[1]


def _entries() -> Iterator[EntryPoint]:
    return iter(entry_points(group=GROUP))


def _load(entry: EntryPoint) -> Installed:
    distribution = None if entry.dist is None else f"{entry.dist.name} {entry.dist.version}"
    try:
        loaded = entry.load()
    except Exception as error:  # noqa: BLE001 # another distribution's code may raise anything
        problem = f"{type(error).__name__}: {error}"
        return Installed(name=entry.name, distribution=distribution, exporter=None, problem=problem)
    if not isinstance(loaded, Exporter):
        problem = f"{entry.value} is a {type(loaded).__name__} and no art_otel.exporting.Exporter"
        return Installed(name=entry.name, distribution=distribution, exporter=None, problem=problem)
    return Installed(name=entry.name, distribution=distribution, exporter=loaded)


class Option(NamedTuple):
    """An option: its default as text, and what the `msgspec.Meta` of its annotation says about it."""

    name: str
    default: str
    about: str


def options_of(file_format: Format) -> tuple[Option, ...]:
    """The options of the format, in the order of its config's fields."""
    return tuple(_options(file_format))


def make_settings(file_format: Format, values: Mapping[str, Any]) -> object:
    """The file_format's config from values or their texts, as of a command line. Raises UsageError."""
    schema: type[object] = file_format.config
    return validate(schema, values, owner=file_format.name, texts=True)


def _options(file_format: Format) -> Iterator[Option]:
    hints = get_type_hints(file_format.config, include_extras=True)
    for field in fields(file_format.config):
        metadata: tuple[object, ...] = getattr(hints[field.name], "__metadata__", ())
        about = next((meta.description for meta in metadata if isinstance(meta, msgspec.Meta)), None)
        yield Option(field.name, _default(field), about or "")


def _default(field: "Field[Any]") -> str:
    if field.default is not MISSING:
        return str(field.default)
    return "" if field.default_factory is MISSING else str(field.default_factory())
