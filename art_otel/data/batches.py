"""batches: numpy batches of token sequences to train on, from files or from memory.

Invariant: invalid options raise an error here, before any trajectory is read.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Unpack

from art_otel.data.advantages import Advantage, AdvantageName
from art_otel.data.arranging import KeepTogether, Layout, ShuffleOrder
from art_otel.data.credit import Credit, CreditName
from art_otel.data.decisions import Overflow, SequenceOptions
from art_otel.data.filters import narrowed
from art_otel.data.loader import Batches, Recipe
from art_otel.data.options import validate
from art_otel.data.plan import ZeroVariance, make_scoring
from art_otel.data.retokenize import ChatTokenizer, retokenizing_histories
from art_otel.data.rewards import Weights, weights_of
from art_otel.data.selection import Selection, SelectionKeywords
from art_otel.data.sources import Sources, list_chunks
from art_otel.data.token_facts import TokenFact, token_facts_of
from art_otel.errors import UsageError


def batches(  # noqa: PLR0913 # every one is an option that users know by its name
    sources: Sources,
    *,
    batch_size: int = 8,
    max_tokens: int | None = None,
    overflow: Overflow = "drop",
    packed: bool = False,
    pad_token_id: int = 0,
    advantage: AdvantageName | Advantage | None = "grpo",
    credit: CreditName | Credit = "outcome_reward",
    token_rewards: str | Weights | None = None,
    zero_variance: ZeroVariance = "keep",
    seed: int | None = None,
    epoch: int = 0,
    shuffle_buffer: int = 4,
    by_length: bool = False,
    keep_together: KeepTogether | None = None,
    rank: int = 0,
    world_size: int = 1,
    drop_last: bool = False,
    tokenizer: ChatTokenizer | None = None,
    token_facts: TokenFact | Iterable[TokenFact] = (),
    **selection: Unpack[SelectionKeywords],
) -> Batches:
    """Iterate over trajectories as numpy batches, without loading all of them.

        for batch in art_otel.batches("out", batch_size=8, max_tokens=4096, packed=True, seed=0):
            loss = step(batch.input_ids, batch.loss_mask, batch.logprobs, batch.advantages)

    `sources` are files, folders, globs or URLs that `art-otel convert` or `write_trajectories` wrote, or trajectories
    and groups in memory. A row is a sequence, padded to the longest of its batch.

    - `batch_size`: rows of a batch; the last batch may have fewer. `max_tokens`: the most tokens of a sequence (None:
      any number). `overflow`: what happens to a longer sequence: "drop", "truncate" (at its end), or "raise". `packed`:
      fill rows of `max_tokens` with several sequences.
    - `advantage`: how a reward is compared with those of its group: "grpo" (population deviation), "grpo_sample",
      "dr_grpo", "rloo", "centered"; over all groups that are read: "grpo_batch", "reinforce_plus_plus" and
      "reinforce_plus_plus_baseline", and "gdpo", which normalizes each reward of `credit=weighted({…})` by itself; a
      function of a group's rewards; or None for no advantages.
    - `credit`: which reward a turn has: "outcome_reward" (the rollout's final reward), "step_reward", "call_reward", or
      the result of a function of `art_otel.data`, such as `weighted` and `discounted`. A completion without a reward is
      not trained, unless `advantage` is None. `token_rewards`: names of rewards for ranges of tokens, with their
      weights; they become a separate array. `zero_variance="drop"` skips groups in which all known rewards are equal,
      and groups of one member.
    - `allow_incomplete`: also train incomplete trajectories, and those that ended on a failed call: True, or a list of
      reasons that do no harm. Text that a recorder lost is no reason where token ids are trained, and a completion
      with a verdict against it stays untrained. `split`: one or several, "*" for all, None among them for rollouts
      without a split. The default leaves out "val", "validation", "test" and "eval". `training_step`, `status`: select
      one or several, such as `range(10, 20)` (None: any). Parts of a dataset that have none of them are not opened.
      `rollouts`: only these ids (None: any). `policy_version`: only trajectories that this version sampled in every
      call; with `max_staleness` also versions that are at most this many older.
    - `models`, `agents`: train only what these models and agents sampled: names or globs, `!` excludes, such as
      `["policy-*", "!*-judge"]`; "*" is all. A model is that of the request. If one rollout has completions of several
      models and nothing is chosen, that is a UsageError, because a judge looks like a policy.
    - `context_exceeded`: rollouts whose last call failed because the policy made the context too long: "keep" trains
      them with their rewards, "mask" makes their completions only context, and they count in the baseline, "drop"
      leaves them out, also of every baseline.
    - `length`: completions that were cut at `max_tokens` or by a content filter: "keep" trains them, "mask" makes them
      only context, "drop" leaves their rollouts out, also of every baseline.
    - `closed_streams="train"`: train the ids of streams that the app closed before their end, e.g. an agent that stops
      at `</tool>`. "mask" makes these ids only context (`stream broke`).
    - `seed`, `epoch`: shuffle, in the same way each time. `shuffle_buffer` row groups are in memory and shuffled
      together. `by_length`: put sequences of similar length into one batch, among those in memory, to save padding.
    - `keep_together`: "rollout" puts all sequences of a rollout into one batch, "group" those of a whole group. A batch
      then has at most `batch_size` rows; a rollout or group that needs more is a batch of its own. (`rollout_weights`
      of a batch let each rollout count alike.)
    - `rank` of `world_size`: one of several ranks, which builds only its own sequences. All ranks get the same number
      of batches: a rank that has no batch left gets a batch with nothing to train on. `drop_last=True` drops the last
      batches instead, if they are not full for every rank.
    - `tokenizer`: a Hugging Face tokenizer with the policy's chat template, for completions without ids from the
      server. Their sequences have no logprobs and are marked in `retokenized`. Without a tokenizer, they are skipped.
    - `token_facts`: "routed_experts", "sampling_mask": also give these as arrays, if they were recorded. With the
      masks, a completion that a grammar constrained keeps its logprobs, which are those of the masked distribution.
    - `constrained="mask"`: train no completion whose request allowed only some tokens (a tool choice, schema, grammar,
      `allowed_token_ids`) or moved them (`logit_bias`, `bad_words`, `min_tokens`); it is only context.
    - `images`: what happens to completions sampled behind images, audio or files, for which the ids have no more than
      placeholders: "mask" makes them only context, "placeholders" trains them on these.

    A reward that is NaN, infinite or not below 1e37 is not trained and counts in no baseline. `report` counts what is
    skipped by reason. Raises UsageError for invalid options, StoreError for paths without trajectory files.
    """
    order = validate(
        ShuffleOrder, {"seed": seed, "epoch": epoch, "shuffle_buffer": shuffle_buffer, "keep_together": keep_together}
    )
    if by_length and keep_together is not None:
        raise UsageError(
            "by_length=True and keep_together exclude each other, because the sequences of a rollout differ in length"
        )
    if by_length and packed:
        raise UsageError("by_length=True and packed=True exclude each other, because all packed rows have max_tokens")
    facts = token_facts_of(token_facts)
    layout = validate(
        Layout,
        {
            "batch_size": batch_size,
            "max_tokens": max_tokens,
            "overflow": overflow,
            "packed": packed,
            "pad_token_id": pad_token_id,
            "rank": rank,
            "world_size": world_size,
            "drop_last": drop_last,
            "token_facts": facts,
        },
    )
    sources = list(sources) if isinstance(sources, Iterator) else sources
    selection = narrowed(sources, selection)
    chosen = Selection(view="tokens" if tokenizer is None else "made tokens", **selection)
    sequences = SequenceOptions(
        advantages=advantage is not None,
        max_tokens=layout.max_tokens,
        overflow=layout.overflow,
        weights=weights_of(token_rewards),
        tokenizer=None if tokenizer is None else type(tokenizer).__name__,
        token_facts=facts,
    )
    if by_length:
        order = replace(order, bucket=layout.batch_size * layout.world_size)
    recipe = Recipe(
        selection=chosen,
        scoring=make_scoring(credit, advantage, zero_variance),
        sequences=sequences,
        make_histories=None if tokenizer is None else retokenizing_histories(tokenizer),
        order=order,
        layout=layout,
    )
    return Batches(list_chunks(sources, chosen.why_none_of), recipe)
