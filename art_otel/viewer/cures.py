"""Cures: what to do about each reason why something is not trained."""

from typing import Final

from art_otel.trajectories import explain

_CURES: Final = {
    "ended on a failed call": "no call completed after the last failure, as in an outage; name the reason in"
    " allow_incomplete to train such rollouts",
    "status": "the rollout ended otherwise than the status option asks for",
    "split": "the rollout is of another split, or of none",
    "no policy version": "a call has no policy version; set policy_version in art_otel.configure() or on the rollout",
    "another policy version": "the rollout was sampled by another version than the option names",
    "policy version without a number": "staleness compares numbers; give versions one",
    "stale": "the rollout is older than max_staleness allows",
    "no reward": "nobody gave the reward that the credit option asks for; give one, choose another credit, or train"
    " without advantages",
    "unusable reward": "the reward is NaN, infinite or not below 1e37; look where it is given",
    "zero variance": "all known rewards of the group are equal, so nothing is learned from it; sample more rollouts",
    "no token ids": "the server gave no token ids; see docs/spec/tokens.md, or give batches a tokenizer",
    "nothing sampled": "no call of the rollout has a completion",
    "no tokens sampled": "the completion is empty",
    "longer than max_tokens": "the sequence does not fit; allow more tokens, or truncate",
    "failed": "its call ended in an error, and what it said is kept as context alone",
    "stream broke": "its stream ended without a finish reason, so the completion may be cut; read streams to their end",
    "scrubbed": "a secret was found in its call; see docs/how-to/scrub.md",
    "content doubtful": "what was recorded of its prompt or of itself may not be what was sent and sampled; the call's"
    " gaps say what",
    "contradicting recordings": "two recordings of its call say different things; keep one instrumentor a client",
}


def cure_of(reason: str) -> str:
    """What a skip reason means, and what to do about it."""
    incomplete = reason.removeprefix("incomplete: ")
    return explain(incomplete) if incomplete != reason else _CURES.get(reason, "a reason of your own options")
