"""Settings: the options of a kind, by name.

Invariant: every field of a kind's config is an option; what is no option of it is refused by name.
"""

from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, fields
from itertools import chain
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Literal, NamedTuple, Union, cast, get_args, get_origin, get_type_hints

import msgspec

from art_otel.errors import UsageError
from art_otel.exporting.exporter import Kind

_REFUSED: Final = (msgspec.ValidationError, ValueError, TypeError)


class Option(NamedTuple):
    """An option: its default as text, and what the `msgspec.Meta` of its annotation says about it."""

    name: str
    default: str
    about: str


def options_of(kind: Kind) -> tuple[Option, ...]:
    """The options of the kind, in the order of its config."""
    return tuple(_options(kind))


def make_settings(kind: Kind, values: Mapping[str, Any]) -> object:
    """The kind's config from values or their texts, as of a command line. Raises UsageError."""
    hints = get_type_hints(kind.config, include_extras=True)
    names = [field.name for field in fields(kind.config)]
    for name, value in values.items():
        if name not in names:
            raise UsageError(f"{kind.name} has no option {name!r}; it has {', '.join(names) or 'none'}")
        _check(kind, name, value, hints[name])
    try:
        return cast("object", msgspec.convert(dict(values), kind.config, strict=False))
    except _REFUSED as error:
        raise UsageError(f"options of {kind.name}: {error}") from error


def _check(kind: Kind, name: str, value: object, hint: object) -> None:
    try:
        msgspec.convert(value, hint, strict=False)
    except _REFUSED as error:
        words = _words(hint)
        right = f"use one of {', '.join(words)}" if words else str(error)
        raise UsageError(f"{name}={value!r:.200}, an option of {kind.name}: {right}") from error


def _words(hint: object) -> tuple[str, ...]:
    """All values that an option may have; none where they are not to be listed."""
    origin, inner = get_origin(hint), get_args(hint)
    if hint is bool:
        return ("true", "false")
    if origin is Literal:
        return tuple(map(str, inner))
    if origin is Annotated:
        return _words(inner[0])
    parts = [_words(part) for part in inner if part is not NoneType] if origin in (Union, UnionType) else []
    return tuple(chain.from_iterable(parts)) if all(parts) else ()


def _options(kind: Kind) -> Iterator[Option]:
    hints = get_type_hints(kind.config, include_extras=True)
    for field in fields(kind.config):
        metadata: tuple[object, ...] = getattr(hints[field.name], "__metadata__", ())
        about = next((meta.description for meta in metadata if isinstance(meta, msgspec.Meta)), None)
        yield Option(field.name, _default(field), about or "")


def _default(field: "Field[Any]") -> str:
    if field.default is not MISSING:
        return str(field.default)
    return "" if field.default_factory is MISSING else str(field.default_factory())
