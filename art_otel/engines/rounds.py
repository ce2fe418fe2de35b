"""Rounds: incremental conversions, and what they write down of each trace for the next.

Each conversion is a round. It reads what is new into shuffle files like those of earlier rounds, which are kept beside
the parts, and assembles again what it touches, by the same tasks, so that all rounds together give the rows of one
conversion (`decisions` says which, `continuation` what is kept). Invariant: what a round decides follows from its
records, from what earlier rounds decided, and from its times.
"""

from collections.abc import Iterable, Mapping
from typing import Literal, TypeAlias

import msgspec


class Round(msgspec.Struct, frozen=True, kw_only=True):
    """A round, by its number. Times are in nanoseconds.

    What nothing came of for `grace` is given although it has not ended. What nothing came of since `horizon` is closed.
    """

    number: int
    now: int
    grace: int
    horizon: int


class Arrival(msgspec.Struct, frozen=True, array_like=True):
    """That records of a trace came in a round of an incremental conversion.

    `changed` is when a file that had them was written to last (ns). `spans` and `logs` count them.
    """

    trace_id: str
    round: int
    changed: int
    spans: int = 0
    logs: int = 0


class GivenRow(msgspec.Struct, array_like=True):
    """A row that a trace has in the dataset. `key` is unique in the trace, `digest` is of what the row says.

    `part` and `row` are set when the part is written, and when its rows are moved to another.
    """

    key: tuple[str, int, int]
    revision: int
    digest: bytes
    part: str = ""
    row: int = 0


OutcomeState: TypeAlias = Literal["open", "given", "closed", "nothing"]


class Outcome(msgspec.Struct, frozen=True, array_like=True):
    """What a round made of a trace, and when that was (ns); the last round counts.

    `open`: more of it is expected. `given`: it has rows, or the traces that it is linked to have. `closed`: that was so
    too long ago, and what comes now is too late. `nothing`: no rollout is in it.
    """

    trace_id: str
    round: int
    at: int
    state: OutcomeState
    rows: tuple[GivenRow, ...] = ()

    def is_over(self, horizon: int) -> bool:
        """Whether nothing more is taken of the trace, as nothing came of it since then."""
        return self.state == "closed" or (self.state != "open" and self.at < horizon)


State: TypeAlias = Arrival | Outcome


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


def histories(states: Iterable[State], number: int) -> dict[str, TraceHistory]:
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
