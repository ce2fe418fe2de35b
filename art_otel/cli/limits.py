"""Limits on the command line: an option for each field of `art_otel.sources.Limits`, made of its description."""

import argparse
import re
from collections.abc import Callable
from typing import Final, cast, get_type_hints

from msgspec import Meta

from art_otel.cli.sizes import format_size, parse_size
from art_otel.sources import Limits, option_of

_IS_COUNT: Final = re.compile("[0-9]{1,18}").fullmatch


def add_limits(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    group = parser.add_argument_group(
        "limits", "The most that is taken in; what is beyond is set aside, counted and named in the report."
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


def _read(parse: Callable[[str], int]) -> Callable[[str], int]:
    """Argparse shows the message of an ArgumentTypeError only."""

    def read(text: str) -> int:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return read


def _parse_count(text: str) -> int:
    if not _IS_COUNT(text):
        raise ValueError(f"{text!r} is no whole number")
    return int(text)
