"""Samples: token histories as prime-rl's `TrainingSample`.

Invariant: the lists of a record have one length, that of its history. `mask` is true exactly where a token was sampled,
is trained here and has a logprob; elsewhere logprobs and advantages are 0.0. Experts are those of all tokens or absent.

Source: `TrainingSample` and `prepare_sample` of prime-rl 0.8, `SamplingMask` of its pull request 3431.
"""

import base64
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Final

import numpy as np
from msgspec import Meta

from art_otel.exporting import ExportStats, JsonObject, ScoredTrajectory, TokenSequence, scored, sequences_of
from art_otel.trajectories import Trajectory

SOME_EXPERTS: Final = "sequences without experts, because those of some tokens are unknown"
NOTHING_LEFT: Final = "sequences that train nothing"
TEMPERATURE: Final = "completions with the temperature of the option, because their request had no usable one"
RESERVED: Final = "rollouts named all, which prime-rl reserves, put into the environment art-otel"

_OWN: Final = "art-otel"
_RESERVED: Final = "all"


@dataclass(frozen=True, kw_only=True, slots=True)
class SamplesConfig:
    """Options of `samples`."""

    env_name: Annotated[
        Annotated[str, Meta(min_length=1)] | None,
        Meta(description="the environment of every sample (default: the rollout's name, or art-otel)"),
    ] = None
    temperature: Annotated[
        float,
        Meta(gt=0, description="the temperature of calls whose request had none"),
    ] = 1.0


def encode_samples(
    items: Iterator[ScoredTrajectory], config: SamplesConfig, stats: ExportStats
) -> Iterator[JsonObject]:
    """Yield a record for each sequence that still trains something without its completions of unknown logprobs."""
    for item in items:
        env_name = _env_name(item.trajectory, config, stats)
        sequences = sequences_of(item, stats, token_facts=("routed_experts", "sampling_mask"))
        kept = [trained for sequence in sequences if (trained := scored(sequence, stats)) is not None]
        stats.skipped[NOTHING_LEFT] += len(sequences) - len(kept)
        if sequences and not kept:
            stats.trajectories_skipped[NOTHING_LEFT] += 1
        for sequence in kept:
            record = _record(sequence, env_name, _temperatures(sequence, config, stats))
            yield record | _experts(sequence, stats) | _sampling_mask(sequence)


def _env_name(trajectory: Trajectory, config: SamplesConfig, stats: ExportStats) -> str:
    name = config.env_name or trajectory.name or _OWN
    if name != _RESERVED:
        return name
    stats.changed[RESERVED] += 1
    return _OWN


def _temperatures(sequence: TokenSequence, config: SamplesConfig, stats: ExportStats) -> list[float]:
    """Return the temperature of each token. It is 1.0 where nothing is trained, because prime-rl ignores it there."""
    temperatures = [1.0] * len(sequence)
    for span, one in zip(sequence.completions, sequence.samplings, strict=True):
        requested = one.temperature
        stats.changed[TEMPERATURE] += not requested  # one cannot divide by 0
        temperature = requested or config.temperature
        temperatures[span.start : span.end] = [temperature] * (span.end - span.start)
    return temperatures


def _experts(sequence: TokenSequence, stats: ExportStats) -> JsonObject:
    """The experts of a history, for router replay, if those of all tokens are known.

    The last token was never sent through the model. It gets those of the token before it, as in verifiers' traces.
    """
    experts = None if sequence.routed_experts is None else sequence.routed_experts[:-1]
    if experts is None or not len(experts):
        return {}
    rows = np.concatenate([experts, experts[-1:]])
    if (rows < 0).any():
        stats.changed[SOME_EXPERTS] += 1
        return {}
    rows = rows.astype("int16")  # the same for all: prime-rl packs only what has one type
    data = base64.b64encode(rows.tobytes()).decode()
    return {"routed_experts": {"data": data, "shape": [*rows.shape], "dtype": str(rows.dtype)}}


def _sampling_mask(sequence: TokenSequence) -> JsonObject:
    """The ids that each trained token could have been, one after another, and their number for each token.

    The number is 0 where they are unknown.
    """
    if sequence.sampling_mask is None:
        return {}
    masks = [ids if trains else None for ids, trains in zip(sequence.sampling_mask, sequence.loss_mask, strict=True)]
    counts = np.array([0 if ids is None else len(ids) for ids in masks], "<i4").tobytes()
    flat = b"".join(ids.data for ids in masks if ids is not None)
    encoded = {name: base64.b64encode(data).decode() for name, data in (("ids", flat), ("counts", counts))}
    return {"sampling_mask": encoded}


def _record(sequence: TokenSequence, env_name: str, temperatures: list[float]) -> JsonObject:
    record: JsonObject = {
        "token_ids": sequence.input_ids.tolist(),
        "mask": sequence.loss_mask.tolist(),
        "logprobs": np.where(sequence.loss_mask, sequence.logprobs, 0.0).tolist(),
        "temperatures": temperatures,
        "env_name": env_name,
        "rollout_id": sequence.rollout_id,
        "group_id": sequence.group_id,
        "training_step": sequence.training_step,
        "gathering": sequence.gathering,
        "reward": sequence.reward,
        "policy_version": sequence.policy_version,
    }
    if sequence.advantages is not None:
        record["advantages"] = sequence.advantages.tolist()
    return record
