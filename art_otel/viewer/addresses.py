"""Addresses: how a page's address names a trajectory and a group, and what is raised where it names nothing.

Invariant: `decode_x(encode_x(key)) == key`, and a key holds letters, digits, `-` and `_` alone.
"""

import binascii
import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from typing import Any, NamedTuple, cast

from art_otel.errors import ArtOtelError
from art_otel.trajectories import GroupKey


class NotFoundError(ArtOtelError):
    """Raised where nothing has this address: 404."""


class ReplacedError(ArtOtelError):
    """Raised where the data was replaced since the page saw it: 409."""


class TrajectoryKey(NamedTuple):
    """A trajectory: its rollout, attempt and trace, and the number of its source among those that are shown."""

    rollout_id: str
    attempt: int | None
    trace_id: str
    source: int

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> "TrajectoryKey":
        """The key of a trajectory from the plain fields of its row."""
        return cls(record["rollout_id"], record["attempt"], record["trace_id"], record["source"])


def group_key_of(record: Mapping[str, Any]) -> GroupKey:
    """The key of the group that a row is in, from its plain fields."""
    return GroupKey(*(record[name] for name in GroupKey._fields))


def encode_key(key: TrajectoryKey | GroupKey) -> str:
    """The key as a part of an address."""
    text = json.dumps(key, separators=(",", ":"), ensure_ascii=False)
    return urlsafe_b64encode(text.encode("utf-8", "surrogatepass")).rstrip(b"=").decode()


def decode_trajectory_key(text: str) -> TrajectoryKey:
    """The key that an address names. Raises NotFoundError."""
    match _values(text):
        case [str(rollout_id), int() | None as attempt, str(trace_id), int(source)]:
            return TrajectoryKey(rollout_id, attempt, trace_id, source)
        case _:
            raise NotFoundError("the address names no trajectory")


def decode_group_key(text: str) -> GroupKey:
    """The key that an address names. Raises NotFoundError."""
    match _values(text):
        case [int() | None as training_step, str() | None as gathering, str(group_id)]:
            return GroupKey(training_step, gathering, group_id)
        case _:
            raise NotFoundError("the address names no group")


def _values(text: str) -> list[object]:
    try:
        decoded: object = json.loads(urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode("utf-8", "surrogatepass"))
    except (ValueError, binascii.Error, RecursionError):
        return []
    return cast(list[object], decoded) if isinstance(decoded, list) else []
