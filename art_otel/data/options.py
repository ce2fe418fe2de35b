"""Options: what users give is checked against a schema, once for all functions and exporters.

Invariant: an option is of its type and within its bounds, or a UsageError names it, its value and what to give instead.
Equal options come out equal, whatever they were given as (a number of numpy, a list in the place of a tuple).
"""

from collections.abc import Iterable, Mapping
from itertools import chain
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

import msgspec
import numpy as np

from art_otel.errors import UsageError

_SchemaT = TypeVar("_SchemaT")

_REFUSED: Final = (msgspec.ValidationError, ValueError, TypeError)


def validate(schema: type[_SchemaT], values: Mapping[str, object], *, owner: str = "", texts: bool = False) -> _SchemaT:
    """Make the schema, a frozen dataclass or msgspec.Struct, of options by name.

    Its annotations, with `msgspec.Meta`, say what is allowed; ValueErrors of its `__post_init__` say what must not be
    together. `owner` is named in messages; with `texts` values may be texts, as of a command line. Raises UsageError.
    """
    hints = get_type_hints(schema, include_extras=True)
    of = f", an option of {owner}" if owner else ""
    converted: dict[str, object] = {}
    for name, value in values.items():
        if name not in hints:
            raise UsageError(f"{owner or schema.__name__} has no option {name!r}; it has {', '.join(hints) or 'none'}")
        try:
            converted[name] = msgspec.convert(_plain(value), hints[name], strict=not texts)
        except _REFUSED as error:
            words = _words(hints[name])
            advice = f"use one of {', '.join(words)}" if words else str(error)
            raise UsageError(f"{name}={value!r:.200}{of}: {advice}") from error
    try:
        return schema(**converted)
    except _REFUSED as error:
        raise UsageError(str(error)) from error


def as_names(value: object) -> object:
    """Several names as a tuple, also where one was given as text; what is no text and no iterable as it is."""
    if isinstance(value, str):
        return (value,)
    return tuple(cast(Iterable[object], value)) if isinstance(value, Iterable) else value


def _plain(value: object) -> object:
    """The value with Python's own numbers in the place of numpy's."""
    if isinstance(value, np.generic):
        return cast(object, value.item())
    if isinstance(value, list | tuple):
        return [_plain(item) for item in cast(Iterable[object], value)]
    return value


def _words(hint: object) -> tuple[str, ...]:
    """All values that an option may have; none where they cannot be listed."""
    origin, inner = get_origin(hint), get_args(hint)
    if hint is bool:
        return ("true", "false")
    if origin is Literal:
        return tuple(map(str, inner))
    if origin in (Annotated, frozenset):
        return _words(inner[0])
    parts: list[Any] = [_words(part) for part in inner if part is not NoneType] if origin in (Union, UnionType) else []
    return tuple(chain.from_iterable(parts)) if all(parts) else ()
