"""PolicyNumber: a policy version as the number that trainers count with.

Invariant: a version that is no whole number, or a larger one than the format holds, is none and never another one.
"""

from typing import Final

_INT64: Final = 2**63 - 1


def policy_number(version: str | None, *, largest: int = _INT64) -> int | None:
    """The number from 0 to `largest`; None where the version is unknown or no such number."""
    if version is None or not (version.isascii() and version.isdecimal()) or len(version) > len(str(largest)):
        return None
    return int(version) if int(version) <= largest else None
