"""Account: where every span, log record and reward of a group went.

Invariant: each delivered span is counted once, as used, ignored (by reason), duplicate or quarantined; law 6 is the sum
of these counts. A span of which only a value was set aside is counted as quarantined although the rest of it serves. So
are log records, in counts of their own. A span that gives a reward for something elsewhere is used, wherever it stands.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Final

import msgspec

from art_otel.conventions import Role
from art_otel.spans import LogRecord, Quarantined, Span, SpanKey, SpanTree, list_in_order
from art_otel.spans.deduplicate import deduplicate
from art_otel.spans.quarantine import Kind
from art_otel.spans.tree import take_out_cycles
from art_otel.trajectories.rewards.attribution import Attribution
from art_otel.trajectories.rollouts.index import RolloutSpans

EMBEDDINGS: Final = "embeddings"
RETRIEVAL: Final = "response retrieval"
NO_CALL: Final = "no LLM call in its trace"
OUTSIDE: Final = "outside every rollout"
STARTED: Final = "start of a span that ended"


@dataclass(kw_only=True, slots=True)
class Account:
    """Counts of spans, log records, rewards, calls and trajectories.

    `damages` lists what assembly itself set aside. `blind_scopes` counts calls without any message by instrumentation
    scope, `idle_scopes` the spans of traces without an LLM call, `outside_roots` root spans of traces with LLM calls
    that are no rollout, by name.
    """

    used: int = 0
    duplicate: int = 0
    ignored: Counter[str] = field(default_factory=Counter[str])
    quarantined: Counter[str] = field(default_factory=Counter[str])
    quarantined_logs: Counter[str] = field(default_factory=Counter[str])
    damages: list[Quarantined] = field(default_factory=list[Quarantined])
    logs_joined: int = 0
    logs_duplicate: int = 0
    logs_without_span: int = 0
    rewards_delivered: int = 0
    rewards_undeliverable: Counter[str] = field(default_factory=Counter[str])
    calls_completed: int = 0
    calls_failed: int = 0
    blind_scopes: Counter[str] = field(default_factory=Counter[str])
    idle_scopes: Counter[str] = field(default_factory=Counter[str])
    outside_roots: Counter[str] = field(default_factory=Counter[str])
    trajectories: int = 0
    complete: int = 0
    incomplete: Counter[str] = field(default_factory=Counter[str])

    def add(self, other: "Account") -> None:
        """Add another group's counts to these."""
        for count in fields(self):
            if count.name == "damages":
                continue
            total = getattr(self, count.name)
            total += getattr(other, count.name)
            setattr(self, count.name, total)
        list_in_order(self.damages, other.damages)

    def set_aside(self, trace_id: str, *, spans: int, logs: int, detail: str) -> None:
        """Count a rollout that is beyond a limit, by the trace that stands for it; all its records are quarantined."""
        damage = Quarantined(reason="over a limit", path=f"trace {trace_id}", detail=detail, trace_id=trace_id)
        self.quarantined[damage.reason] += spans
        self.quarantined_logs[damage.reason] += logs
        list_in_order(self.damages, (damage,))


def count_spans(
    account: Account,
    tree: SpanTree,
    roles: Mapping[SpanKey, Role],
    placed: Mapping[SpanKey, RolloutSpans | None],
    damages: Iterable[Quarantined],
    rewards: Attribution,
) -> None:
    """Count every delivery once.

    `damages` came from the source: a span it kept without a value is quarantined as often as it came damaged.
    """
    damaged = _partly_damaged(damages, "span")
    bad = {(damage.trace_id, damage.span_id): damage for damage in (*rewards.bad, *tree.cyclic)}
    traces_with_calls = {trace_id for (trace_id, _), role in roles.items() if role == "inference"}
    for key, deliveries in tree.deliveries.items():
        if key in damaged:
            reasons = damaged[key]
            set_aside = min(deliveries, len(reasons))
            account.quarantined[min(reasons)] += set_aside
            deliveries -= set_aside  # noqa: PLW2901 # what is left of them
            if not deliveries:
                continue
        if deliveries > 1:
            _count_repeated(account, deliveries - 1, tree.start_only.get(key, 0))
        if key in bad:
            account.quarantined[bad[key].reason] += 1
            continue
        reason = _ignored_because(key, roles[key], placed[key], traces_with_calls, rewards)
        if reason is None:
            account.used += 1
        else:
            _count_ignored(account, tree.spans[key], reason)
    list_in_order(account.damages, (*tree.cyclic, *rewards.bad))


