"""Durations on the command line."""

import argparse

from art_otel.durations import seconds_of
from art_otel.errors import UsageError


def seconds(text: str) -> float:
    """Read a time as `seconds_of` does. Raises ArgumentTypeError for what is none."""
    try:
        return seconds_of(text)
    except UsageError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
