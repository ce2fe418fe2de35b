"""Sizes in bytes as people write them: `1048576`, `1024KiB`, `64MiB`, `2GiB`, `1TiB`.

Invariant: what is written is read back as the same number. `MB` is no unit: some mean 1000 and some 1024.
"""

import re
from typing import Final

_UNITS: Final = {"TiB": 1 << 40, "GiB": 1 << 30, "MiB": 1 << 20, "KiB": 1 << 10, "": 1}
_BYTES: Final = {unit.lower(): size for unit, size in _UNITS.items()}
_SIZE: Final = re.compile(r"([0-9]{1,18}) ?([kmgt]ib|)")


def parse_size(text: str) -> int:
    """The bytes. Raises ValueError, which says how a size is written."""
    size = _SIZE.fullmatch(text.strip().lower())
    if size is None:
        raise ValueError(f"{text!r} is no size: write bytes, or a whole number of KiB, MiB, GiB or TiB, as in 64MiB")
    return int(size[1]) * _BYTES[size[2]]


def format_size(size: int) -> str:
    """The size in the largest unit of which it is a whole number."""
    return next(f"{size // bytes_}{unit}" for unit, bytes_ in _UNITS.items() if size % bytes_ == 0)
