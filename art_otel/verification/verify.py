"""Verify: compare recorded logprobs with the model's own, over every trained token.

A recorded logprob equals the model's only if the ids before the token and their order, the mask, the weights that the
server sampled with, and the distribution of its logprobs are all right. A curve of rewards shows none of these errors.

    trajectories ─► tokens to compare ─► rows through the model ─► differences ─► figures by version, position, kind
                    (scored_tokens)      (model_logprobs)                         and a diagnosis where one fits
"""

import random
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from art_otel.errors import UsageError
from art_otel.store import read_trajectories
from art_otel.trajectories import Trajectory, TrajectoryGroup
from art_otel.verification.decoded_text import Decoder, TextComparison, compare_decoded
from art_otel.verification.diagnosis import Diagnosis, diagnose
from art_otel.verification.scored_tokens import ScoredTokens, score_tokens

if TYPE_CHECKING:
    from art_otel.verification.model_logprobs import WantedTokens

Precision: TypeAlias = Literal["float32", "float16", "bfloat16"]

LIMITS: Final[dict[Precision, float]] = {"float32": 2e-4, "float16": 0.01, "bfloat16": 0.05}
"""The mean absolute difference, in nats, that rounding in a server's kernels explains in each precision.

In float32 a real vLLM is 5e-6 from torch; in 16 bits rounding alone is hundredths, differently by kernel and batch.
"""

SAMPLE: Final = 200
_POSITIONS: Final = (0, 64, 256, 1024, 4096, 16_384)

Trajectories: TypeAlias = str | Path | Iterable[Trajectory | TrajectoryGroup]


RATIOS: Final = (0.8, 1.25)
"""The importance ratios that a clipped loss (PPO's, with 0.2) leaves unchanged are between these two."""


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """Differences of `tokens` tokens, in nats: the model's logprob minus the recorded one.

    With r = p_model / p_recorded of a sampled token (Schulman, http://joschu.net/blog/kl-approx.html), the divergence
    of the distribution that sampled from the model's is estimated by k1 = -log r, which is unbiased, and by
    k3 = r - 1 - log r, which is unbiased and never negative.

    `mean` and `worst` are of the absolute difference. `outside` is the share of tokens whose ratio is below 0.8 or
    above 1.25. All are None without tokens.
    """

    tokens: int
    mean: float | None = None
    worst: float | None = None
    kl_k1: float | None = None
    kl_k3: float | None = None
    outside: float | None = None


def figures(model: NDArray[np.float64], recorded: NDArray[np.float64]) -> Figures:
    """Compute the figures of tokens; both arrays have shape (tokens,)."""
    if not len(model):
        return Figures(tokens=0)
    difference = model - recorded
    with np.errstate(over="ignore"):  # an infinite ratio is a correct result here
        ratio = np.exp(difference)
    low, high = RATIOS
    return Figures(
        tokens=len(difference),
        mean=float(np.abs(difference).mean()),
        worst=float(np.abs(difference).max()),
        kl_k1=float(-difference.mean()),
        kl_k3=float((ratio - 1 - difference).mean()),
        outside=float(((ratio < low) | (ratio > high)).mean()),
    )


