"""Settings: the options of a format, by name.

Invariant: every field of a format's config is an option; what is no option of it is refused by name.
"""

from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, fields
from typing import Any, NamedTuple, get_type_hints

import msgspec

from art_otel.data.options import validate
from art_otel.exporting.exporter import Format


class Option(NamedTuple):
    """An option: its default as text, and what the `msgspec.Meta` of its annotation says about it."""

    name: str
    default: str
    about: str


def options_of(file_format: Format) -> tuple[Option, ...]:
    """The options of the format, in the order of its config."""
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
