"""Destination: the path that a command was told to write to.

Invariant: it is a path of this machine that every library can open.
"""

import argparse
import re
from pathlib import Path
from typing import Final

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
