"""Round: one incremental conversion, and what the rounds before it say of a trace.

Invariant: what a round decides follows from its records, from what earlier rounds decided, and from its times.
"""

from collections.abc import Iterable, Mapping

import msgspec

from art_otel.engines.shards import Arrival, Outcome


class Round(msgspec.Struct, frozen=True, kw_only=True):
    """A round, by its number. Times are in nanoseconds.

    What nothing came of for `grace` is given although it has not ended. What nothing came of since `horizon` is closed.
    """

    number: int
    now: int
    grace: int
    horizon: int


class TraceHistory(msgspec.Struct, kw_only=True):
    """What came of a trace, and what was made of it.

    `changed` is when a file with records of it was written to last. `spans` and `logs` came in this round.
    """

    changed: int = 0
    is_touched: bool = False
    spans: int = 0
    logs: int = 0
    outcome: Outcome | None = None

    def is_closed(self, round_: Round) -> bool:
        """Whether its rows stay as they are, as its records may be gone."""
        one = self.outcome
        return one is not None and one.state != "nothing" and one.is_over(round_.horizon)

    @property
    def is_open(self) -> bool:
        """Whether more of it is expected."""
        return self.outcome is not None and self.outcome.state == "open"

    def is_quiet(self, round_: Round) -> bool:
        """Whether nothing came of it for the grace."""
        return self.changed + round_.grace <= round_.now


def histories(states: Iterable[Arrival | Outcome], number: int) -> dict[str, TraceHistory]:
    """The histories of traces by their ids; `number` is that of the round."""
    traces: dict[str, TraceHistory] = {}
    for state in states:
        history = traces.setdefault(state.trace_id, TraceHistory())
        if isinstance(state, Outcome):
            if history.outcome is None or history.outcome.round < state.round:
                history.outcome = state
            continue
        history.changed = max(history.changed, state.changed)
        if state.round == number:
            history.is_touched = True
            history.spans += state.spans
            history.logs += state.logs
    return traces


def is_due(traces: Mapping[str, TraceHistory], round_: Round) -> bool:
    """Whether a round assembles a group: something of it came, or it waited long enough."""
    return any(one.is_touched or (one.is_open and one.is_quiet(round_)) for one in traces.values())
