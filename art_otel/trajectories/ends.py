"""Ends: how the sampling of a rollout ended, where that is not that its agent was done.

Invariant: a rollout ended on a failure if no call completed after its last call that failed. Where that one failed by
the policy's doing, the end says so: a context that was exceeded is what the policy did, and an outage tells nothing of
it. A call that the app cancelled because another one was faster did not fail:

    call a  ────────────────────┤ completes         the app takes the first answer, and cancels the other:
    call b  ──────────────────────┤ CancelledError   b ended nothing

Calls that are marked untrained end nothing either: a judge that was not reached says nothing of the policy.
"""

from bisect import bisect_left
from collections.abc import Sequence
from typing import Final, Literal, TypeAlias

from art_otel.calls import CallRecord
from art_otel.conventions import is_cancellation

End: TypeAlias = Literal["context exceeded", "failed call"]
"""How sampling ended.

- `context exceeded`: the last call failed because its context was too long.
- `failed call`: the last call failed in another way, as in an outage.
"""

CONTEXT_EXCEEDED: Final[End] = "context exceeded"
FAILED_CALL: Final[End] = "failed call"


def end_of(calls: Sequence[CallRecord]) -> End | None:
    """How the sampling of a rollout with these calls ended; None if a call completed after the last that failed."""
    calls = [call for call in calls if call.marked_untrained is None]
    if not any(call.failed for call in calls):
        return None
    completed = sorted(call.end_ns for call in calls if not call.failed and call.end_ns is not None)
    failed = [call for call in calls if call.failed and not _lost_race(call, completed)]
    if not failed:
        return None
    last = max(map(_end_ns, failed))
    if completed and completed[-1] > last:
        return None
    kinds = {call.failure for call in failed if _end_ns(call) == last}  # of several at once, an outage counts
    return FAILED_CALL if None in kinds else CONTEXT_EXCEEDED


def _end_ns(call: CallRecord) -> int:
    return call.start_ns if call.end_ns is None else call.end_ns


def _lost_race(call: CallRecord, completed: Sequence[int]) -> bool:
    """Whether the app cancelled the call after another one completed while it ran; `completed` are ends, in order."""
    if call.end_ns is None or call.error_type is None or not is_cancellation(call.error_type):
        return False
    first = bisect_left(completed, call.start_ns)
    return first < len(completed) and completed[first] <= call.end_ns