def count_rewards(account: Account, rewards: Attribution) -> None:
    """Count each reward once for each of its targets, whatever became of the span that gives it."""
    account.rewards_delivered += rewards.delivered
    account.rewards_undeliverable += rewards.undeliverable


def set_aside_logs(account: Account, logs: Iterable[LogRecord], tree: SpanTree, damages: Iterable[Quarantined]) -> None:
    """Count log records that lost a value as quarantined, not as what `join_logs` counted them.

    A damage names the span of its record only: of a span's records as many are set aside as there are damages.
    """
    damaged = _partly_damaged(damages, "log")
    delivered: dict[SpanKey, list[bytes]] = {}
    for log in logs if damaged else ():
        if log.key in damaged:
            delivered.setdefault(log.key, []).append(msgspec.msgpack.encode(log, order="deterministic"))
    for key, encoded in delivered.items():
        set_aside = min(len(encoded), len(damaged[key]))
        repeated = min(len(encoded) - len(set(encoded)), set_aside)
        account.quarantined_logs[min(damaged[key])] += set_aside
        account.logs_duplicate -= repeated
        if key in tree.spans:
            account.logs_joined -= set_aside - repeated
        else:
            account.logs_without_span -= set_aside - repeated


def _partly_damaged(damages: Iterable[Quarantined], kind: Kind) -> dict[tuple[str | None, str | None], list[str]]:
    """The reasons why values of kept records of a kind were set aside, by the records' spans."""
    damaged: dict[tuple[str | None, str | None], list[str]] = {}
    for damage in damages:
        if damage.partial and damage.kind == kind:
            damaged.setdefault((damage.trace_id, damage.span_id), []).append(damage.reason)
    return damaged


def _count_ignored(account: Account, span: Span, reason: str) -> None:
    account.ignored[reason] += 1
    if reason == NO_CALL:
        account.idle_scopes[span.scope.name] += 1
    if reason == OUTSIDE and span.parent_span_id is None:
        account.outside_roots[span.name] += 1


def count_idle(account: Account, spans: Sequence[Span]) -> None:
    """Count spans of which none can become part of a trajectory, each delivery once: as `count_spans` does, at once.

    They are spans of whole traces that hold no call, no rollout and no reward, so that no tree has to be grown.
    """
    unique = deduplicate(spans)
    _count_repeated(account, len(spans) - len(unique.deliveries), sum(unique.start_only.values()))
    cyclic = take_out_cycles(unique.spans)
    if unique.spans:
        account.ignored[NO_CALL] += len(unique.spans)
    for span in unique.spans.values():
        account.idle_scopes[span.scope.name] += 1
    for damage in cyclic:
        account.quarantined[damage.reason] += 1
    list_in_order(account.damages, cyclic)


def _count_repeated(account: Account, repeated: int, begun: int) -> None:
    """Deliveries besides the one that serves: records of starts as far as there were, else duplicates."""
    started = min(repeated, begun)
    if started:
        account.ignored[STARTED] += started
    account.duplicate += repeated - started


def _ignored_because(
    key: SpanKey, role: Role, rollout: RolloutSpans | None, traces_with_calls: Collection[str], rewards: Attribution
) -> str | None:
    if role == "embeddings":
        return EMBEDDINGS
    if role == "retrieval":
        return RETRIEVAL
    if rollout is not None or key in rewards.senders:
        return None
    return OUTSIDE if key[0] in traces_with_calls else NO_CALL
