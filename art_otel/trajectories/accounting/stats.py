"""AssemblyStats: where every span, log record, reward and call of the assembled groups went.

Invariant: stats of groups add up, in whatever order, and these sums hold:

    spans               = used + ignored (by reason) + duplicate + quarantined (by reason) + waiting
    targets of rewards  = delivered + undeliverable (by reason)
"""

from collections import Counter
from dataclasses import dataclass, field, fields

from art_otel.spans import Quarantined, extend_sorted


@dataclass(kw_only=True, slots=True)
class AssemblyStats:
    """Counts of spans, log records, rewards, calls and trajectories.

    `quarantine` lists what assembly itself quarantined. By instrumentation scope, `calls_without_content` counts calls
    without any message, `spans_without_calls` the spans of traces without an LLM call. `outside_roots` counts the root
    spans of traces with LLM calls that are no rollout, by name. `waiting` are spans of rollouts of which more is
    expected, `again` those of all spans that an earlier conversion read, as `logs_again` those of all log records.
    """

    used: int = 0
    waiting: int = 0
    again: int = 0
    duplicate: int = 0
    ignored: Counter[str] = field(default_factory=Counter[str])
    quarantined: Counter[str] = field(default_factory=Counter[str])
    quarantined_logs: Counter[str] = field(default_factory=Counter[str])
    quarantine: list[Quarantined] = field(default_factory=list[Quarantined])
    logs_again: int = 0
    logs_joined: int = 0
    logs_duplicate: int = 0
    logs_without_span: int = 0
    rewards_delivered: int = 0
    rewards_undeliverable: Counter[str] = field(default_factory=Counter[str])
    calls_completed: int = 0
    calls_failed: int = 0
    calls_without_content: Counter[str] = field(default_factory=Counter[str])
    spans_without_calls: Counter[str] = field(default_factory=Counter[str])
    outside_roots: Counter[str] = field(default_factory=Counter[str])
    trajectories: int = 0
    complete: int = 0
    incomplete: Counter[str] = field(default_factory=Counter[str])

    def add(self, other: "AssemblyStats") -> None:
        """Add another group's counts to these."""
        for count in fields(self):
            if count.name == "quarantine":
                continue
            total = getattr(self, count.name)
            total += getattr(other, count.name)
            setattr(self, count.name, total)
        extend_sorted(self.quarantine, other.quarantine)

    def quarantine_trace(self, trace_id: str, *, spans: int, logs: int, detail: str) -> None:
        """Count a trace that is beyond a limit; all its records are quarantined."""
        entry = Quarantined(reason="over a limit", path=f"trace {trace_id}", detail=detail, trace_id=trace_id)
        self.quarantined[entry.reason] += spans
        self.quarantined_logs[entry.reason] += logs
        extend_sorted(self.quarantine, (entry,))
