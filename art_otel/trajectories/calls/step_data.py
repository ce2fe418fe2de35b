"""StepData: what a step says about the calls in it, in `art.env_state…` and `art.extra…`.

Invariant: a call has the data of its step and its own, and its own wins. No two calls share an object: changing one
changes no other.
"""

from copy import deepcopy

import msgspec

from art_otel.calls import InferenceCall
from art_otel.conventions import span_env_state, span_extra
from art_otel.spans import Span, SpanKey, Value


class StepData:
    """The data of the steps of one tree. Each step is read once."""

    def __init__(self) -> None:
        self._data: dict[SpanKey, tuple[dict[str, Value], dict[str, Value]]] = {}

    def add_to(self, call: InferenceCall, step: Span) -> InferenceCall:
        """The call with what its step says."""
        if step.key not in self._data:
            self._data[step.key] = span_env_state(step), span_extra(step)
        state, extra = self._data[step.key]
        if not state and not extra:  # as most steps
            return call
        return msgspec.structs.replace(
            call, env_state={**deepcopy(state), **call.env_state}, extra={**deepcopy(extra), **call.extra}
        )
