"""Metrics: what the receiver did, in Prometheus' text form, and what it refused, also in its log.

Invariant: counters only grow while the process lives; every refused request and every record that was set aside is
counted under its reason. The log has the first refusal of each kind, and then every tenth, hundredth, thousandth.

Source of the format: https://prometheus.io/docs/instrumenting/exposition_formats/
"""

import logging
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

logger = logging.getLogger(__name__)

_HELP: Final = {
    "art_otel_received_requests_total": ("counter", "Received exports, by outcome."),
    "art_otel_stored_spans_total": ("counter", "Spans written to the spool."),
    "art_otel_stored_log_records_total": ("counter", "Log records written to the spool."),
    "art_otel_rejected_records_total": ("counter", "Records of stored exports that were quarantined, by reason."),
    "art_otel_spool_bytes_total": ("counter", "Bytes written to the spool."),
    "art_otel_finished_rollouts_total": ("counter", "Trajectories of finished rollouts, including revisions."),
    "art_otel_refused_questions_total": ("counter", "Requests of consumers that were refused, by status."),
    "art_otel_unmatched_rewards_total": ("counter", "Rewards for rollouts that have no other span yet."),
    "art_otel_handed_out_total": ("counter", "Trajectories delivered to consumers."),
    "art_otel_acknowledged_total": ("counter", "Trajectories that consumers acknowledged."),
    "art_otel_gateway_calls_total": ("counter", "Agents' calls that the gateway wrote to the spool."),
    "art_otel_gateway_unrecorded_calls_total": ("counter", "Agents' calls that could not be written."),
    "art_otel_gateway_upstream_errors_total": (
        "counter",
        "Requests for which the model server could not be reached or broke off.",
    ),
    "art_otel_gateway_forwarded_spans_total": ("counter", "Spans that the collector of `--otlp` accepted."),
    "art_otel_gateway_unforwarded_spans_total": (
        "counter",
        "Spans that the collector did not accept; the spool has them.",
    ),
    "art_otel_gateway_prompts_total": ("counter", "Calls with exact tokens, by how their prompt was made."),
    "art_otel_open_rollouts": ("gauge", "Rollouts or traces with spans that were not delivered yet."),
    "art_otel_lag_bytes": ("gauge", "Bytes of the spool that were not searched for finished rollouts yet."),
}


class ReceiverMetrics:
    """Counters that any thread may add to."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[tuple[str, str]] = Counter()
        self._others: dict[str, Counter[tuple[str, str]]] = {}
        """What other processes counted, by their names."""

    def add(self, name: str, count: int = 1, labels: str = "") -> None:
        """Add to a counter; `labels` as Prometheus writes them."""
        with self._lock:
            self._counts[name, labels] += count

    def stored(self, *, spans: int, log_records: int, rejected: Mapping[str, int]) -> None:
        """Count an export that was written; `rejected` is how many of its records were set aside, by reason."""
        with self._lock:
            self._counts["art_otel_received_requests_total", '{status="200"}'] += 1
            self._counts["art_otel_stored_spans_total", ""] += spans
            self._counts["art_otel_stored_log_records_total", ""] += log_records
        for reason, count in rejected.items():
            self.add("art_otel_rejected_records_total", count, f'{{reason="{reason}"}}')

    def refused(self, status: int, why: str, *, path: str = "/v1/traces") -> None:
        """Count a request that was not taken; an export, unless the path is one of consumers."""
        is_question = path.startswith("/v1/rollouts")
        name = "art_otel_refused_questions_total" if is_question else "art_otel_received_requests_total"
        labels = f'{{status="{status}"}}'
        self.add(name, labels=labels)
        count = self._counts[name, labels]
        if count == 10 ** (len(str(count)) - 1):
            what = "a question of a consumer" if is_question else "an export"
            logger.warning("art-otel: %s is refused with %d (%d so far): %s", what, status, count, why)

    def counts(self) -> list[tuple[str, str, int]]:
        """All of them, with their labels, for `take`."""
        with self._lock:
            return [(name, labels, count) for (name, labels), count in self._counts.items()]

    def take(self, other: str, counts: Iterable[tuple[str, str, int]]) -> None:
        """What another process has counted by now counts here, too."""
        with self._lock:
            self._others[other] = Counter({(name, labels): count for name, labels, count in counts})

    def of_others(self, name: str) -> int:
        """A count of the other processes."""
        with self._lock:
            return sum(counts[name, ""] for counts in self._others.values())

    def text(self, gauges: Mapping[str, int]) -> str:
        """All of them as text."""
        with self._lock:
            counts = sum(self._others.values(), Counter(self._counts))
        counts.update({(name, ""): value for name, value in gauges.items()})
        return "".join(_lines(counts))


def _lines(counts: Mapping[tuple[str, str], int]) -> Iterator[str]:
    for name, (kind, explanation) in _HELP.items():
        yield f"# HELP {name} {explanation}\n# TYPE {name} {kind}\n"
        of_name = sorted((labels, value) for (other, labels), value in counts.items() if other == name)
        yield from (f"{name}{labels} {value}\n" for labels, value in of_name or [("", 0)])
