"""Addresses: how a page's address names a trajectory and a group, and what is raised where it names nothing.

Invariant: `decode_x(encode_x(key)) == key`, and an address needs no further escaping. A key is its fields with `~`
between, the id first; fields at the end that are unknown, or 0 of a source, are left out. Signs other than letters,
digits and `-._` are escaped as in URLs, with `!` in place of `%`.

    rollout 9f3c, attempt 1   9f3c~1              group math/7 of step 49   math!2F7~49
"""

from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

from art_otel.errors import ArtOtelError
from art_otel.trajectories import GroupKey


class NotFoundError(ArtOtelError):
    """Raised where there is nothing at this address: 404."""


class ReplacedError(ArtOtelError):
    """Raised where the data was replaced since the page saw it: 409."""


class TrajectoryKey(NamedTuple):
    """A trajectory: its rollout and attempt, and the number of its source among those that are shown."""

    rollout_id: str
    attempt: int | None
    source: int

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> "TrajectoryKey":
        """The key of a trajectory from the plain fields of its row."""
        return cls(record["rollout_id"], record["attempt"], record["source"])


def group_key_of(record: Mapping[str, Any]) -> GroupKey:
    """The key of the group that a row is in, from its plain fields."""
    return GroupKey(*(record[name] for name in GroupKey._fields))


def encode_key(key: TrajectoryKey | GroupKey) -> str:
    """The key as a part of an address."""
    match key:
        case TrajectoryKey(rollout_id, attempt, source):
            fields = (rollout_id, attempt, source or None)
        case GroupKey(training_step, gathering, group_id):
            fields = (group_id, training_step, gathering)
    texts = ["" if field is None else _quoted(str(field)) for field in fields]
    return "~".join(texts).rstrip("~")


def decode_trajectory_key(text: str) -> TrajectoryKey:
    """The key that an address names. Raises NotFoundError."""
    rollout_id, attempt, source = _fields(text, "trajectory")
    return TrajectoryKey(rollout_id or "", _number(attempt, "trajectory"), _number(source, "trajectory") or 0)


def decode_group_key(text: str) -> GroupKey:
    """The key that an address names. Raises NotFoundError."""
    group_id, training_step, gathering = _fields(text, "group")
    return GroupKey(_number(training_step, "group"), gathering, group_id or "")


def _quoted(text: str) -> str:
    quoted = quote(text, safe="", errors="surrogatepass").replace("%", "!").replace("~", "!7E")
    # Nothing, `.` and `..` are no names in a path.
    return quoted if text.strip(".") else quoted.replace(".", "!2E") or "!"


def _unquoted(part: str) -> str:
    return "" if part == "!" else unquote(part.replace("!", "%"), errors="surrogatepass")


def _fields(text: str, thing: str) -> list[str | None]:
    parts = text.split("~")
    if len(parts) > 3:
        raise NotFoundError(f"the address names no {thing}")
    named = [_unquoted(part) if part else None for part in parts]
    return [*named, *[None] * (3 - len(named))]


def _number(text: str | None, thing: str) -> int | None:
    if text is None:
        return None
    if not text.removeprefix("-").isdecimal() or len(text) > 20:
        raise NotFoundError(f"the address names no {thing}")
    return int(text)
