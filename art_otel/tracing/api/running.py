"""RunningTrajectory: the app's handle to the rollout in which its code runs, with its fields, calls and histories.

Invariant: any thread and task may use it at once. The handle holds only what the app set; calls are read from the
recorder when the app asks for them, so they cost nothing else. Without a set-up everything works and nothing is
recorded. If the app both assigns `reward` and calls `reward()`, the last one counts, also for readers of the spans.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, Self, TypeVar, cast, overload

from opentelemetry.trace import Span

from art_otel import attributes
from art_otel.errors import ParseError, UsageError
from art_otel.forks import is_inherited
from art_otel.tracing.api import scalars
from art_otel.tracing.api.context import recorder, running_trajectory
from art_otel.tracing.internal_errors import handle_internal_errors, warn_once

if TYPE_CHECKING:
    from art_otel.calls import InferenceCall, Message
    from art_otel.tracing.api.step import Step
    from art_otel.trajectories import Call, History, HistoryMessage, Trajectory, Turn

_T = TypeVar("_T", str, int)


class Rewarded:
    """The common part of a running rollout and a step, which can get rewards.

    Setting a name that is no field raises AttributeError.
    """

    FIELDS: ClassVar[tuple[str, ...]] = ("reward",)

    def __init__(self, span: Span) -> None:
        self._span = span
        self._ended = False
        self._reward: float | None = None
        self._assigned = False
        self._names: set[str] = set()

    if not TYPE_CHECKING:  # a type checker knows the fields, and takes any name where it sees this

        def __setattr__(self, name: str, value: object) -> None:
            if not name.startswith("_") and name not in self.FIELDS:
                kind = type(self).__name__
                raise AttributeError(f"{kind} has no field {name!r} that can be set; it has {', '.join(self.FIELDS)}")
            super().__setattr__(name, value)

    @property
    def span(self) -> Span:
        """The span of the rollout or step."""
        return self._span

    @property
    def title(self) -> str:
        """The name of the rollout or step in warnings."""
        raise NotImplementedError

    @property
    def ended(self) -> bool:
        """Whether the rollout or step has ended."""
        return self._ended

    @property
    def reward(self) -> float | None:
        """The reward so far; None until one is given. A value that is no finite number is refused with a warning."""
        return self._reward

    @reward.setter
    def reward(self, value: float) -> None:
        if self.ended or is_inherited(self.span):
            why = "runs in the process that forked this one" if not self.ended else "has ended"
            warn_once(f"%s {why}: give its reward with art_otel.reward(value, target=…)", self.title)
            return
        number = scalars.reward(value, "reward")
        if number is not None:
            self.note_given(number)
            self._assigned = True

    def note_given(self, value: float) -> None:
        """Note the reward of an event on the span; it replaces a reward that was assigned before."""
        self._reward, self._assigned = value, False

    def note_name(self, name: str) -> None:
        """Note the name of a reward that an event on the span gave."""
        self._names.add(name)

    def settle(self) -> None:
        """Mark the end, and write the attributes that are final only now."""
        self._ended = True
        if len(self._names) > 1 and self.reward is None:
            warn_once(
                "rewards named %s were given, but no final reward, which stays None: give it with "
                "art_otel.reward(value) without a name, or with trajectory.reward = value",
                ", ".join(sorted(self._names)),
            )
        if self._assigned and self.reward is not None:
            self.span.set_attribute(attributes.REWARD, self.reward)


class Field(Generic[_T]):
    """A field of a running trajectory; None until it is set. Setting it writes an attribute on the rollout's span."""

    def __init__(self, attribute: str, check: Callable[[object, str], _T]) -> None:
        self.attribute: Final = attribute
        self._check: Final = check

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def check(self, value: object) -> _T:
        """Convert a value to the type of the attribute. Raises UsageError for a wrong type."""
        return self._check(value, self.name)

    @overload
    def __get__(self, running: None, owner: type) -> Self: ...
    @overload
    def __get__(self, running: "RunningTrajectory", owner: type) -> _T | None: ...
    def __get__(self, running: "RunningTrajectory | None", owner: type) -> Self | _T | None:
        return self if running is None else cast(_T | None, running.span_attributes.get(self.attribute))

    def __set__(self, running: "RunningTrajectory", value: _T | None) -> None:
        if value is not None or running.span_attributes.get(self.attribute) is not None:
            running.write_field(self.name, self.attribute, self.check(value))


