"""RunningTrajectory: the rollout that the running code is part of.

Invariant: any thread and task may use it at once. It holds only what the app told it; what was recorded is asked of the
recorder, so it costs nothing until somebody looks. Without a set-up everything works and nothing is recorded.
"""

import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING

from opentelemetry.trace import Span

from art_otel import attributes
from art_otel.errors import UsageError
from art_otel.tracing.guest import AS_GUEST, say_once
from art_otel.tracing.rollouts import scalars
from art_otel.tracing.rollouts.context import running_trajectory
from art_otel.tracing.rollouts.forks import is_inherited
from art_otel.tracing.rollouts.recorder import Counts, recorder
from art_otel.tracing.rollouts.rewarded import Rewarded

if TYPE_CHECKING:
    from art_otel.calls import InferenceCall, Message
    from art_otel.tracing.rollouts.step import Step
    from art_otel.trajectories import Trajectory, Turn


class RunningTrajectory(Rewarded):
    """`metrics` (numbers) and `metadata` (JSON scalars) are yours to change while it runs; they are written at its end.

    What was given as metadata when it began is written already: it can be changed and not taken back. `failed` says
    that its code raised.
    """

    def __init__(
        self, *, rollout_id: str, name: str, attempt: int | None, span: Span, metadata: Mapping[str, object]
    ) -> None:
        super().__init__(span)
        self.rollout_id = rollout_id
        self.name = name
        self.attempt = attempt
        self.failed = False
        self._metrics: dict[str, float] = {}
        self._metadata: dict[str, object] = dict(metadata)
        self.steps: dict[int, Step] = {}
        self._next_step = 0
        self._lock = threading.Lock()
        self._seen: tuple[Counts, Trajectory] | None = None

    @property
    def metrics(self) -> dict[str, float]:
        """Its metrics."""
        self._is_written("metrics")
        return self._metrics

    @metrics.setter
    def metrics(self, metrics: dict[str, float]) -> None:
        self._is_written("metrics")
        if scalars.is_mapping(metrics, "metrics"):
            self._metrics = metrics

    @property
    def metadata(self) -> dict[str, object]:
        """Its metadata."""
        self._is_written("metadata")
        return self._metadata

    @metadata.setter
    def metadata(self, metadata: dict[str, object]) -> None:
        self._is_written("metadata")
        if scalars.is_mapping(metadata, "metadata"):
            self._metadata = metadata

    @property
    def calls(self) -> "tuple[InferenceCall, ...]":
        """The LLM calls recorded so far; one that still runs has no end."""
        so_far = self._so_far()
        return () if so_far is None else so_far.calls

    @property
    def turns(self) -> "tuple[Turn, ...]":
        """The turns of `calls`."""
        so_far = self._so_far()
        return () if so_far is None else so_far.turns

    def get_history(self, completion_id: str, choice: int = 0) -> "tuple[Message, ...] | None":
        """The messages up to and with a completion, by its response's id; None when it is not known (yet).

        Tool messages that answer it follow its last message; their `tool_call_id` is one of its tool calls'.
        """
        call = next((call for call in reversed(self.calls) if call.response_id == completion_id), None)
        if call is None or call.input_messages is None:
            return None
        sampled = next((found.message for found in call.choices or () if found.index == choice), None)
        return None if sampled is None else (*call.input_messages, sampled)

    def log(self, *messages: object) -> None:
        """Add lines to the trajectory's log."""
        if self.ended:
            say_once("rollout %s has ended; what is logged now is not recorded", self.name)
            return
        if not self._is_written("log"):
            return
        for message in messages:
            with AS_GUEST:
                self.span.add_event(attributes.LOG_EVENT, {attributes.LOG_MESSAGE: scalars.as_text(message)})

    def number_step(self, index: int | None) -> int:
        """The index of a step that starts; without one the next that nobody had."""
        with self._lock:
            found = self._next_step if index is None else index
            self._next_step = max(self._next_step, found + 1)
            return found

    def settle(self) -> None:
        """As Rewarded, after metrics and metadata: beyond the SDK's limit the oldest attributes are dropped."""
        for name, value in dict(self._metrics).items():
            with AS_GUEST:
                self.span.set_attribute(f"{attributes.METRIC_PREFIX}{name}", scalars.metric(value, name))
        for name, value in scalars.metadata(dict(self._metadata)).items():
            self.span.set_attribute(name, value)
        super().settle()

    def _is_written(self, what: str) -> bool:
        """Whether what is set here is written; said where it is not."""
        if not is_inherited(self.span):
            return True
        say_once(f"rollout %s runs in the process that forked this one: its {what} cannot be set here", self.name)
        return False

    def _so_far(self) -> "Trajectory | None":
        """What is recorded; built again only when more is."""
        recording = recorder()
        counts = None if recording is None else recording.counts(self.rollout_id)
        if recording is None or counts is None:
            return None
        seen = self._seen
        if seen is not None and seen[0] == counts:
            return seen[1]
        found = recording.trajectory(self.rollout_id)
        if found is not None:
            self._seen = (counts, found)
        return found


def get_current_trajectory() -> RunningTrajectory:
    """The rollout that this code is part of, the innermost one. Raises UsageError outside of every rollout."""
    running = running_trajectory()
    if running is None:
        raise UsageError(
            "no rollout is running here: decorate the function with @art_otel.rollout, or open one by"
            " `with art_otel.rollout(name=…)`; a thread or pool is given art_otel.in_context(function)"
        )
    return running
