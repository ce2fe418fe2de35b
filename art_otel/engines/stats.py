"""Stats: what all tasks counted becomes one report, in which the sums of law 6 hold."""

from collections import Counter
from collections.abc import Mapping

from art_otel.engines.hints import NOTHING_NEW, find_hints
from art_otel.engines.tasks.read import ReadSummary
from art_otel.sources import FileStats
from art_otel.spans import Quarantined, first_sorted, list_quarantined
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


def describe_conversion(counts: ReadSummary, account: AssemblyStats) -> ConversionReport:
    """Put together what reading and assembling counted."""
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
        hints=[NOTHING_NEW] if is_idle else find_hints(read, counts.logs, sum(quarantined.values()), account),
        quarantine=[_quarantined(damage) for damage in damages],
    )


def _sorted(counts: Counter[str]) -> Mapping[str, int]:
    return {reason: counts[reason] for reason in sorted(counts) if counts[reason]}


def _quarantined(damage: Quarantined) -> QuarantineEntry:
    return QuarantineEntry(reason=damage.reason, path=damage.path, detail=damage.detail)


def _file(account: FileStats) -> FileReport:
    return FileReport(
        path=account.path,
        format=account.format,
        compression=account.compression,
        bytes=account.bytes,
        spans=account.spans,
        logs=account.log_records + account.logs_without_span,
        damaged=account.quarantined + account.partly_quarantined,
        lacks=account.lacks,
        note=_noted(account),
        error=account.error,
    )


def _noted(account: FileStats) -> str | None:
    """What a reader should know, also of what was read although it is not as it was written."""
    notes = [account.note] if account.note else []
    if lines := account.altered:
        notes.append(
            f"{lines} line{'s' * (lines > 1)} read with a checksum that does not match: altered after being written"
        )
    if count := account.replaced:
        notes.append(f"{count} half character{'s' * (count > 1)} read as U+FFFD: texts were cut inside a character")
    if count := account.without_time:
        notes.append(
            f"{count} reward{'s' * (count > 1)} without `time`: of those of one name the one counts whose file's"
            " name sorts last, then the last line"
        )
    return "; ".join(notes) or None
