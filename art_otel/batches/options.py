"""The options of `art_otel.batches`, by the names users write.

Invariant: what makes no sense is refused here, before anything is read.
"""

from collections.abc import Iterable, Mapping
from functools import partial
from numbers import Integral
from typing import Final, Literal, TypeAlias, get_args

from art_otel.batches import advantages
from art_otel.batches.chat_template import ChatTemplate, ChatTokenizer
from art_otel.batches.checks import one_of, share, whole, whole_or_none
from art_otel.batches.chunks import Sources, list_chunks
from art_otel.batches.credit import Credit, final
from art_otel.batches.freshness import Freshness
from art_otel.batches.gathering import Lengths, TooLong
from art_otel.batches.order import Order
from art_otel.batches.plan import Advantage
from art_otel.batches.reading import Batches, Packer, Recipe, State
from art_otel.batches.rows import packed as pack
from art_otel.batches.rows import padded as pad
from art_otel.batches.selection import Selection, selection
from art_otel.batches.token_rewards import Weights, weights_of
from art_otel.errors import UsageError
from art_otel.trajectories import Status

AdvantageName: TypeAlias = Literal["grpo", "grpo_sample", "dr_grpo", "rloo", "centred"]

ADVANTAGES: Final[Mapping[str, Advantage]] = {
    "grpo": advantages.grpo,
    "grpo_sample": partial(advantages.grpo, std="sample"),
    "dr_grpo": advantages.dr_grpo,
    "rloo": advantages.rloo,
    "centred": advantages.centred,
}
"""Advantages by name; others are given as functions of one group's rewards."""


def batches(  # noqa: PLR0913 # every one is an option that users know by its name
    sources: Sources,
    *,
    batch_size: int = 8,
    max_tokens: int | None = None,
    packed: bool = False,
    too_long: TooLong = "leave_out",
    pad_token_id: int = 0,
    tokenizer: ChatTokenizer | None = None,
    advantage: AdvantageName | Advantage | None = "grpo",
    credit: Credit | None = None,
    token_rewards: str | Weights | None = None,
    zero_variance: Literal["keep", "leave_out"] = "keep",
    complete_only: bool = True,
    splits: str | Iterable[str | None] | None = None,
    statuses: Status | Iterable[Status] | None = ("ok",),
    policy_version: str | int | None = None,
    max_staleness: int | None = None,
    seed: int | None = None,
    epoch: int = 0,
    window: int = 4,
    shard: tuple[int, int] = (0, 1),
    resume: State | None = None,
) -> Batches:
    """Iterate over trajectories as numpy batches, without loading them all.

    `sources` are files, folders or globs that `art-otel convert` or `write_trajectories` wrote, or trajectories in
    memory. A row is a sequence, padded to the longest of its batch; `packed` fills rows of `max_tokens` with several.

    - `batch_size`: rows of a batch; the last one may have fewer. `max_tokens`: the longest sequence (None: any).
      A longer one is left out, with `too_long="cut"` cut at its end, with `"raise"` an error. All is counted.
    - `tokenizer`: a Hugging Face tokenizer with the policy's chat template, for completions whose ids no server gave.
      Sequences that it made have no logprobs and are marked in `retokenised`. Without one they are left out.
    - `advantage`: how a reward is compared with those of its group: "grpo" (population deviation), "grpo_sample",
      "dr_grpo", "rloo", "centred", a function of a group's rewards, or None for no advantages. `credit`: which reward a
      turn has, see `art_otel.batches.credit`; the final one if None. A completion without a reward is not trained.
      `token_rewards`: names of rewards of spans of tokens, with their weights, to give as an array of their own.
      `zero_variance="leave_out"` leaves out groups in which all known rewards are equal, those of one member too.
    - `complete_only`: only trajectories that miss nothing and did not end on a failed call. `splits`, `statuses`: which
      (None: any). `policy_version`: sampled by this version in every call, or with `max_staleness` by versions at most
      so many older.
    - `seed`, `epoch`: shuffle, the same way each time; `window` row groups are in memory and shuffled together.
      `shard=(index, count)`: one of several readers. `resume`: the `state` of earlier batches.

    A reward that is NaN, infinite or not below 1e37 is not trained and counts in no baseline. Everything that is left
    out is in `report`. Raises UsageError for options that make no sense, StoreError for paths without trajectory files.
    """
    if credit is not None and not isinstance(credit, Credit):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise UsageError(f"credit={credit!r}: give what a function of art_otel.batches.credit returns, as final()")
    batch_size, max_tokens = whole("batch_size", batch_size, 1), whole_or_none("max_tokens", max_tokens, 1)
    one_of("packed", packed, (True, False))
    one_of("too_long", too_long, get_args(TooLong))
    one_of("zero_variance", zero_variance, ("keep", "leave_out"))
    wanted = selection(complete_only=complete_only, splits=splits, statuses=statuses)
    staleness = whole_or_none("max_staleness", max_staleness, 0)
    fresh = Freshness(policy_version=_version(policy_version), max_staleness=staleness)
    lengths = Lengths(max_tokens=max_tokens, too_long=too_long)
    rule, weights = credit or final(), weights_of(token_rewards)
    trained = "all" if advantage is None else f"rewarded by {rule.per} {rule.name}"
    recipe = Recipe(
        refusal=lambda trajectory: wanted.reason_against(trajectory) or fresh.reason_against(trajectory),
        credit=rule,
        advantage=_advantage(advantage),
        keep_flat=zero_variance == "keep",
        lengths=lengths,
        weights=weights,
        template=None if tokenizer is None else ChatTemplate(tokenizer),
        order=Order(
            seed=whole_or_none("seed", seed, 0),
            epoch=whole("epoch", epoch, 0),
            window=whole("window", window, 1),
            shard=share("shard", shard),
        ),
        rows=_packer(batch_size, max_tokens, packed=packed),
        width=max_tokens if packed else None,
        pad_token_id=whole("pad_token_id", pad_token_id, -(2**31), 2**31 - 1),
        kept=f"{_text(wanted)} {fresh} {lengths} {trained} zero_variance={zero_variance} "
        f"token_rewards={sorted((weights or {}).items())} "
        f"tokenizer={None if tokenizer is None else type(tokenizer).__name__}",
    )
    return Batches(list_chunks(sources), recipe, resume)


def _version(policy_version: object) -> str | None:
    if policy_version is None or isinstance(policy_version, str):
        return policy_version
    if not isinstance(policy_version, bool) and isinstance(policy_version, Integral):
        return str(policy_version)
    raise UsageError(f"policy_version={policy_version!r}: give a text or a whole number, as it was recorded")


def _advantage(advantage: str | Advantage | None) -> Advantage | None:
    if isinstance(advantage, str):
        one_of("advantage", advantage, (*ADVANTAGES, None))
        return ADVANTAGES[advantage]
    if advantage is not None and not callable(advantage):
        raise UsageError(f"advantage={advantage!r}: give a name, a function of a group's rewards, or None")
    return advantage


def _text(wanted: Selection) -> str:
    """The same in every process: sets have an order of their own in each."""
    splits = None if wanted.splits is None else sorted(map(repr, wanted.splits))
    return f"complete_only={wanted.complete_only} splits={splits} statuses={sorted(wanted.statuses)}"


def _packer(batch_size: int, max_tokens: int | None, *, packed: bool) -> Packer:
    if not packed:
        return partial(pad, batch_size=batch_size)
    if max_tokens is None:
        raise UsageError("packed=True needs max_tokens, the width of a row")
    return partial(pack, batch_size=batch_size, max_tokens=max_tokens)
