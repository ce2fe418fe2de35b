"""Delivered: finished rollouts as they travel from the receiver to a trainer.

Invariant: each trajectory stands beside its receipt, and is one of this version's; another version is refused by name.
"""

from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta

from art_otel.errors import UsageError
from art_otel.receiver.acknowledged import Receipt
from art_otel.receiver.selection import Selection
from art_otel.store import decode_trajectories, encode_trajectories
from art_otel.trajectories import Trajectory
from art_otel.version import __version__


class Delivery(NamedTuple):
    """A trajectory, and what acknowledges it."""

    receipt: Receipt
    trajectory: Trajectory


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
    receipts: list[Receipt]
    trajectories: bytes


def encode_answer(deliveries: list[Delivery]) -> bytes:
    """The body of an answer."""
    trajectories = encode_trajectories([delivery.trajectory for delivery in deliveries]) if deliveries else b""
    receipts = [delivery.receipt for delivery in deliveries]
    return msgspec.msgpack.encode(_Answer(version=__version__, receipts=receipts, trajectories=trajectories))


def decode_answer(body: bytes) -> list[Delivery]:
    """Read what `encode_answer` gave. Raises UsageError for what another version gave."""
    try:
        answer = msgspec.msgpack.decode(body, type=_Answer)
    except msgspec.DecodeError as error:
        raise UsageError(f"this is no art-otel server: {error}") from error
    if answer.version != __version__:
        raise UsageError(f"the server is art-otel {answer.version}, this is {__version__}: install the same version")
    trajectories = decode_trajectories(answer.trajectories) if answer.receipts else []
    return [Delivery(*pair) for pair in zip(answer.receipts, trajectories, strict=True)]
