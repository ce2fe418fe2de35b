"""Refused: why a message, or a part of it, cannot be kept, the Quarantined that says so, and the limits of a dump.

Invariant: every Quarantined made here names the file, the line or message and, as far as they are known, the trace,
the span and the field, in that order: `traces.jsonl:17 / trace 4bf9… / span 00f0… / attributes["art.reward"]`. What is
quarantined for being beyond a limit says which option raises it.
"""

import json
import re
from collections.abc import Iterator
from typing import Annotated, Final, Literal, TypeAlias, TypeVar

import msgspec
from msgspec import Meta

from art_otel.errors import UsageError
from art_otel.spans import Quarantined, QuarantineReason
from art_otel.spans.span import MAX_DETAIL, Kind

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


Message = TypeVar("Message")

MAX_NAME: Final = 200

_FAULT: Final = re.compile(r" - at `\$\.?(.*)`$", re.DOTALL)
"""The path to a field of the wrong type, with which msgspec's message ends."""

Ids: TypeAlias = tuple[str | None, str | None]
"""(trace_id, span_id), each None where it is not known."""

NO_IDS: Final[Ids] = (None, None)

Site: TypeAlias = tuple[str, str | None]
"""Where a value stands: the path of its owner (empty, or `events[0].`) and its name; `("body", None)` for a body."""


class Refused(Exception):  # noqa: N818 # it becomes a Quarantined and is no error of the program
    """A message that cannot be a record. `where` is the path inside it."""

    def __init__(self, reason: QuarantineReason, where: str = "", detail: str = "") -> None:
        super().__init__(reason, where, detail)
        self.reason: QuarantineReason = reason
        self.where = where
        self.detail = detail

    def quarantine(
        self, location: str, kind: Kind = "unknown", ids: Ids = NO_IDS, *, partial: bool = False
    ) -> Quarantined:
        """Make the Quarantined of the record, or of the piece of it, that stands at `location` (`file:line`)."""
        trace_id, span_id = ids
        steps = (location, trace_id and f"trace {trace_id}", span_id and f"span {span_id}", self.where)
        return Quarantined(
            reason=self.reason,
            path=" / ".join(step for step in steps if step),
            detail=self.detail,
            kind=kind,
            trace_id=trace_id,
            span_id=span_id,
            partial=partial,
        )


class DroppedFields(dict[QuarantineReason, dict[str, None]]):
    """The fields that a kept record loses: the reason, and the paths of as many as one detail can name."""

    def note(self, where: str, reason: QuarantineReason) -> None:
        """Note that the field at `where` is lost."""
        places = self.setdefault(reason, {})
        if len(places) < MAX_DETAIL:  # a record may lose millions
            places[where] = None

    def quarantine(self, location: str, kind: Kind = "unknown", ids: Ids = NO_IDS) -> Iterator[Quarantined]:
        """Make a partial Quarantined for each reason. The path leads to the first field, the detail names the rest."""
        for reason, (first, *others) in self.items():
            detail = f"also: {', '.join(others)}" if others else ""
            yield Refused(reason, first, detail).quarantine(location, kind, ids, partial=True)


def attribute_path(site: Site) -> str:
    """Name an attribute with its owner before it, as `events[0].attributes["art.reward"]`."""
    owner, name = site
    return owner if name is None else f"{owner}attributes[{json.dumps(name[:MAX_NAME])}]"


def converted(value: object, message: type[Message], *, strict: bool = False) -> Message:
    """Convert a decoded JSON value into a message. Raises Refused."""
    try:
        return msgspec.convert(value, message, strict=strict)
    except msgspec.ValidationError as error:
        path = _FAULT.search(str(error))
        raise Refused("bad field", path[1] if path else "", str(error)) from None
    except RecursionError:
        raise Refused("nested too deep", detail="deeper than any reader goes") from None


def too_long(location: str) -> Quarantined:
    """Make the Quarantined of a message over the limit."""
    detail = f"the message is longer than the limit; {advice('max_message_bytes')}"
    return Refused("over a limit", detail=detail).quarantine(location)
