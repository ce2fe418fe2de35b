"""Gathering: who waits for the trajectory of the rollout that the code is about to begin.

Invariant: only rollouts that begin directly in what is gathered are its own, those nested in them are not. Each stays
with the recorder until it is released.
"""

from typing import TYPE_CHECKING, Final, cast

from opentelemetry import context as otel_context
from opentelemetry.context import Context

from art_otel.errors import UsageError
from art_otel.tracing.rollouts.recorder import Recorder, recorder

if TYPE_CHECKING:
    from art_otel.tracing.rollouts.running import RunningTrajectory

_GATHERING: Final = otel_context.create_key("art-otel-gathering")


class Gathering:
    """`group_id` is for rollouts that name no group. `rollouts` are those taken, in the order they began."""

    def __init__(self, group_id: str | None = None) -> None:
        self.group_id = group_id
        self.rollouts: list[RunningTrajectory] = []
        self.recorder: Recorder | None = None
        self.refusal: UsageError | None = None

    def take(self, running: "RunningTrajectory") -> None:
        """A rollout of it begins. Raises UsageError where nothing records."""
        self.recorder = recorder()
        if self.recorder is None:
            self.refusal = UsageError(
                "nothing records, so there is no trajectory to gather: call art_otel.configure() first,"
                " or set ART_OTEL_ENABLED=1"
            )
            raise self.refusal
        self.rollouts.append(running)
        self.recorder.keep(running.rollout_id)

    def release(self) -> None:
        """Nobody waits any more."""
        if self.recorder is not None:
            for running in self.rollouts:
                self.recorder.release(running.rollout_id)


def gathering_in(context: Context) -> Gathering | None:
    """Who waits for what begins in the context."""
    return cast(Gathering | None, otel_context.get_value(_GATHERING, context))


def with_gathering(gathering: Gathering) -> Context:
    """The context of here, in which what begins is gathered."""
    return otel_context.set_value(_GATHERING, gathering)


def without_gathering(context: Context) -> Context:
    """The context for what a gathered rollout runs."""
    return otel_context.set_value(_GATHERING, None, context)
