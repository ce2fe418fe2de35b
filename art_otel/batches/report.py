"""BatchReport: what was given and what was left out.

Invariant: when an iteration is over, these are equal:

- `trajectories` = `trajectories_used` + the sum of `trajectories_left_out`;
- `completions` = `trained_completions` + the sum of `completions_left_out`;
- the tokens sampled in completions that could be trained = `trained_tokens` + `left_out_trained_tokens` +
  `cut_trained_tokens`.

Nothing is left out without being counted here.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from art_otel.batches.sequences import Sequence


@dataclass(kw_only=True, slots=True)
class BatchReport:
    """Counts of one iteration, growing while it goes on.

    `trajectories` are those of the row groups that were read (of several shards, this one's). Those of which nothing is
    trained are left out, as `duplicate` those whose rollout is read from another file. `completions` are those of
    trajectories that were not refused by an option; one may be left out, and the rest of its trajectory trained.
    `sequences_left_out` are sequences that were made and not given. `unusable_rewards` names rollouts with a reward
    that is no usable number, the first 100.

    `tokens` and `trained_tokens` are those given, `padding` the places without a token; `cut_tokens` and
    `cut_trained_tokens` were dropped from the ends of `cut_sequences`. `without_logprobs` counts trained tokens of
    which nobody recorded a logprob, `zero_advantage_tokens` those from which nothing is learnt, as of a rollout that is
    alone in its group; `drifts` calls whose prompt continues an earlier one by its messages while its ids do not,
    `respellings` those that continue one by their ids while their messages do not; `retokenised` sequences whose ids
    are not the server's, `unplaced_token_rewards` completions in such sequences with rewards of spans of tokens, which
    are left out because they count the server's tokens. `token_rewards` counts the rewards of spans of tokens by each
    name that was asked for: 0 for one that nobody gave. `shared_steps` counts, where steps are rewarded, indexes of a
    rollout at which two steps were: neither reward is used.
    """

    trajectories: int = 0
    trajectories_used: int = 0
    trajectories_left_out: Counter[str] = field(default_factory=Counter[str])
    sequences: int = 0
    sequences_left_out: Counter[str] = field(default_factory=Counter[str])
    completions: int = 0
    trained_completions: int = 0
    completions_left_out: Counter[str] = field(default_factory=Counter[str])
    batches: int = 0
    tokens: int = 0
    trained_tokens: int = 0
    padding: int = 0
    cut_sequences: int = 0
    cut_tokens: int = 0
    cut_trained_tokens: int = 0
    left_out_trained_tokens: int = 0
    without_logprobs: int = 0
    zero_advantage_tokens: int = 0
    drifts: int = 0
    respellings: int = 0
    retokenised: int = 0
    token_rewards: Counter[str] = field(default_factory=Counter[str])
    unplaced_token_rewards: int = 0
    shared_steps: int = 0
    unusable_rewards: list[str] = field(default_factory=list[str])

    def give(self, sequences: Iterable[Sequence]) -> None:
        """Count sequences that are given."""
        for sequence in sequences:
            trained = sequence.trained_tokens
            self.sequences += 1
            self.tokens += len(sequence)
            self.trained_tokens += trained
            self.trained_completions += len(sequence.completions)
            self.without_logprobs += sequence.without_logprobs
            self.retokenised += sequence.retokenised
            if sequence.advantages is not None:  # they are 0.0 outside of the mask
                self.zero_advantage_tokens += trained - int(np.count_nonzero(sequence.advantages))

    def leave_out(self, sequence: Sequence, reason: str) -> None:
        """Count a sequence that was made and is not given."""
        self.sequences_left_out[reason] += 1
        self.left_out_trained_tokens += sequence.trained_tokens
