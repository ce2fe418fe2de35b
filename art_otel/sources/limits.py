"""Limits: how much one dump may ask of this process before a piece of it is set aside.

Invariant: every limit is a positive whole number that the machine can count with, and what is quarantined for being
beyond one says which option raises it. The options of the command line are made of the fields and their descriptions.
"""

from typing import Annotated, Final, Literal, TypeAlias

import msgspec
from msgspec import Meta

from art_otel.errors import UsageError

LimitName: TypeAlias = Literal[
    "max_message_bytes",
    "max_decompressed_bytes",
    "max_rollout_spans",
    "max_rollout_bytes",
]

MAX_LIMIT: Final = 1 << 60
"""Larger ones do not fit what counts bytes in C."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Sizes are bytes after decompression. Raises UsageError for a limit that cannot be one."""

    max_message_bytes: Annotated[int, Meta(description="one line, JSON document or protobuf message")] = 256 << 20
    max_decompressed_bytes: Annotated[int, Meta(description="what one file decompresses to")] = 1 << 40
    max_rollout_spans: Annotated[int, Meta(description="spans of one rollout or trace")] = 250_000
    max_rollout_bytes: Annotated[int, Meta(description="all spans of one rollout or trace")] = 512 << 20

    def __post_init__(self) -> None:
        """Check every limit."""
        for name in self.__struct_fields__:
            limit: int = getattr(self, name)
            if not 1 <= limit <= MAX_LIMIT:
                raise UsageError(f"{option_of(name)} {limit}: must be from 1 to {MAX_LIMIT:,}")


def option_of(name: str) -> str:
    """Name the option of the command line that sets a limit."""
    return f"--{name.replace('_', '-')}"


def advice(name: LimitName) -> str:
    """Say what to do to read what is beyond a limit."""
    return f"raise {option_of(name)} (Limits.{name}) to read this"
