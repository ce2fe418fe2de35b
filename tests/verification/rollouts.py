"""Rollouts of one call, as verification reads them."""

from art_otel.calls import Choice, InferenceCall, Logprobs, Message, TokenIds
from art_otel.trajectories import Trajectory
from art_otel.trajectories.lineage import build_lineage


def rollout_of(message: Message, ids: list[int]) -> Trajectory:
    """A rollout whose only call gave this message with these ids."""
    call = InferenceCall(
        trace_id="ab" * 16,
        span_id="cd" * 8,
        operation_name="chat",
        start_ns=1,
        end_ns=2,
        input_messages=(Message(role="user", content="?"),),
        prompt_token_ids=TokenIds.of([1, 2]),
        choices=(
            Choice(
                index=0,
                message=message,
                finish_reason="stop",
                token_ids=TokenIds.of(ids),
                logprobs=Logprobs.of([-1.0] * len(ids)),
            ),
        ),
    )
    lineage = build_lineage([call])
    return Trajectory(
        rollout_id="r",
        trace_id="ab" * 16,
        calls=lineage.calls,
    )
