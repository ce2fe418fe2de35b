"""Options: check the options of all functions and exporters against a schema.

Invariant: a checked option has its type and is within its bounds; otherwise a UsageError has its name, its value and
what to give instead. Equal options are equal after the check, whether given as list or tuple, numpy or Python number.
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
    """The type, default and texts of an option, for checks and forms.

    `read` turns a text into the option's value; `choices` are all values of a `choice`, and examples of a `text`.
    `of_text` is the default if text is trained (None: the same default); an option with `only_of_ids` then cannot be
    given at all.
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
        """The kind of form field."""
        if self.read is int:
            return "number"
        return "choice" if get_origin(self.type) is Literal else "text"

    @property
    def default_text(self) -> str | None:
        """The default as text; None if there is no default."""
        if isinstance(default := self.default, frozenset):
            return ",".join(sorted(map(str, cast(frozenset[object], default))))
        return None if default is None else str(default).lower()

    def check(self, name: str, value: object) -> Any:  # noqa: ANN401 # as the type says
        """Check a value and convert it to the option's type. Raises UsageError."""
        kinds = {get_origin(one) for one in (self.type, *get_args(self.type))}
        return checked(name, as_names(value) if kinds & {frozenset, tuple} else value, self.type)

    def read_text(self, name: str, text: str) -> object:
        """Read the option's value from a text. Raises UsageError, which names the option."""
        if self.kind == "choice" and text not in self.choices:
            raise UsageError(f"{name}={text!r:.100}: use one of {', '.join(self.choices)}")
        try:
            return self.read(text)
        except ValueError as error:
            problem = "must be a whole number" if self.read is int else str(error)
            raise UsageError(f"{name}={text!r:.100}: {problem}") from error


def validate(schema: type[_SchemaT], values: Mapping[str, object], *, owner: str = "", texts: bool = False) -> _SchemaT:
    """Make an instance of a schema, a frozen dataclass or msgspec.Struct, from options by name.

    The schema's annotations, with `msgspec.Meta`, are the allowed values; its `__post_init__` may raise ValueError for
    options that exclude each other. `owner` is named in messages; with `texts` values may be texts, as from a command
    line. Raises UsageError.
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
    """Convert a value to the type of the hint. Raises UsageError, which names the option."""
    try:
        return msgspec.convert(_plain(value), hint, strict=not texts)
    except _REFUSED as error:
        words, of = _words(hint), f", an option of {owner}" if owner else ""
        advice = f"use one of {', '.join(words)}" if words else str(error)
        raise UsageError(f"{name}={value!r:.200}{of}: {advice}") from error


def as_names(value: object) -> object:
    """One name or several as a tuple; a value that is neither a text nor iterable stays as it is."""
    if isinstance(value, str):
        return (value,)
    return tuple(cast(Iterable[object], value)) if isinstance(value, Iterable) else value


def _plain(value: object) -> object:
    """The value with numpy's numbers replaced by Python's: msgspec takes only these."""
    if isinstance(value, np.generic):
        return cast(object, value.item())
    if isinstance(value, list | tuple):
        return [_plain(item) for item in cast(Iterable[object], value)]
    return value


def _words(hint: object) -> tuple[str, ...]:
    """All values of an option; empty if they cannot be listed."""
    origin, inner = get_origin(hint), get_args(hint)
    if hint is bool:
        return ("true", "false")
    if origin is Literal:
        return tuple(map(str, inner))
    if origin in (Annotated, frozenset):
        return _words(inner[0])
    parts: list[Any] = [_words(part) for part in inner if part is not NoneType] if origin in (Union, UnionType) else []
    return tuple(chain.from_iterable(parts)) if all(parts) else ()
