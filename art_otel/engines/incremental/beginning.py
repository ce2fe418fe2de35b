"""Beginning: where an incremental conversion begins, from what the dataset keeps.

Invariant: a round has the settings of the rounds before it, or is refused by name. A dataset that keeps nothing, as
after a full conversion, has closed traces only: their rows stay as they are.
"""

from collections.abc import Sequence

from art_otel import storage
from art_otel.engines.incremental.kept import Kept, Tier, read_kept
from art_otel.engines.incremental.rounds import Round
from art_otel.engines.shards import Membership, Outcome, ShuffleWriter, link_region
from art_otel.errors import UsageError
from art_otel.store import Manifest


def kept_or_new(
    out: str, earlier: Manifest | None, slots: int, rollout_spans: Sequence[str], *, rollout_traces: bool
) -> Kept:
    """What the dataset keeps for a round with these settings. Raises UsageError where it was made with others."""
    kept = read_kept(out, earlier)
    if kept is None:
        return Kept(slots=slots, rollout_spans=tuple(rollout_spans), rollout_traces=rollout_traces)
    if kept.rollout_spans != tuple(rollout_spans):
        globs = " ".join(f"--rollout-span {glob!r}" for glob in kept.rollout_spans) or "without --rollout-span"
        raise _other_settings(out, globs)
    if kept.rollout_traces != rollout_traces:
        raise _other_settings(out, f"{'with' if kept.rollout_traces else 'without'} --rollout-traces")
    return kept


def _other_settings(out: str, settings: str) -> UsageError:
    return UsageError(
        f"{storage.shown(out)}: was converted {settings}, and its rollouts may go on; convert with the same settings,"
        " or everything anew into another folder"
    )


def closed_tier(out: str, scratch: str, slots: int) -> Tier:
    """The rows of a dataset that keeps nothing, as closed traces."""
    from art_otel.store import read_keys, row_groups  # noqa: PLC0415 # loads pyarrow, and is needed once

    records, outcomes = ShuffleWriter(scratch, slots), ShuffleWriter(scratch, slots)
    for keys in read_keys(row_groups(out)):
        for rollout_id, _, trace_id in keys:
            outcomes.add(Outcome(trace_id, 0, 0, "closed"))
            records.put(link_region(rollout_id), Membership(rollout_id, trace_id))
    return Tier(records=(records.finish(),), outcomes=(outcomes.finish(),))


def next_round(kept: Kept, now: int, *, grace: float, retain: float) -> Round:
    """The round at this time (ns). `grace` and `retain` are in seconds. Raises UsageError for times that do not fit."""
    if not 0 <= grace <= retain:
        raise UsageError(f"grace {grace:g}s, retain {retain:g}s: records are kept at least as long as a rollout waits")
    horizon = max(kept.horizon, now - int(retain * 1e9))
    return Round(number=kept.round + 1, now=now, grace=int(grace * 1e9), horizon=horizon)
