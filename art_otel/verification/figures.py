"""Figures: how far the recorded logprobs of some tokens are from the model's.

With r = p_model / p_recorded of a sampled token (Schulman, http://joschu.net/blog/kl-approx.html), the divergence of
the distribution that sampled from the model's is estimated by k1 = -log r, which is unbiased, and by
k3 = r - 1 - log r, which is unbiased and never negative.
"""

from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

RATIOS: Final = (0.8, 1.25)
"""Importance ratios between these are those that a clipped loss (PPO's, with 0.2) leaves as they are."""


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """Differences of `tokens` tokens, in nats: the model's logprob minus the recorded one.

    `mean` and `worst` are of the absolute difference, `bias` is the mean with its sign. `outside` is the share of
    tokens whose ratio is below 0.8 or above 1.25. All are None where there are no tokens.
    """

    tokens: int
    mean: float | None = None
    worst: float | None = None
    bias: float | None = None
    kl_k1: float | None = None
    kl_k3: float | None = None
    outside: float | None = None


def figures(model: NDArray[np.float64], recorded: NDArray[np.float64]) -> Figures:
    """Compute the figures of tokens; both arrays have shape (tokens,)."""
    if not len(model):
        return Figures(tokens=0)
    difference = model - recorded
    with np.errstate(over="ignore"):  # a ratio of infinity says what it has to say
        ratio = np.exp(difference)
    low, high = RATIOS
    return Figures(
        tokens=len(difference),
        mean=float(np.abs(difference).mean()),
        worst=float(np.abs(difference).max()),
        bias=float(difference.mean()),
        kl_k1=float(-difference.mean()),
        kl_k3=float((ratio - 1 - difference).mean()),
        outside=float(((ratio < low) | (ratio > high)).mean()),
    )
