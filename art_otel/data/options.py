"""Options: what users give is checked against a schema, once for all functions and exporters.

An option is of its type and within its bounds, or a UsageError names it, its value and what to give instead. Equal
options come out equal, whatever they were given as (a number of numpy, a list in the place of a tuple).
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import chain
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

import msgspec
import numpy as np

from art_otel.errors import UsageError

_SchemaT = TypeVar("_SchemaT")

_REFUSED: Final = (msgspec.ValidationError, ValueError, TypeError)


@dataclass(frozen=True, kw_only=True, slots=True)
class DescribedOption:
    """All that is said of an option besides its name: what its checked value is, and how a form shows it.

    `read` makes of a text what a function takes; `choices` are all values of a `choice`, and examples of a `text`.
    `of_text` is the default where text is trained, if that is another; with `only_of_ids` it is then the only value.
    """

    default: object
    label: str
    help: str
    read: Callable[[str], object] = str
    choices: tuple[str, ...] = ()
    of_text: object = None
    only_of_ids: bool = False
    type: Any = None

    @property
    def kind(self) -> Literal["choice", "number", "text"]:
        """How a form asks for it."""
        if self.read is int:
            return "number"
        return "choice" if get_origin(self.type) is Literal else "text"

    @property
    def default_text(self) -> str | None:
        """The default as a text; None where there is no default."""
        if isinstance(default := self.default, frozenset):
            return ",".join(sorted(map(str, cast(frozenset[object], default))))
        return None if default is None else str(default).lower()

    def check(self, name: str, value: object) -> Any:  # noqa: ANN401 # as the type says
        """The value in the option's type. Raises UsageError."""
        kinds = {get_origin(one) for one in (self.type, *get_args(self.type))}
        return checked(name, as_names(value) if kinds & {frozenset, tuple} else value, self.type)

    def read_text(self, name: str, text: str) -> object:
        """What the text means. Raises UsageError, which names the option."""
        if self.kind == "choice" and text not in self.choices:
            raise UsageError(f"{name}={text!r:.100}: use one of {', '.join(self.choices)}")
        try:
            return self.read(text)
        except ValueError as error:
            problem = "must be a whole number" if self.read is int else str(error)
            raise UsageError(f"{name}={text!r:.100}: {problem}") from error


def validate(schema: type[_SchemaT], values: Mapping[str, object], *, owner: str = "", texts: bool = False) -> _SchemaT:
    """Make the schema, a frozen dataclass or msgspec.Struct, of options by name.

    Its annotations, with `msgspec.Meta`, say what is allowed; ValueErrors of its `__post_init__` say what must not be
    together. `owner` is named in messages; with `texts` values may be texts, as of a command line. Raises UsageError.
    """
    hints = get_type_hints(schema, include_extras=True)
    converted: dict[str, object] = {}
    for name, value in values.items():
        if name not in hints:
            raise UsageError(f"{owner or schema.__name__} has no option {name!r}; it has {', '.join(hints) or 'none'}")
        converted[name] = checked(name, value, hints[name], owner=owner, texts=texts)
    try:
        return schema(**converted)
    except _REFUSED as error:
        raise UsageError(str(error)) from error


def checked(name: str, value: object, hint: Any, *, owner: str = "", texts: bool = False) -> Any:  # noqa: ANN401 # as the hint says
    """The value as the hint wants it. Raises UsageError, which names the option."""
    try:
        return msgspec.convert(_plain(value), hint, strict=not texts)
    except _REFUSED as error:
        words, of = _words(hint), f", an option of {owner}" if owner else ""
        advice = f"use one of {', '.join(words)}" if words else str(error)
        raise UsageError(f"{name}={value!r:.200}{of}: {advice}") from error


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
