"""StepData: what steps say for the calls in them, in `art.env_state…` and `art.extra…`.

Invariant: a call has what its step says and what it says itself, of which its own wins. Each call has objects of its
own: changing one changes no other.
"""

from copy import deepcopy

import msgspec

from art_otel.calls import InferenceCall
from art_otel.conventions import env_state_of, extra_of
from art_otel.spans import Span, SpanKey, Value


class StepData:
    """The data of the steps of one tree. Each step is read once."""

    def __init__(self) -> None:
        self._data: dict[SpanKey, tuple[dict[str, Value], dict[str, Value]]] = {}

    def add_to(self, call: InferenceCall, step: Span) -> InferenceCall:
        """The call with what its step says."""
        if step.key not in self._data:
            self._data[step.key] = env_state_of(step), extra_of(step)
        state, extra = self._data[step.key]
        if not state and not extra:  # as most steps
            return call
        return msgspec.structs.replace(
            call, env_state={**deepcopy(state), **call.env_state}, extra={**deepcopy(extra), **call.extra}
        )
