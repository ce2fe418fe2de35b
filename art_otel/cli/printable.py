"""Printable: text from a dump as a terminal may show it.

Invariant: what comes out holds no control character but newline and tab, and nothing that turns or hides what is beside
it, so nothing in a dump can drive a terminal.
"""

import io
import json
import os
import sys
from pathlib import Path
from typing import Final

_CONTROLS: Final = {
    **{code: chr(0x2400 + code) for code in range(0x20) if chr(code) not in "\n\t"},
    0x7F: "\u2421",
    **dict.fromkeys(range(128, 160), "�"),
    0x061C: "�",
    **dict.fromkeys([0xAD, 0x200B, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2060, 0x206A), 0xFEFF], "�"),
    **dict.fromkeys(range(0xE0000, 0xE0080), "�"),
}
"""Unicode's control pictures; one character for one, so that styles keep their place. What has no picture ends lines,
has no width, or changes the direction of text. What joins letters and emoji stays: texts need it."""


def printable(text: str) -> str:
    """The text with every control character replaced by a picture of it."""
    return text.translate(_CONTROLS)


def printable_json(value: object) -> str:
    """JSON in ASCII without control characters: the same value in every encoding, for a program or a terminal."""
    return json.dumps(value, indent=2).replace("\x7f", "\\u007f")


def forgive_streams() -> None:
    """Write what the terminal's encoding does not have as an escape instead of raising UnicodeEncodeError.

    Where there is no stdout or stderr (`art-otel … >&-`), what is said goes nowhere.
    """
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115 # as long as the process
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
