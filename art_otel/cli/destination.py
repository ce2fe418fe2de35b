"""Destination: the path or URL that a command was told to write to.

Invariant: it is a path of this machine that every library can open, or a URL of an object store where one will do.
"""

import argparse
import re
from pathlib import Path
from typing import Final

from art_otel import storage

_URL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")


def destination(text: str) -> Path:
    """The path, for argparse."""
    if not text:
        raise argparse.ArgumentTypeError("an empty path names no folder; is a variable unset? The current folder is .")
    if _URL.match(text):
        raise argparse.ArgumentTypeError(f"{text!r} is a URL; write to a folder here and copy it there")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise argparse.ArgumentTypeError(f"{text!r} is no UTF-8; name another path") from None
    return Path(text)


def destination_or_store(text: str) -> Path | str:
    """The path, or the URL of an object store, for argparse."""
    return text if storage.is_url(text) else destination(text)