class Verification(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a comparison of `rollouts` of `total_rollouts` rollouts: all of them, or a sample.

    `by_version`, `by_position` (of the token in its history) and `by_kind` each divide the tokens of `all`. `skipped`
    counts completions that could not be compared, by reason. `holds`: there is no diagnosis, and no mean absolute
    difference, of all tokens or of a version, is above `limit` nats. `texts` is None without a tokenizer.
    """

    rollouts: int
    total_rollouts: int
    completions: int
    limit: float
    all: Figures
    by_version: dict[str, Figures]
    by_position: dict[str, Figures]
    by_kind: dict[str, Figures]
    diagnoses: tuple[Diagnosis, ...]
    skipped: dict[str, int]
    texts: TextComparison | None = None

    @property
    def holds(self) -> bool:
        """Whether all differences are within the limit, and the ids decode to the recorded messages."""
        return not self.diagnoses and (self.texts is None or self.texts.equal == self.texts.completions)

    def __str__(self) -> str:
        """One line, for a training loop to print."""
        if not self.all.tokens:
            reasons = ", ".join(f"{count} {reason}" for reason, count in self.skipped.items()) or "no completions"
            return f"verify: nothing to compare ({reasons})"
        line = (
            f"verify: {self.all.tokens} tokens, apart {self.all.mean:.1e} (worst {self.all.worst:.1e}),"
            f" KL {self.all.kl_k3:.1e}, outside [0.8, 1.25] {self.all.outside:.2%}"
        )
        return "; ".join([line, *(f"{one.name.upper()} ({one.where}, {one.mean:.1e})" for one in self.diagnoses)])


def verify(  # noqa: PLR0913 # an option each
    trajectories: Trajectories,
    model: Any,  # noqa: ANN401 # a folder, a hub's name, or a transformers.PreTrainedModel
    *,
    tokenizer: "str | Path | Decoder | None" = None,
    sample: int | None = SAMPLE,
    policy_version: str | None = None,
    precision: Precision | None = None,
    limit: float | None = None,
    dtype: Precision = "float32",
    device: str | None = None,
    seed: int = 0,
) -> Verification:
    """Compare the recorded logprobs of trajectories with a model's own.

        verification = art_otel.verify("dataset", "Qwen/Qwen3-8B", policy_version="step-0")
        assert verification.holds, verification

    `trajectories` are a dataset's path, or gathered trajectories and groups. `model` is a folder that transformers can
    load, or a loaded model, which is not changed. At most `sample` rollouts are compared, chosen at random (None: all).
    With `policy_version`, only rollouts of this version are compared: in the dataset of a training run, each checkpoint
    must be compared with its own rollouts.

    `limit` is in nats; its default is what the server's `precision` explains, by default the precision in the model's
    settings. The model computes in `dtype` on `device` (a GPU if there is one). With a tokenizer, the ids are also
    compared with the recorded messages.

    Raises UsageError if torch or transformers is missing, for a model that cannot be loaded, and for ids that the model
    does not have.
    """
    from art_otel.verification import model_logprobs  # noqa: PLC0415 # torch takes seconds to load

    chosen, total = _choose(trajectories, sample, seed, policy_version)
    scored = score_tokens(chosen)
    loaded = model_logprobs.load_model(model, dtype=dtype, device=device) if isinstance(model, (str, Path)) else model
    plain, tempered = model_logprobs.model_logprobs(loaded, scored.rows, _wanted(scored))
    computed = np.concatenate(plain) if plain else np.empty(0)
    bound = limit if limit is not None else LIMITS[precision or _precision_of(loaded)]
    return Verification(
        rollouts=scored.rollouts,
        total_rollouts=total,
        completions=len(scored.completions),
        limit=bound,
        all=figures(computed, scored.recorded),
        by_version=_by_version(scored, computed),
        by_position=_by_position(scored, computed),
        by_kind=_by_kind(scored, computed),
        diagnoses=diagnose(scored, computed, np.concatenate(tempered) if tempered else computed, bound),
        skipped=dict(scored.skipped),
        texts=None if tokenizer is None else compare_decoded(chosen, _load_tokenizer(tokenizer)),
    )


def _choose(
    trajectories: Trajectories, sample: int | None, seed: int, policy_version: str | None
) -> tuple[list[Trajectory], int]:
    """Take a sample in one pass (algorithm R), so that a large dataset is never in memory as a whole.

    Also returns the number of all items.
    """
    if isinstance(trajectories, (str, Path)):
        given: Iterable[Trajectory | TrajectoryGroup] = read_trajectories(trajectories)
    else:
        given = trajectories
    chosen: list[Trajectory] = []
    generator = random.Random(seed)  # noqa: S311 # a sample is no secret
    count = 0
    for one in given:
        for trajectory in [one] if isinstance(one, Trajectory) else one:
            if policy_version is not None and not _is_of(trajectory, policy_version):
                continue
            count += 1
            if sample is None or len(chosen) < sample:
                chosen.append(trajectory)
            elif (place := generator.randrange(count)) < sample:
                chosen[place] = trajectory
    return chosen, count


def _is_of(trajectory: Trajectory, policy_version: str) -> bool:
    return trajectory.policy_version is not None and policy_version in (
        trajectory.policy_version.first,
        trajectory.policy_version.last,
    )


def _wanted(scored: ScoredTokens) -> "Sequence[WantedTokens]":
    """The tokens whose logprobs are asked of the model: the compared tokens of each completion."""
    from art_otel.verification.model_logprobs import WantedTokens  # noqa: PLC0415 # torch takes seconds to load

    ends = np.searchsorted(scored.completion, np.arange(len(scored.completions) + 1))
    return [
        WantedTokens(
            completion.row,
            scored.position[start:end],
            # Greedy sampling has no distribution to temper, and a request without a temperature samples at 1.
            np.full(end - start, completion.temperature or 1.0),
        )
        for completion, start, end in zip(scored.completions, ends[:-1], ends[1:], strict=True)
    ]


def _by_version(scored: ScoredTokens, computed: NDArray[np.float64]) -> dict[str, Figures]:
    return {
        "unknown" if version is None else version: _of(scored, computed, scored.version == code)
        for code, version in enumerate(scored.versions)
    }


def _by_position(scored: ScoredTokens, computed: NDArray[np.float64]) -> dict[str, Figures]:
    result: dict[str, Figures] = {}
    for low, high in zip(_POSITIONS, [*_POSITIONS[1:], None], strict=True):
        part = (scored.position >= low) & (True if high is None else scored.position < high)
        if part.any():
            result[f"{low} to {high - 1}" if high is not None else f"from {low}"] = _of(scored, computed, part)
    return result


def _by_kind(scored: ScoredTokens, computed: NDArray[np.float64]) -> dict[str, Figures]:
    if not len(scored):
        return {}
    completions = scored.completions
    is_constrained = np.array([one.is_constrained for one in completions])[scored.completion]
    is_tempered = np.array([one.temperature not in (None, 1.0) for one in completions])[scored.completion]
    kinds = {
        "first of a completion": scored.depth == 0,
        "later": scored.depth > 0,
        "at another temperature than 1": is_tempered,
        "constrained": is_constrained,
    }
    return {name: _of(scored, computed, part) for name, part in kinds.items() if part.any()}


def _of(scored: ScoredTokens, computed: NDArray[np.float64], part: NDArray[np.bool_]) -> Figures:
    return figures(computed[part], scored.recorded[part])


def _precision_of(model: Any) -> Precision:  # noqa: ANN401 # a transformers.PreTrainedModel
    """The precision in the model's own settings, which a server uses by default."""
    name = str(getattr(model.config, "dtype", None) or getattr(model.config, "torch_dtype", None) or "float32")
    name = name.removeprefix("torch.")
    return name if name in LIMITS else "float32"


def _load_tokenizer(tokenizer: "str | Path | Decoder") -> Decoder:
    if not isinstance(tokenizer, (str, Path)):
        return tokenizer
    from transformers import AutoTokenizer  # noqa: PLC0415 # an extra

    try:
        return AutoTokenizer.from_pretrained(tokenizer)  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType] # transformers has no types here
    except (OSError, ValueError) as error:
        raise UsageError(f"--tokenizer {tokenizer}: {error}") from error
