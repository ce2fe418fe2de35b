"""Report: make one report of the counts of all tasks, with hints if the result is empty or has no content.

Invariant: every sum of `store.ConversionReport` holds: each span, call and reward is counted once, with a reason.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from art_otel.conventions import ANTHROPIC_SDK, capture_switch, client_instrumentor
from art_otel.engines.read import ReadSummary
from art_otel.sources import FileStats
from art_otel.spans import first_sorted, list_quarantined
from art_otel.store import (
    CallCounts,
    ConversionReport,
    FileReport,
    LogCounts,
    QuarantineEntry,
    RewardCounts,
    SpanCounts,
    TrajectoryCounts,
)
from art_otel.trajectories import AssemblyStats
from art_otel.trajectories.accounting import UNASSIGNED, UNCAPTURED
from art_otel.trajectories.rewards import ADVICE

_NOTHING_NEW = "nothing new: everything in the sources was converted into this folder before."

_NAMED = 3


def describe_conversion(counts: ReadSummary, account: AssemblyStats) -> ConversionReport:
    """Make the report of a conversion from the counts of reading and of assembling."""
    read = counts.spans + sum(counts.quarantined.values())
    nameless = sum(file.logs_without_span for file in counts.files)
    quarantined = counts.quarantined + account.quarantined
    damages = [*counts.quarantine]
    is_idle = not counts.files and not account.again
    list_quarantined(damages, first_sorted(account.quarantine))
    return ConversionReport(
        spans=SpanCounts(
            read=read,
            again=account.again,
            used=account.used,
            waiting=account.waiting,
            duplicate=account.duplicate,
            ignored=_sorted(account.ignored),
            quarantined=_sorted(quarantined),
        ),
        logs=LogCounts(
            read=counts.logs + sum(counts.quarantined_logs.values()) + nameless,
            again=account.logs_again,
            joined=account.logs_joined,
            duplicate=account.logs_duplicate,
            without_span=account.logs_without_span + nameless,
            quarantined=_sorted(counts.quarantined_logs + account.quarantined_logs),
        ),
        rewards=RewardCounts(
            given=account.rewards_delivered + account.rewards_undeliverable.total(),
            delivered=account.rewards_delivered,
            undeliverable=_sorted(account.rewards_undeliverable),
        ),
        calls=CallCounts(
            total=account.calls_completed + account.calls_failed,
            completed=account.calls_completed,
            failed=account.calls_failed,
            without_content=sum(account.calls_without_content.values()),
        ),
        trajectories=TrajectoryCounts(
            total=account.trajectories, complete=account.complete, incomplete=_sorted(account.incomplete)
        ),
        files=[_file(file) for file in counts.files],
        hints=[_NOTHING_NEW]
        if is_idle
        else [
            *_hints(read, counts.logs, quarantined.total(), account),
            *_unread_content(counts.files),
            *_replaced(counts.files),
        ],
        quarantine=[QuarantineEntry(reason=one.reason, path=one.path, detail=one.detail) for one in damages],
    )


def _sorted(counts: Counter[str]) -> Mapping[str, int]:
    return {reason: counts[reason] for reason in sorted(counts) if counts[reason]}


def _file(account: FileStats) -> FileReport:
    return FileReport(
        path=account.path,
        format=account.format,
        compression=account.compression,
        bytes=account.bytes,
        spans=account.spans,
        logs=account.log_records + account.logs_without_span,
        damaged=account.quarantined + account.partly_quarantined,
        not_in_format=account.not_in_format,
        note=_noted(account),
        error=account.error,
    )


def _noted(account: FileStats) -> str | None:
    """A note on content of a file that was read, but not exactly as it was written; None if there is none."""
    notes = [account.note] if account.note else []
    if count := account.replaced:
        notes.append(f"{count} half character{'s' * (count > 1)} read as U+FFFD: texts were cut inside a character")
    if count := account.without_time:
        notes.append(
            f"{count} reward{'s' * (count > 1)} without `time`: if several have one name, the last line of the file "
            "whose name sorts last counts"
        )
    return "; ".join(notes) or None


def _hints(spans: int, logs: int, quarantined: int, account: AssemblyStats) -> Iterator[str]:
    """Explain an empty result, or one without content. `spans` were read, and `quarantined` of these were not kept."""
    calls = account.calls_completed + account.calls_failed
    read = _count(spans, "span")
    if account.waiting:
        yield (
            f"{_count(account.waiting, 'span')} of rollouts that have not ended: they are added when they end, or "
            "when no span has arrived for --grace; --grace 0 adds them now."
        )
    elif spans == 0 and not account.again:
        beside = f"{_count(logs, 'log record')} but " if logs else ""
        yield f"{beside}no span in the sources: is this the output of a traces pipeline?"
    elif quarantined == spans:
        yield f"{read}, all quarantined: is --format right, or is a limit too low?"
    elif account.outside_roots and account.trajectories == 0:
        yield (
            f"{read}, no rollout: no span name matches --rollout-span. The root spans of traces with LLM calls are"
            f" {_names(account.outside_roots)}."
        )
    elif account.trajectories == 0 and account.ignored[UNCAPTURED]:
        yield (
            f"{_count(account.ignored[UNCAPTURED], 'LLM call')} without messages, each traced by its client alone: set"
            f" {capture_switch(ANTHROPIC_SDK)} in the traced app."
        )
    elif account.trajectories == 0 and account.rewards_undeliverable and not account.spans_without_calls:
        pass  # only rewards, e.g. of a judge in another process: `_unmatched` explains them
    elif account.trajectories == 0 and sum(account.calls_without_content.values()) == 0:
        yield (
            f"{read}, no LLM call: its spans were made by "
            f"{_names(account.spans_without_calls) or 'nobody'}.{_advice(account)}"
        )
    elif calls == 0:
        yield f"{read}, no LLM call: the rollouts are there, but no instrumentor recorded a call in them."
    for scope, count in sorted(account.calls_without_content.items()):
        yield (
            f"{count} of {calls} LLM calls without messages, made by {scope or 'an unnamed scope'}: if content capture"
            f" was off, set {capture_switch(scope)} in the traced app."
        )
    yield from _unmatched(account)


def _unread_content(files: Sequence[FileStats]) -> Iterator[str]:
    """Explain references to content that were not followed."""
    count = sum(file.unread_content for file in files)
    if count:
        example = next(file.unread_example for file in files if file.unread_example is not None)
        yield f"{_count(count, 'reference')} to uploaded content not followed: {example}."


def _replaced(files: Sequence[FileStats]) -> Iterator[str]:
    """Name files with replaced characters: a message does not show that, because a tool may really print U+FFFD."""
    if paths := [file.path for file in files if file.replaced]:
        named = ", ".join(paths[:_NAMED]) + (", …" if len(paths) > _NAMED else "")
        yield (
            f"{_count(sum(file.replaced for file in files), 'character')} of {named} read as U+FFFD: bytes that are no"
            " UTF-8, or halves of an emoji. Find out what cut these texts, or wrote them in another encoding."
        )


def _unmatched(account: AssemblyStats) -> Iterator[str]:
    """Explain spans, rewards and log records that belong to no rollout or span."""
    if unassigned := account.ignored[UNASSIGNED]:
        yield (
            f"{_count(unassigned, 'span')} unassigned: they name a rollout id, but not which of its attempts they "
            "belong to."
            " Pass the trace on to the service that made them, or set art.rollout.attempt on them."
        )
    for reason, count in _commonest(account.rewards_undeliverable):
        yield f"{_count(count, 'reward')} undeliverable, {reason}: {ADVICE[reason]}."
    if account.logs_without_span and account.calls_without_content:
        yield f"{account.logs_without_span} log records name spans that are not in the sources: convert both together."


def _advice(account: AssemblyStats) -> str:
    """What to install, or which attributes to write, if spans were made but none is an LLM call."""
    for scope in sorted(account.spans_without_calls):
        if (instrumentor := client_instrumentor(scope)) is not None:
            return (
                f" {scope} leaves calls to a model to the instrumentor of the client that the framework uses: add"
                f" {instrumentor}."
            )
    if naming := +account.spans_naming_models:
        return (
            f" Spans of {_names(naming)} name a model (gen_ai.request.model) and no operation: a call of your own needs"
            " gen_ai.operation.name=chat, or its messages (gen_ai.input.messages and gen_ai.output.messages)."
        )
    return (
        " LLM calls are spans made by an instrumentor of the client, e.g. opentelemetry-instrumentation-openai; was one"
        " installed and active?"
    )


def _commonest(counts: Counter[str]) -> list[tuple[str, int]]:
    """The most common reason, if there is any. Among equal counts the first by name, so that reports are equal."""
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:1]


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _names(scopes: Counter[str]) -> str:
    named = [scope or "an unnamed scope" for scope, _ in sorted(scopes.items(), key=lambda item: (-item[1], item[0]))]
    return ", ".join(named[:_NAMED]) + (" and others" if len(named) > _NAMED else "")
