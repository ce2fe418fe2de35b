"""Probe and deliver: rewards that name nothing but a response find the one trace that has it.

Invariant: a response id says where a reward goes only if exactly one trace has a call with it, for servers repeat
response ids. Else the reward goes back to its own trace as undeliverable, with the reason.
"""

import hashlib
from collections.abc import Iterable, Iterator

import msgspec

from art_otel import storage
from art_otel.conventions import parse_call, response_id_of_details, role_of
from art_otel.engines.shards import REWARDS, Shards, ShuffleCatalog, Shuffled, ShuffleFile, ShuffleWriter, Stored
from art_otel.spans import LogRecord, Span
from art_otel.trajectories import NO_RESPONSE, SEVERAL_CALLS, ExternalReward

_ANSWERS = msgspec.msgpack.Decoder(dict[str, list[str]])


class ProbeTask(msgspec.Struct, frozen=True, kw_only=True):
    """Slots to look through for the response ids that rewards name: `response_ids`, and those in `reward_files`."""

    slots: tuple[int, ...]
    files: ShuffleCatalog
    response_ids: tuple[str, ...]
    reward_files: ShuffleCatalog


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
    """Rewards in these files; `answers` is the file that says which traces have the response ids."""

    files: tuple[ShuffleFile, ...]
    answers: str
    slots: int
    scratch: str


def write_answers(summaries: Iterable[ProbeSummary], scratch: str) -> str:
    """Write down what all probes found, in a file whose name tells its content."""
    answers: dict[str, list[str]] = {}
    for summary in summaries:
        for response_id, traces in summary.traces.items():
            for trace_id in traces:
                add_trace(answers.setdefault(response_id, []), trace_id)
    encoded = msgspec.msgpack.encode(answers)
    location = storage.join(scratch, f"answers-{hashlib.sha256(encoded).hexdigest()[:32]}")
    storage.write(location, encoded, synced=False)
    return location


def deliver(task: DeliverTask) -> Shuffled:
    """Send each reward to the trace that has its response."""
    answers = _ANSWERS.decode(storage.read(task.answers))
    writer = ShuffleWriter(task.scratch, task.slots)
    for reward in _rewards(task.files):
        traces = answers.get(reward.address.response_id or "", [])
        if len(traces) == 1:
            writer.add(msgspec.structs.replace(reward, trace_id=traces[0]))
        else:
            reason = SEVERAL_CALLS if traces else NO_RESPONSE
            writer.add(msgspec.structs.replace(reward, trace_id=reward.origin[0], undeliverable=reason))
    return writer.finish()
