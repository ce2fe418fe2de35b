"""Rollouts in which more than the policy sampled, and completions that ended in every way."""

from pathlib import Path

from msgspec import structs

from art_otel.calls import InferenceCall
from art_otel.store import write_trajectories
from art_otel.trajectories import Trajectory, with_turns
from tests.data.rollouts import rollout
from tests.trajectories.calls import call, choice
from tests.viewer.served import rewarded

SAMPLED = 3
"""Rollouts of several models."""


def mixed(folder: Path) -> Path:
    made = [
        *(several(f"several-{number}", group_id="g", **rewarded(float(number))) for number in range(SAMPLED)),
        alone("alone", group_id="g", **rewarded(1.0)),
        ended("aborted", tokens_untrained="aborted", text_untrained="aborted"),
        ended("doubtful ids", tokens_untrained="ids doubtful"),
        ended("doubtful text", text_untrained="content uncertain"),
    ]
    write_trajectories(made, folder)
    return folder


def several(rollout_id: str, **fields) -> Trajectory:
    """The policy answers, critic and judge say something of it, and it answers again until it is cut."""
    calls = [
        asked(0, "plan", request_model="policy"),
        asked(1, "bad", request_model="policy", agent="critic"),
        asked(2, "good", request_model="judge-large"),
        asked(3, "title", request_model="policy", marked_untrained="title"),
        asked(4, "long", finish_reason="length", request_model="policy"),
    ]
    return rollout(calls, rollout_id, **fields)


def alone(rollout_id: str, **fields) -> Trajectory:
    return rollout([asked(0, "answer", request_model="policy")], rollout_id, **fields)


def ended(rollout_id: str, **verdicts: str) -> Trajectory:
    one = alone(rollout_id, **rewarded(1.0))
    return with_turns(one, [structs.replace(turn, **verdicts) for turn in one.turns])


def asked(number: int, says: str, finish_reason: str = "stop", **fields: str) -> InferenceCall:
    sampled = structs.replace(choice(says, [10 + number, 20 + number]), finish_reason=finish_reason)
    return call(number, f"ask{number}", [number], sampled, **fields)
