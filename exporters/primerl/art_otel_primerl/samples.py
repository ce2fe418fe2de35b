"""Samples: token histories as prime-rl's `TrainingSample`.

Invariant: the lists of a record have one length, that of its history. `mask` is true exactly where a token was sampled,
is trained here and has a logprob; elsewhere logprobs and advantages are 0.0. Experts are those of all tokens or absent.

Source: `TrainingSample` and `prepare_sample` of prime-rl 0.8, `SamplingMask` of its pull request 3431.
"""

import base64
import math
from collections.abc import Iterator
from typing import Any, Final, TypeAlias

import numpy as np

from art_otel.exporting import ExportStats, ScoredTrajectory, TokenSequence, scored, sequences_of
from art_otel.trajectories import Trajectory
from art_otel_primerl.config import SamplesConfig

JsonObject: TypeAlias = dict[str, Any]

SOME_EXPERTS: Final = "sequences whose experts are known of some tokens only, so prime-rl routes them anew"
NOTHING_LEFT: Final = "sequences that train nothing"
TEMPERATURE: Final = "completions whose temperature is the option's"
RESERVED: Final = "rollouts named all, which prime-rl keeps for itself, in the environment art-otel"

_OWN: Final = "art-otel"
_RESERVED: Final = "all"


def encode_samples(
    items: Iterator[ScoredTrajectory], config: SamplesConfig, stats: ExportStats
) -> Iterator[JsonObject]:
    """A record a sequence. Numbers are those of its arrays, float32 as the shortest double that is equal."""
    for item in items:
        env_name = _env_name(item.trajectory, config, stats)
        sequences = sequences_of(item, stats, token_facts=("routed_experts", "sampling_mask"))
        kept = [trained for sequence in sequences if (trained := scored(sequence, stats)) is not None]
        stats.skipped[NOTHING_LEFT] += len(sequences) - len(kept)
        if sequences and not kept:
            stats.trajectories_skipped[NOTHING_LEFT] += 1
        for sequence in kept:
            record = _record(sequence, env_name, _temperatures(item.trajectory, sequence, config, stats))
            yield record | _experts(sequence, stats) | _sampling_mask(sequence)


def _env_name(trajectory: Trajectory, config: SamplesConfig, stats: ExportStats) -> str:
    name = config.env_name or trajectory.name or _OWN
    if name != _RESERVED:
        return name
    stats.changed[RESERVED] += 1
    return _OWN


def _temperatures(
    trajectory: Trajectory, sequence: TokenSequence, config: SamplesConfig, stats: ExportStats
) -> list[float]:
    """The temperature that each token was sampled with; 1.0 where nothing is trained, which prime-rl does not read."""
    temperatures = [1.0] * len(sequence)
    for span in sequence.completions:
        told = trajectory.calls[trajectory.turns[span.turn].call].parameters.get("temperature")
        known = isinstance(told, int | float) and not isinstance(told, bool) and math.isfinite(told) and told > 0
        stats.changed[TEMPERATURE] += not known
        temperature = float(told) if known else config.temperature
        temperatures[span.start : span.end] = [temperature] * (span.end - span.start)
    return temperatures


def _experts(sequence: TokenSequence, stats: ExportStats) -> JsonObject:
    """The experts of a history, for router replay, where all are known.

    The last token was never sent through the model; it has those of the token before it, as in verifiers' traces.
    """
    known = None if sequence.routed_experts is None else sequence.routed_experts[:-1]
    if known is None or not len(known):
        return {}
    rows = np.concatenate([known, known[-1:]])
    if (rows < 0).any():
        stats.changed[SOME_EXPERTS] += 1
        return {}
    rows = rows.astype("int16")  # the same for all: prime-rl packs only what has one type
    data = base64.b64encode(rows.tobytes()).decode()
    return {"routed_experts": {"data": data, "shape": [*rows.shape], "dtype": str(rows.dtype)}}


def _sampling_mask(sequence: TokenSequence) -> JsonObject:
    """The ids that each trained token could have been: all behind each other, and how many a token, 0 where unknown."""
    if sequence.sampling_mask is None:
        return {}
    known = [ids if trains else None for ids, trains in zip(sequence.sampling_mask, sequence.loss_mask, strict=True)]
    counts = np.array([0 if ids is None else len(ids) for ids in known], "<i4").tobytes()
    flat = b"".join(ids.data for ids in known if ids is not None)
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
        "reward": sequence.reward,
        "policy_version": sequence.policy_version,
    }
    if sequence.advantages is not None:
        record["advantages"] = sequence.advantages.tolist()
    return record
