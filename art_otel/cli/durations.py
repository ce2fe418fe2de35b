"""Durations on the command line."""

import argparse

from art_otel.errors import UsageError


def seconds(text: str) -> float:
    """Read a time as `seconds_of` does. Raises ArgumentTypeError for what is none."""
    from art_otel.conversion import seconds_of  # noqa: PLC0415 # loads only for who gives a time

    try:
        return seconds_of(text)
    except UsageError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
