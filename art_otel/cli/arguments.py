"""Arguments: how sizes, times, limits and destinations are written on the command line.

Invariant: what cannot be one is refused by argparse with how it is written. A size that is printed is read back as the
same number; `MB` is no unit, because some mean 1000 and some 1024. A destination is a path of this machine that every
library can open, or a URL of an object store where one will do.
"""

import argparse
import re
from collections.abc import Callable, Iterable
from dataclasses import MISSING, Field
from pathlib import Path
from typing import Any, Final, cast, get_type_hints

from msgspec import Meta

from art_otel import storage
from art_otel.errors import UsageError
from art_otel.receiver.settings import seconds as read_seconds
from art_otel.sources import Limits, option_of

_UNITS: Final = {"TiB": 1 << 40, "GiB": 1 << 30, "MiB": 1 << 20, "KiB": 1 << 10, "": 1}
_BYTES: Final = {unit.lower(): size for unit, size in _UNITS.items()}
_SIZE: Final = re.compile(r"([0-9]{1,18}) ?([kmgt]ib|)")
_IS_COUNT: Final = re.compile("[0-9]{1,18}").fullmatch
_URL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")


def destination(text: str) -> Path:
    """The path, for argparse."""
    if not text:
        raise argparse.ArgumentTypeError(
            "an empty path is not a folder name; is a variable unset? The current folder is written ."
        )
    if _URL.match(text):
        raise argparse.ArgumentTypeError(f"{text!r} is a URL; write to a local folder and copy it there")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise argparse.ArgumentTypeError(f"{text!r} is not UTF-8; choose another path") from None
    return Path(text)


def destination_or_store(text: str) -> Path | str:
    """The path, or the URL of an object store, for argparse."""
    return text if storage.is_url(text) else destination(text)


def add_settings(parser: argparse.ArgumentParser, settings: Iterable["Field[Any]"], *names: str) -> None:
    """Add the flag of each setting (or of those with these names), made of its field: `max_calls` is --max-calls.

    A setting without a help text has no flag.
    """
    for setting in settings:
        more = dict(setting.metadata)
        if not more or (names and setting.name not in names):
            continue
        flag = more.pop("flag", f"--{setting.name.replace('_', '-')}")
        default = setting.default if setting.default_factory is MISSING else setting.default_factory()
        if more.get("type", int) is not int:  # argparse itself says what is no `int`
            more["type"] = _read(more["type"])
        # argparse appends to the list that is the default.
        parser.add_argument(flag, dest=setting.name, default=[] if default == () else default, **more)


def parse_size(text: str) -> int:
    """The bytes. Raises ValueError, which says how a size is written."""
    size = _SIZE.fullmatch(text.strip().lower())
    if size is None:
        raise ValueError(
            f"{text!r} is not a size: write a number of bytes, or a whole number of KiB, MiB, GiB or TiB, such as 64MiB"
        )
    return int(size[1]) * _BYTES[size[2]]


def format_size(size: int) -> str:
    """The size in the largest unit of which it is a whole number."""
    return next(f"{size // bytes_}{unit}" for unit, bytes_ in _UNITS.items() if size % bytes_ == 0)


def add_limits(parser: argparse.ArgumentParser) -> None:
    """Add an option for each field of `art_otel.sources.Limits`, made of its description."""
    group = parser.add_argument_group(
        "limits", "Input that exceeds a limit is set aside, counted and named in the report."
    )
    defaults = Limits()
    for name, hint in get_type_hints(Limits, include_extras=True).items():
        (about,) = cast(tuple[Meta], hint.__metadata__)
        is_size = name.endswith("_bytes")
        default: int = getattr(defaults, name)
        group.add_argument(
            option_of(name),
            type=_read(parse_size if is_size else _parse_count),
            default=default,
            metavar="SIZE" if is_size else "N",
            help=f"{about.description} (default: {format_size(default) if is_size else default})",
        )


def limits_of(arguments: argparse.Namespace) -> Limits:
    """The limits that were given. Raises UsageError for one that cannot be one."""
    return Limits(**{name: getattr(arguments, name) for name in Limits.__struct_fields__})


def _read(parse: Callable[[str], Any]) -> Callable[[str], Any]:
    """Argparse shows the message of an ArgumentTypeError only."""

    def read(text: str) -> Any:  # noqa: ANN401 # what `parse` returns
        try:
            return parse(text)
        except (ValueError, UsageError) as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return read


def _parse_count(text: str) -> int:
    if not _IS_COUNT(text):
        raise ValueError(f"{text!r} is not a whole number")
    return int(text)


seconds: Final = _read(read_seconds)
"""Reads a time such as 90s or 30d, for argparse."""
