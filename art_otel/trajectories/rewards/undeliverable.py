"""Undeliverable: why a reward was not delivered, and what to do about it.

Invariant: each reward is delivered to its target, or is undeliverable for one of these reasons.
"""

from collections.abc import Mapping
from typing import Final

NO_SPAN: Final = "linked span not in the sources"
NO_RESPONSE: Final = "response not in the sources"
SEVERAL_CALLS: Final = "response of several calls"
NO_ROLLOUT: Final = "rollout not in the sources"
SEVERAL_ROLLOUTS: Final = "several rollouts with this id"
OUTSIDE: Final = "outside every rollout"
NO_PART: Final = "no such choice or tokens"
OVER_A_LIMIT: Final = "rollout over a limit"
TOO_LATE: Final = "too late"

_CONVERT_TOGETHER: Final = "convert the spans that were judged together with the rewards"

ADVICE: Final[Mapping[str, str]] = {
    NO_SPAN: _CONVERT_TOGETHER,
    NO_RESPONSE: f"{_CONVERT_TOGETHER}; a response is found where its call recorded gen_ai.response.id",
    SEVERAL_CALLS: "servers repeat response ids: link the reward to the call's span, or name its rollout too",
    NO_ROLLOUT: _CONVERT_TOGETHER,
    SEVERAL_ROLLOUTS: "give target=trajectory, or art.rollout.trace_id or art.rollout.attempt",
    OUTSIDE: "what they judge is in no rollout: link them to a span of one, or name art.rollout.id",
    NO_PART: "the call has no such choice or not so many tokens: positions count from 0, the end is exclusive",
    OVER_A_LIMIT: "raise the limits of a rollout",
    TOO_LATE: "nothing came of the rollout for --retain: convert everything anew, or retain longer next time",
}
"""What to do, by reason."""
