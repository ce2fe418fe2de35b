"""Parcel: a finished rollout on its way from the receiver to a trainer.

Invariant: a trajectory stands beside its receipt, and is one of this version's; another version is refused by name.
"""

from dataclasses import replace
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta

from art_otel.errors import UsageError
from art_otel.receiver.protocol.receipt import Receipt
from art_otel.receiver.protocol.selection import Selection
from art_otel.store import decode_trajectory
from art_otel.trajectories import Trajectory
from art_otel.version import __version__


class Delivery(NamedTuple):
    """A trajectory, and what acknowledges it."""

    receipt: Receipt
    trajectory: Trajectory


class Parcel(msgspec.Struct, frozen=True, gc=False):
    """A delivery on its way. `encoded` is the trajectory as `encode_trajectory` gave it, before it had a revision."""

    receipt: Receipt
    encoded: bytes

    def unpack(self) -> Delivery:
        """The delivery. Raises StoreError for what is none."""
        return Delivery(self.receipt, replace(decode_trajectory(self.encoded), revision=self.receipt.revision))


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """A question of the session `session` of another process."""

    session: str
    handled: list[Receipt] = []
    holds: list[Receipt] = []
    selection: Selection = Selection()
    count: Annotated[int, Meta(ge=0)] = 0
    wait: float = 0.0


class _Answer(msgspec.Struct, frozen=True, kw_only=True):
    version: str
    parcels: list[Parcel]


def encode_answer(parcels: list[Parcel]) -> bytes:
    """The body of an answer."""
    return msgspec.msgpack.encode(_Answer(version=__version__, parcels=parcels))


def decode_answer(body: bytes) -> list[Parcel]:
    """Read what `encode_answer` gave. Raises UsageError for what another version gave."""
    try:
        answer = msgspec.msgpack.decode(body, type=_Answer)
    except msgspec.DecodeError as error:
        raise UsageError(f"this is no art-otel server of version {__version__}: {error}") from error
    if answer.version != __version__:
        raise UsageError(f"the server is art-otel {answer.version}, this is {__version__}: install the same version")
    return answer.parcels
