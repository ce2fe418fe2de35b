"""Rewarded: something that runs and can be rewarded as a whole, a rollout or a step.

Invariant: of what is assigned and what is given by `reward()` the last counts, as it does for whoever reads the spans.
"""

from opentelemetry.trace import Span

from art_otel import attributes
from art_otel.tracing.guest import say_once
from art_otel.tracing.rollouts import scalars
from art_otel.tracing.rollouts.forks import is_inherited


class Rewarded:
    """`span` is its own span."""

    def __init__(self, span: Span) -> None:
        self.span = span
        self.ended = False
        self._reward: float | None = None
        self._assigned = False

    @property
    def reward(self) -> float | None:
        """What it is worth so far; None while nobody said. What is no finite number is refused, with a warning."""
        return self._reward

    @reward.setter
    def reward(self, value: float) -> None:
        if self.ended or is_inherited(self.span):
            why = "runs in the process that forked this one" if not self.ended else "has ended"
            say_once(f"%s {why}: give its reward by art_otel.reward(value, target=…)", self.span)
            return
        number = scalars.reward(value, "reward")
        if number is not None:
            self.note_given(number)
            self._assigned = True

    def note_given(self, value: float) -> None:
        """An event on its span gave it this reward, which goes before an earlier assigned one."""
        self._reward, self._assigned = value, False

    def settle(self) -> None:
        """It ends: write what is known only now."""
        self.ended = True
        if self._assigned and self.reward is not None:
            self.span.set_attribute(attributes.REWARD, self.reward)
