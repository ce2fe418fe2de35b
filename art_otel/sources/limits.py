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
    "max_document_bytes",
    "max_decompressed_bytes",
    "max_attribute_bytes",
    "max_depth",
    "max_rollout_spans",
    "max_rollout_bytes",
]

MAX_LIMIT: Final = 1 << 60
"""Larger ones do not fit what counts bytes in C."""

MAX_DEPTH: Final = 200
"""What is nested deeper than Python's own limit on recursion allows cannot be walked."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Sizes are bytes after decompression. Raises UsageError for a limit that cannot be one.

    An attribute value is a text (in UTF-8), bytes, or the whole of a list or dict: its texts, names and bytes, and one
    for each value in it. 32 levels are what every protobuf reader can take (it stops at 100 messages inside each other,
    which is 32 dicts in an event).
    """

    max_message_bytes: Annotated[int, Meta(description="one line, object or protobuf message")] = 256 << 20
    max_document_bytes: Annotated[int, Meta(description="a JSON document over several lines, read whole")] = 512 << 20
    max_decompressed_bytes: Annotated[int, Meta(description="what one file decompresses to")] = 1 << 40
    max_attribute_bytes: Annotated[int, Meta(description="one attribute value, or the body of a log record")] = 64 << 20
    max_depth: Annotated[int, Meta(description="lists and dicts inside each other in one attribute value")] = 32
    max_rollout_spans: Annotated[int, Meta(description="spans of one rollout or trace")] = 250_000
    max_rollout_bytes: Annotated[int, Meta(description="all spans of one rollout or trace")] = 512 << 20

    def __post_init__(self) -> None:
        """Check every limit."""
        for name in self.__struct_fields__:
            most = MAX_DEPTH if name == "max_depth" else MAX_LIMIT
            limit: int = getattr(self, name)
            if not 1 <= limit <= most:
                raise UsageError(f"{option_of(name)} {limit}: must be from 1 to {most:,}")


def option_of(name: str) -> str:
    """The option of the command line that sets a limit."""
    return f"--{name.replace('_', '-')}"


def advice(name: LimitName) -> str:
    """What to do to read what is beyond a limit."""
    return f"raise {option_of(name)} (Limits.{name}) to read this"
