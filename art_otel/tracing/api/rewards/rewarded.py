"""Rewarded: something that runs and can be rewarded as a whole, a rollout or a step.

Invariant: of what is assigned and what is given by `reward()` the last counts, as it does for whoever reads the spans.
"""

from typing import TYPE_CHECKING, ClassVar

from opentelemetry.trace import Span

from art_otel import attributes
from art_otel.forks import is_inherited
from art_otel.tracing.api import scalars
from art_otel.tracing.internal_errors import warn_once


class Rewarded:
    """What runs and can be rewarded. Setting anything that is no field of it raises AttributeError."""

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
        """The span of what is rewarded."""
        return self._span

    @property
    def ended(self) -> bool:
        """Whether it has ended."""
        return self._ended

    @property
    def reward(self) -> float | None:
        """The reward so far, None until one is given. A value that is no finite number is refused with a warning."""
        return self._reward

    @reward.setter
    def reward(self, value: float) -> None:
        if self.ended or is_inherited(self.span):
            why = "runs in the process that forked this one" if not self.ended else "has ended"
            warn_once(f"%s {why}: give its reward by art_otel.reward(value, target=…)", self.span)
            return
        number = scalars.reward(value, "reward")
        if number is not None:
            self.note_given(number)
            self._assigned = True

    def note_given(self, value: float) -> None:
        """An event on its span gave it this reward, which goes before an earlier assigned one."""
        self._reward, self._assigned = value, False

    def note_name(self, name: str) -> None:
        """An event on its span gave it a reward of this name."""
        self._names.add(name)

    def settle(self) -> None:
        """It ends: write what is known only now."""
        self._ended = True
        if len(self._names) > 1 and self.reward is None:
            warn_once(
                "rewards named %s were given and none is the final one, which stays None: give it by"
                " art_otel.reward(value) without a name, or by trajectory.reward = value",
                ", ".join(sorted(self._names)),
            )
        if self._assigned and self.reward is not None:
            self.span.set_attribute(attributes.REWARD, self.reward)
