"""Registry: the exporters that are installed.

Invariant: an exporter that cannot be loaded is named with its problem, and costs no other exporter.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import EntryPoint, PackageNotFoundError, entry_points, requires
from typing import Final

from art_otel.errors import UsageError
from art_otel.exporting.exporter import Exporter, Format

GROUP: Final = "art_otel.exporters"
"""The entry-point group: a distribution registers an Exporter under the name of its trainer."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Installed:
    """An entry point: its exporter, or why it is none."""

    name: str
    distribution: str | None
    exporter: Exporter | None
    problem: str | None = None


def installed_exporters() -> list[Installed]:
    """Every exporter of the environment, by name."""
    return sorted(map(_load, _entries()), key=lambda installed: installed.name)


def find_exporter(name: str) -> Exporter:
    """The exporter of this name. Raises UsageError naming those there are."""
    matches = [_load(entry) for entry in _entries() if entry.name == name]
    if not matches:
        there = ", ".join(sorted({entry.name for entry in _entries()})) or "none"
        raise UsageError(f"no exporter {name!r} is installed (there are: {there}){_advice(name)}")
    if matches[0].exporter is None:
        raise UsageError(f"exporter {name!r} of {matches[0].distribution} cannot be loaded: {matches[0].problem}")
    return matches[0].exporter


def find_format(exporter: Exporter, name: str | None) -> Format:
    """The exporter's kind of this name, its first one without a name. Raises UsageError."""
    for file_format in exporter.formats:
        if name in (None, file_format.name):
            return file_format
    there = ", ".join(file_format.name for file_format in exporter.formats)
    raise UsageError(f"exporter {exporter.name} has no format {name!r}; it has {there}")


def _advice(name: str) -> str:
    """How to get it. Whoever guesses a name is told of no distribution: anybody may have published one under it."""
    names = sorted(set(_names_of_extras()))
    if name in names:
        return f"; in a checkout of art-otel: pip install ./exporters/{name}"
    return f"; art-otel has exporters for {', '.join(names)}" if names else ""


def _names_of_extras() -> Iterator[str]:
    """The exporters of art-otel's repository: each is the distribution of an extra."""
    try:
        needs = requires("art-otel") or ()
    except PackageNotFoundError:  # read from a folder that nobody installed
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