class RunningTrajectory(Rewarded):
    """A handle to a rollout that still runs.

    You can set these fields while it runs: `group_id`, `split`, `name`, `untrained` (texts), `training_step`, `attempt`
    (whole numbers), `reward` (a number), `metrics` (names to numbers) and `metadata` (names to JSON values). Setting
    any other attribute raises AttributeError, and a value of the wrong type raises UsageError. Metadata that the
    rollout began with can be changed, but not removed.
    """

    FIELDS: ClassVar[tuple[str, ...]] = (
        *("group_id", "split", "name", "untrained", "training_step", "attempt"),
        *("metadata", "metrics", "reward"),
    )
    group_id = Field(attributes.GROUP_ID, scalars.text)
    split = Field(attributes.SPLIT, scalars.text)
    name = Field(attributes.ROLLOUT_NAME, scalars.text)
    untrained = Field(attributes.UNTRAINED, scalars.label)
    training_step = Field(attributes.TRAINING_STEP, scalars.whole_number)
    attempt = Field(attributes.ROLLOUT_ATTEMPT, scalars.whole_number)

    def __init__(
        self,
        *,
        rollout_id: str,
        span: Span,
        span_attributes: Mapping[str, scalars.ScalarValue],
        metadata: Mapping[str, object],
    ) -> None:
        super().__init__(span)
        self._rollout_id = rollout_id
        self._span_attributes = dict(span_attributes)
        self._failed = False
        self._metrics: dict[str, float] = {}
        self._metadata: dict[str, object] = dict(metadata)
        self._steps: dict[int, Step] = {}
        self._next_step = 0
        self._lock = threading.Lock()
        recording = recorder()
        self._calls_outside = 0 if recording is None else recording.calls_outside
        self._added: list[tuple[str, int, Message]] = []
        self._built: tuple[Sequence[InferenceCall], Trajectory] | None = None

    @property
    def rollout_id(self) -> str:
        """The id of the rollout, 32 hex digits."""
        return self._rollout_id

    @property
    def failed(self) -> bool:
        """Whether the code of the rollout raised an exception."""
        return self._failed

    @property
    def title(self) -> str:
        """The name of the rollout in warnings."""
        return f"rollout {self.name}"

    @property
    def steps(self) -> "dict[int, Step]":
        """The steps so far, by their index."""
        return self._steps

    @property
    def span_attributes(self) -> Mapping[str, scalars.ScalarValue]:
        """The span attributes of the fields that are set."""
        return self._span_attributes

    @property
    def metrics(self) -> dict[str, float]:
        """Metrics by name. They are written when the rollout ends."""
        self._is_written("metrics")
        return self._metrics

    @metrics.setter
    def metrics(self, metrics: dict[str, float]) -> None:
        self._is_written("metrics")
        if scalars.is_mapping(metrics, "metrics"):
            self._metrics = metrics

    @property
    def metadata(self) -> dict[str, object]:
        """Metadata by name. It is written when the rollout ends."""
        self._is_written("metadata")
        return self._metadata

    @metadata.setter
    def metadata(self, metadata: dict[str, object]) -> None:
        self._is_written("metadata")
        if scalars.is_mapping(metadata, "metadata"):
            self._metadata = metadata

    @property
    def calls(self) -> "tuple[Call, ...]":
        """The LLM calls that were recorded so far. A call that still runs has no end."""
        return self._so_far().calls

    @property
    def turns(self) -> "tuple[Turn, ...]":
        """The turns of `calls`. Each turn has the position of its call in `calls`."""
        return self._so_far().turns

    def get_history(self, completion_id: str, choice: int = 0) -> "RunningHistory | None":
        """Return the messages up to and including a completion, and the messages appended to it; None if it is unknown.

        `completion_id` is the id of the completion's response, `choice` the index of one of its choices. Append tool
        results with `history.append(…)`, and send the messages with `history.to_openai()`.
        """
        from art_otel.trajectories import AddedMessage  # noqa: PLC0415 # as above
        from art_otel.trajectories.lineage import turns_by_completion  # noqa: PLC0415 # as above

        so_far = self._so_far()
        turn = turns_by_completion(so_far.calls).get((completion_id, choice))
        if turn is None:
            return None
        added = [AddedMessage(turn=turn, message=one[2]) for one in self._added if one[:2] == (completion_id, choice)]
        history = replace(so_far, added_messages=tuple(added)).get_history(completion_id, choice)
        return None if history is None else RunningHistory(self, completion_id, choice, history)

    def add_message(
        self, completion_id: str, choice: int, message: Mapping[str, Any], parsed: "Sequence[Message]"
    ) -> None:
        """Record a message that the app appended after a completion; `parsed` are its parsed messages."""
        if not self._can_be_changed("history"):
            return
        self._added.extend((completion_id, choice, one) for one in parsed)
        with handle_internal_errors:
            from art_otel.conventions import history_attributes  # noqa: PLC0415 # as above

            self.span.add_event(attributes.HISTORY_EVENT, history_attributes(completion_id, choice, message))

    def log(self, *messages: object) -> None:
        """Add lines to the trajectory's log."""
        if not self._can_be_changed("log"):
            return
        for message in messages:
            with handle_internal_errors:
                self.span.add_event(attributes.LOG_EVENT, {attributes.LOG_MESSAGE: scalars.as_text(message)})

    def number_step(self, index: int | None) -> int:
        """Return the index of a step that starts: `index`, or the next unused number if it is None."""
        with self._lock:
            number = self._next_step if index is None else index
            self._next_step = max(self._next_step, number + 1)
            return number

    def write_field(self, name: str, attribute: str, value: scalars.ScalarValue) -> None:
        """Write the attribute of a field on the span, if the rollout can still be changed here."""
        if not self._can_be_changed(name):
            return
        self._span_attributes[attribute] = value
        with handle_internal_errors:
            self.span.set_attribute(attribute, value)

    def close(self, error: BaseException | None) -> None:
        """Note that the rollout's code has ended, and whether it raised."""
        self._ended, self._failed = True, error is not None

    def warn_of_lost_calls(self) -> None:
        """Warn if the rollout has no calls, and calls outside of rollouts were made meanwhile: its own, in a thread."""
        recording = recorder()
        if recording is None or recording.calls_outside == self._calls_outside:
            return
        if recording.has_llm_calls(self._rollout_id):
            return
        warn_once(
            "rollout %s has no LLM calls, and %d began outside of any rollout while it ran: threads and pools "
            "start without its context; wrap the function with art_otel.in_context(function)",
            self.name,
            recording.calls_outside - self._calls_outside,
        )

    def settle(self) -> None:
        """Write metrics, metadata and the reward on the span."""
        # The reward comes last: beyond its limit the SDK drops the oldest attributes, and the reward must not be one.
        for name, value in dict(self._metrics).items():
            with handle_internal_errors:
                self.span.set_attribute(f"{attributes.METRIC_PREFIX}{name}", scalars.metric(value, name))
        for name, value in scalars.metadata(dict(self._metadata)).items():
            self.span.set_attribute(name, value)
        super().settle()

    def _can_be_changed(self, what: str) -> bool:
        """Whether a change is recorded now, in this process; warns if it is not."""
        if self._ended:
            warn_once(f"rollout %s has ended; its {what} is no longer recorded", self.name)
            return False
        return self._is_written(what)

    def _is_written(self, what: str) -> bool:
        """Whether a change is recorded in this process; a forked child cannot change its parent's span (it warns)."""
        if not is_inherited(self.span):
            return True
        warn_once(f"rollout %s runs in the process that forked this one: its {what} cannot be set here", self.name)
        return False

    def _so_far(self) -> "Trajectory":
        """The calls so far in causal order, with their turns; built again only when there are more calls."""
        recording = recorder()
        recorded = () if recording is None else recording.calls(self._rollout_id)
        if self._built is None or self._built[0] is not recorded:
            from art_otel.trajectories.lineage import build_lineage  # noqa: PLC0415 # loads the trajectories
            from art_otel.trajectories.model import Trajectory  # noqa: PLC0415 # as above

            calls = build_lineage(recorded).calls
            self._built = recorded, Trajectory(rollout_id=self._rollout_id, trace_id="", calls=calls)
        return self._built[1]


