"""Protocol: the messages between a receiver and its consumers, in one process or over HTTP.

A consumer's program has a session (`live/delivery.py`). Each question acknowledges the rollouts that were handled,
names those that are still held, and asks for more. The answer holds leases: trajectories with their acknowledgments.

Invariant: rollouts that are not acknowledged when a session closes, or when its connection breaks, go to the consumer's
next session. Both sides must have the same version of art-otel; an answer of another version raises UsageError.
"""

import re
import time
from dataclasses import replace
from typing import Annotated, Final, Protocol, TypedDict

import msgspec
from msgspec import Meta

from art_otel.errors import UsageError
from art_otel.live.delivery import Acknowledgment, DeliveredTrajectory, DeliverySession
from art_otel.store import decode_trajectory
from art_otel.trajectories import GroupKey, Trajectory
from art_otel.version import __version__

_CONSUMER: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


class SessionEndedError(Exception):
    """Raised for a session that has ended, or that an earlier server began. The consumer begins a new one."""


class Facts(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What selections can ask about a rollout.

    `models` are the requested models of its calls, `policy_version` is that of its first call, `ended_at` is in seconds
    since the epoch.
    """

    split: str | None
    models: tuple[str, ...]
    policy_version: str | None
    ended_at: float
    group: GroupKey | None


class ReceiverSelection(msgspec.Struct, frozen=True, kw_only=True):
    """Which finished rollouts a consumer wants: all conditions that are not None must hold.

    A rollout without a value for a condition does not match.

    - `split`: as the rollout says, `train` or `val`.
    - `model`: the requested model of any of its calls.
    - `policy_version`: that of its first call; `min_policy_version` compares as a number.
    - `max_age`: seconds since the rollout ended.
    """

    split: str | None = None
    model: str | None = None
    policy_version: str | None = None
    min_policy_version: float | None = None
    max_age: Annotated[float, Meta(gt=0)] | None = None


class SelectionOptions(TypedDict, total=False):
    """The fields of `ReceiverSelection` as keyword arguments."""

    split: str | None
    model: str | None
    policy_version: str | None
    min_policy_version: float | None
    max_age: float | None


class Lease(msgspec.Struct, frozen=True, gc=False):
    """A rollout on its way to a session.

    `encoded` is the trajectory in the bytes of `encode_trajectory`; its revision is in the acknowledgment only, because
    consumers may be at different ones.
    """

    acknowledgment: Acknowledgment
    encoded: bytes

    def unpack(self) -> DeliveredTrajectory:
        """Decode the trajectory, and set its revision. Raises StoreError for bytes that are no trajectory."""
        trajectory = decode_trajectory(self.encoded)
        return DeliveredTrajectory(self.acknowledgment, replace(trajectory, revision=self.acknowledgment.revision))


class ReceiverSession(DeliverySession, Protocol):
    """A session with a receiver in this process, or in another one."""

    selection: ReceiverSelection
    """Which rollouts the session wants from now on."""


class SessionRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A `Question` as JSON over HTTP, with the id of its session and its selection."""

    session: str
    handled: list[Acknowledgment] = []
    holds: list[Acknowledgment] = []
    selection: ReceiverSelection = ReceiverSelection()
    count: Annotated[int, Meta(ge=0)] = 0
    wait: float = 0.0
    whole_groups: bool = False


class _LeasesAnswer(msgspec.Struct, frozen=True, kw_only=True):
    version: str
    leases: list[Lease]


def check_consumer(name: str) -> None:
    """Raise UsageError for an invalid name of a consumer."""
    if _CONSUMER.fullmatch(name) is None:
        raise UsageError(
            f"consumer={name!r:.120} is not a valid consumer name: use up to 100 letters, digits, '.', '_' and '-', "
            "beginning with a letter or a digit"
        )


def facts_of(trajectory: Trajectory) -> Facts:
    """The facts of a trajectory. Without an end time it counts as ended now."""
    versions = trajectory.policy_version
    return Facts(
        split=trajectory.split,
        models=tuple({call.request_model: None for call in trajectory.calls if call.request_model is not None}),
        policy_version=None if versions is None else versions.first,
        ended_at=time.time() if trajectory.ended_at is None else trajectory.ended_at / 1e9,
        group=trajectory.group_key,
    )


def encode_answer(leases: list[Lease]) -> bytes:
    """Encode an answer as MessagePack, with the version of art-otel."""
    return msgspec.msgpack.encode(_LeasesAnswer(version=__version__, leases=leases))


def decode_answer(body: bytes) -> list[Lease]:
    """Decode an answer of `encode_answer`. Raises UsageError if another version, or another program, wrote it."""
    try:
        answer = msgspec.msgpack.decode(body, type=_LeasesAnswer)
    except msgspec.DecodeError as error:
        raise UsageError(f"this is no art-otel server of version {__version__}: {error}") from error
    # The encoding of trajectories is that of one version of art-otel.
    if answer.version != __version__:
        raise UsageError(f"the server is art-otel {answer.version}, this is {__version__}: install the same version")
    return answer.leases
