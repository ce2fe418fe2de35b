"""Switch: whether this process was said to be traced or not.

Invariant: nobody having said anything is neither: what is not recorded then may have been forgotten.
"""

import os
from collections.abc import Mapping
from typing import Final

ENABLED: Final = "ART_OTEL_ENABLED"
_SDK_DISABLED: Final = "OTEL_SDK_DISABLED"

_ON: Final = frozenset({"1", "true", "yes", "on"})
_OFF: Final = frozenset({"0", "false", "no", "off"})

_off_by_app = False


def as_switch(value: object) -> bool | None:
    """Parse a value as on or off; None if it is neither."""
    if isinstance(value, bool):
        return value
    word = value.strip().lower() if isinstance(value, str) else value
    return True if word in _ON else False if word in _OFF else None


def is_sdk_off(environ: Mapping[str, str]) -> bool:
    """Whether OTel makes no span, whoever asks."""
    return environ.get(_SDK_DISABLED, "").strip().lower() == "true"


def turn(*, off: bool) -> None:
    """The app says that it is not traced, or no longer says so."""
    global _off_by_app  # noqa: PLW0603 # one a process, as the set-up is
    _off_by_app = off


def is_off() -> bool:
    """Whether the app or the environment says that nothing is to be recorded."""
    return _off_by_app or as_switch(os.environ.get(ENABLED)) is False or is_sdk_off(os.environ)
