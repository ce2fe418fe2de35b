"""StepData: what steps say for the calls in them, in `art.env_state…` and `art.extra…`.

Invariant: a call has what its step says and what it says itself, of which its own wins; or it has its own only and
names the other among its cut attributes. Calls that say nothing themselves share their step's object, whatever its
size. Others need a copy, for which their rollout has only so much budget.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec

from art_otel import attributes
from art_otel.calls import InferenceCall
from art_otel.conventions import env_state_of, extra_of
from art_otel.spans import Span, SpanKey, Value, size_of
from art_otel.trajectories.limits import Budgets

_ENTRY: Final = 100
"""Bytes that a dict takes for each key."""


class _Said(NamedTuple):
    """What one step says under the attributes of one name. `size` is in bytes."""

    name: str
    values: dict[str, Value]
    size: int


class StepData:
    """That of one tree. Each step is asked once."""

    def __init__(self) -> None:
        self._said: dict[SpanKey, tuple[_Said, _Said]] = {}

    def add_to(self, call: InferenceCall, step: Span, budgets: Budgets) -> InferenceCall:
        """The call with what its step says, as far as its rollout has budget for it."""
        if step.key not in self._said:
            state, extra = env_state_of(step), extra_of(step)
            self._said[step.key] = (
                _Said(attributes.ENV_STATE, state, size_of(state)),
                _Said(attributes.EXTRA, extra, size_of(extra)),
            )
        of_state, of_extra = self._said[step.key]
        if not of_state.values and not of_extra.values:  # as most steps
            return call
        state, extra = _joined(of_state, call.env_state, budgets), _joined(of_extra, call.extra, budgets)
        cut = [said.name for said, joined in ((of_state, state), (of_extra, extra)) if joined is None]
        return msgspec.structs.replace(
            call,
            env_state=call.env_state if state is None else state,
            extra=call.extra if extra is None else extra,
            cut=(*call.cut, *cut),
        )


def _joined(said: _Said, own: Mapping[str, Value], budgets: Budgets) -> Mapping[str, Value] | None:
    """Both; None where they would be a copy too many."""
    if not said.values or not own:
        return said.values or own
    held = _ENTRY * len(said.values)
    if not budgets.held.has(held) or not budgets.steps.take(said.size + held):
        return None
    budgets.held.take(held)
    return {**said.values, **own}
