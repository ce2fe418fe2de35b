"""Probe and deliver: rewards that name nothing but a response find the one trace that has it.

Invariant: a response id says where a reward goes only if exactly one trace has a call with it, for servers repeat
response ids. Else the reward goes back to its own trace as undeliverable, with the reason.
"""

import hashlib
from collections.abc import Iterable, Iterator

import msgspec

from art_otel import storage
from art_otel.conventions import parse_call, response_id_of_details, role_of
from art_otel.engines.incremental.rounds import Round
from art_otel.engines.shards import (
    REWARDS,
    Arrival,
    Shards,
    ShuffleCatalog,
    Shuffled,
    ShuffleFile,
    ShuffleWriter,
    Stored,
    hash_of,
)
from art_otel.spans import LogRecord, Span
from art_otel.trajectories import NO_RESPONSE, SEVERAL_CALLS, ExternalReward


class ProbeTask(msgspec.Struct, frozen=True, kw_only=True):
    """Slots to look through for the response ids that rewards name: `response_ids`, and those in `reward_files`."""

    slots: tuple[int, ...]
    files: ShuffleCatalog
    response_ids: tuple[str, ...]
    reward_files: ShuffleCatalog


class Answers(msgspec.Struct, frozen=True):
    """The traces that have each response id, and the ids that traces of this round have."""

    traces: dict[str, list[str]]
    came: frozenset[str]


class ProbeSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The traces that have each response id, two of them at most: more do not matter."""

    traces: dict[str, list[str]]

    def is_intact(self) -> bool:
        """It names no file."""
        return True


def probe(task: ProbeTask) -> ProbeSummary:
    """Find the traces that have the response ids."""
    wanted = {*task.response_ids, *_named_in(task.reward_files.files_with((REWARDS,)))}
    traces: dict[str, list[str]] = {}
    for record in Shards(task.files.files_with(task.slots), task.slots).records(task.slots):
        response_id = _response_id(record)
        if response_id is not None and response_id in wanted and isinstance(record, Span | LogRecord):
            add_trace(traces.setdefault(response_id, []), record.trace_id)
    return ProbeSummary(traces=traces)


def add_trace(traces: list[str], trace_id: str) -> None:
    """Add a trace to those of a response id, of which two are enough."""
    if trace_id not in traces and len(traces) < 2:
        traces.append(trace_id)


def _named_in(files: Iterable[ShuffleFile]) -> Iterator[str]:
    for reward in _rewards(files):
        if reward.address.response_id is not None:
            yield reward.address.response_id


def _rewards(files: Iterable[ShuffleFile]) -> Iterator[ExternalReward]:
    for record in Shards(files, (REWARDS,)).records((REWARDS,)):
        if isinstance(record, ExternalReward):
            yield record


def _response_id(record: Stored) -> str | None:
    if isinstance(record, LogRecord):
        return response_id_of_details(record)
    return parse_call(record).response_id if isinstance(record, Span) and role_of(record) == "inference" else None


class DeliverTask(msgspec.Struct, frozen=True, kw_only=True):
    """Rewards in these files; `answers` is the file that says which traces have the response ids.

    In a `round` they arrive in it, but for those of earlier rounds (`again`): of these only what the round changed,
    because a trace with their response came.
    """

    files: tuple[ShuffleFile, ...]
    answers: str
    round: Round | None = None
    again: bool = False
    slots: int
    scratch: str


class Delivered(msgspec.Struct, frozen=True, kw_only=True):
    """Rewards in the slots of their traces, and the slots of traces for which that is news."""

    shuffled: Shuffled
    touched: tuple[int, ...]

    def is_intact(self) -> bool:
        """Whether the file is there as it was written."""
        return self.shuffled.is_intact()


_ANSWERS = msgspec.msgpack.Decoder(Answers)


def write_answers(earlier: Iterable[ProbeSummary], summaries: Iterable[ProbeSummary], scratch: str) -> str:
    """Write down what all probes found, of earlier rounds and of this, in a file whose name tells its content."""
    answers: dict[str, list[str]] = {}
    came: set[str] = set()
    for probes, ids in ((earlier, set[str]()), (summaries, came)):
        for summary in probes:
            ids.update(summary.traces)
            for response_id, traces in summary.traces.items():
                for trace_id in traces:
                    add_trace(answers.setdefault(response_id, []), trace_id)
    encoded = msgspec.msgpack.encode(Answers(answers, frozenset(came)), order="deterministic")
    location = storage.join(scratch, f"answers-{hashlib.sha256(encoded).hexdigest()[:32]}")
    storage.write(location, encoded, synced=False)
    return location


def deliver(task: DeliverTask) -> Delivered:
    """Send each reward to the trace that has its response."""
    answers = _ANSWERS.decode(storage.read(task.answers))
    writer = ShuffleWriter(task.scratch, task.slots)
    touched: set[str] = set()
    for reward in _rewards(task.files):
        response_id = reward.address.response_id or ""
        traces = answers.traces.get(response_id, [])
        if len(traces) == 1:
            writer.add(msgspec.structs.replace(reward, trace_id=traces[0]))
        else:
            reason = SEVERAL_CALLS if traces else NO_RESPONSE
            writer.add(msgspec.structs.replace(reward, trace_id=reward.origin[0], undeliverable=reason))
        if not task.again or response_id in answers.came:
            touched.update(traces)
    if task.round is not None:
        for trace_id in sorted(touched):
            writer.add(Arrival(trace_id, task.round.number, 0))
    slots = {hash_of(trace_id) % task.slots for trace_id in touched}
    return Delivered(shuffled=writer.finish(), touched=tuple(sorted(slots)))
