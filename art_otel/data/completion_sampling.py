"""Completion sampling: how each trained completion was sampled, and what that says of its logprobs.

Invariant: what a request does not say is unknown, and counts as sampled from the policy's own distribution: a server's
defaults are in no recording.
"""

from collections.abc import Iterable
from typing import Final, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from art_otel.calls import CallRecord
from art_otel.sampling import Sampling
from art_otel.trajectories import CompletionSpan, Turn

FEW: Final = 8
"""Of so many tokens each may really have been certain."""

UNKNOWN: Final = "unknown"
"""Of which distribution logprobs are, where nothing says it."""


class CompletionSampling(NamedTuple):
    """How a completion was sampled.

    `altered` is None where it was sampled from the policy's own distribution, at temperature 1 from all tokens, as
    far as its request says. Else it says of which distribution its logprobs are: `raw`, `tempered`, `processed` or
    `unknown`. `has_zero_logprobs` says that each of its tokens, which are more than a few, has a logprob of exactly
    0.0, though nothing forced it.
    """

    sampling: Sampling
    altered: str | None = None
    has_zero_logprobs: bool = False


def completion_sampling(call: CallRecord, turn: Turn, *, has_logprobs: bool = True) -> CompletionSampling:
    """How the completion of a turn of this call was sampled; `has_logprobs`: whether those of the server count."""
    sampling = call.sampling
    logprobs = turn.logprobs if has_logprobs and not call.has_masked_logprobs else None
    if logprobs is None or turn.token_ids is None or len(logprobs) != len(turn.token_ids):
        return CompletionSampling(sampling)
    numbers = np.frombuffer(logprobs.data, "<f4")
    altered = sampling.is_altered and not np.isnan(numbers).all()
    is_zero = len(numbers) > FEW and not numbers.any() and not (call.is_constrained or sampling.is_greedy)
    return CompletionSampling(sampling, (sampling.logprobs_mode or UNKNOWN) if altered else None, is_zero)


def of_each_token(
    name: Literal["temperature", "top_p"],
    completions: Iterable[CompletionSpan],
    samplings: Iterable[CompletionSampling],
    size: int,
) -> NDArray[np.float32]:
    """What each token of a completion was sampled with: NaN where its request does not say, 1.0 elsewhere.

    Logits may be divided by 1.0, so it is what changes nothing. Shape: (tokens,).
    """
    values = np.ones(size, np.float32)
    for span, one in zip(completions, samplings, strict=True):
        value: float | None = getattr(one.sampling, name)
        values[span.start : span.end] = np.nan if value is None else value
    return values