class RunningHistory(Sequence["HistoryMessage"]):
    """The messages up to and including the completion `completion_id`. You can append messages; they are recorded.

    Append the result of a tool with `history.append({"role": "tool", "tool_call_id": call.id, "content": result})`, and
    call the model again with `client.chat.completions.create(model=model, messages=history.to_openai())`.
    """

    def __init__(self, running: RunningTrajectory, completion_id: str, choice: int, history: "History") -> None:
        self.completion_id = completion_id
        self.choice = choice
        self._running = running
        self._messages = list(history)

    def __len__(self) -> int:
        return len(self._messages)

    @overload
    def __getitem__(self, index: int) -> "HistoryMessage": ...
    @overload
    def __getitem__(self, index: slice) -> "list[HistoryMessage]": ...
    def __getitem__(self, index: int | slice) -> "HistoryMessage | list[HistoryMessage]":
        return self._messages[index]

    def __repr__(self) -> str:
        return f"<RunningHistory of {self.completion_id}: {len(self)} messages>"

    def append(self, message: Mapping[str, Any]) -> None:
        """Append a message in OpenAI's chat format, such as the result of a tool, and record it.

        Raises UsageError for a value that is not a message.
        """
        from art_otel.conventions import history_messages  # noqa: PLC0415 # loads all conventions
        from art_otel.trajectories import HistoryMessage  # noqa: PLC0415 # loads the trajectories

        try:
            messages = history_messages(message)
        except (ParseError, TypeError, ValueError) as error:
            raise UsageError(
                'history.append(): give a message such as {"role": "tool", "tool_call_id": …, "content": …}'
            ) from error
        if not isinstance(message.get("content"), str | list | None):
            raise UsageError(
                "history.append(): the content of a message is text; convert other values with json.dumps(…)"
            )
        self._running.add_message(self.completion_id, self.choice, message, messages)
        self._messages.extend(HistoryMessage(message=one) for one in messages)

    def to_openai(self) -> list[Any]:
        """Return the messages as plain dicts, for `client.chat.completions.create(messages=…)`."""
        return [entry.to_openai() for entry in self]


def field_attributes(**values: object) -> dict[str, scalars.ScalarValue]:
    """Return the fields as span attributes, without those that are None. Raises UsageError for a wrong type."""
    fields: dict[str, Field[Any]] = {name: getattr(RunningTrajectory, name) for name in values}
    return {fields[name].attribute: fields[name].check(value) for name, value in values.items() if value is not None}


def get_current_trajectory() -> RunningTrajectory:
    """Return the running trajectory of the innermost rollout. Raises UsageError outside every rollout."""
    running = running_trajectory()
    if running is None:
        raise UsageError(
            "no rollout is running here: decorate the function with @art_otel.rollout, or open one with `with "
            "art_otel.rollout(name=…)`; for threads and pools, wrap the function with art_otel.in_context(function)"
        )
    return running
