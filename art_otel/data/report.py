"""BatchReport: counts of what batches gave and skipped, and warnings if nothing is trained.

Invariant: at the end of an iteration these sums are equal:

- `trajectories` = `trajectories_used` + the sum of `trajectories_skipped`;
- `completions` = `trained_completions` + the sum of `completions_skipped`;
- the tokens sampled in completions that could be trained = `trained_tokens` + `skipped_trained_tokens` +
  `truncated_trained_tokens`.

So nothing is skipped without a count. All counts come from `decisions`.
"""

import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, fields
from typing import Final, Protocol

import numpy as np

from art_otel.data.choosing import choose, parts_for
from art_otel.data.columns import CREDITING, UNKNOWN
from art_otel.data.credit import judges_call
from art_otel.data.cures import helps_against
from art_otel.data.decisions import NO_IDS, REASONS, TOO_LONG, SequenceCounts, TrainingDecisions
from art_otel.data.plan import Plan
from art_otel.data.selection import HELD_OUT, Selection
from art_otel.data.sources import Chunk, read_columns, why_left_out

NAMED: Final = 100
"""The most rollouts with unusable rewards that a report names."""

_MOST_VALUES: Final = 10
"""The most values of a filter that a warning names."""


@dataclass(kw_only=True, slots=True)
class BatchReport:
    """Counts of one iteration. They grow while it runs. With several ranks, they count for all ranks.

    Trajectories and completions:

    - `trajectories` of the row groups that were read. `trajectories_used` have something to train on; the others are in
      `trajectories_skipped`, by reason.
    - `completions` of trajectories that no option refused. A completion may be skipped while others of its trajectory
      are trained.
    - `context_exceeded` counts selected trajectories that ended because their context was exceeded.
    - `unusable_rewards` names rollouts with a reward that is no usable number, at most 100.
    - `no_final_reward` counts, if the final reward was needed, selected rollouts that have rewards, but no final one,
      by the names of their rewards. They are skipped as `no reward`.
    - `shared_steps` counts, if steps are rewarded, indexes at which a rollout has two rewarded steps. Neither reward is
      used.
    - `repeated` counts recordings of rollouts that an earlier source also has. They are not read again.
    - `shared_group_ids` counts ids of groups (in one training step) that several runs use. Each run's group then has
      the number of its source after the id.
    - `compared` counts rollouts whose reward counted in a baseline beside that of another rollout, whether or not
      anything of them is trained.
    - `mixed_version_groups` counts groups that have rollouts of several policy versions, without a training step or
      gathering that tells whether the group id was used again. They are compared as one group.

    Sequences and tokens:

    - `batches` with something to train on; `sequences`, `tokens` and `trained_tokens` that were given; `padding`, the
      positions without a token.
    - `sequences_skipped` were made and not given. `truncated_tokens` and `truncated_trained_tokens` were cut from the
      ends of `truncated_sequences`.
    - `without_logprobs` counts trained tokens without a recorded logprob. `zero_advantage_tokens` counts trained tokens
      that teach nothing, such as those of a rollout that is alone in its group.
    - `uncounted_completions` counts trained completions of streams with tools and without a recorded usage: without a
      count of the server, it is unknown whether all of their ids were recorded.
    - `altered_sampling` counts trained completions with logprobs whose request asked for another distribution than the
      policy's own (temperature 1, all tokens), by what their logprobs are of: `raw`, `tempered`, `processed` or
      `unknown`. `zero_logprobs` counts trained completions of more than 8 tokens that all have a logprob of exactly
      0.0, though nothing forced them: their server gives no real logprobs.
    - `drifts` counts calls whose prompt continues an earlier call by messages, but not by ids. `rewritten_prompts`
      counts those that continue one by ids, but not by messages.
    - `retokenized` counts sequences whose ids are not the server's. `without_stop_token` counts trained completions in
      them that do not teach the policy to stop, because neither the chat template nor a later message shows the stop
      token. `token_rewards` counts rewards for ranges of tokens by each requested name; 0 if there is none.
      `unplaced_token_rewards` counts completions in retokenized sequences that have such rewards. These rewards are
      skipped, because their positions are those of the server's tokens.
    """

    trajectories: int = 0
    trajectories_used: int = 0
    trajectories_skipped: Counter[str] = field(default_factory=Counter[str])
    sequences: int = 0
    sequences_skipped: Counter[str] = field(default_factory=Counter[str])
    completions: int = 0
    trained_completions: int = 0
    completions_skipped: Counter[str] = field(default_factory=Counter[str])
    context_exceeded: int = 0
    batches: int = 0
    tokens: int = 0
    trained_tokens: int = 0
    padding: int = 0
    truncated_sequences: int = 0
    truncated_tokens: int = 0
    truncated_trained_tokens: int = 0
    skipped_trained_tokens: int = 0
    without_logprobs: int = 0
    zero_advantage_tokens: int = 0
    uncounted_completions: int = 0
    altered_sampling: Counter[str] = field(default_factory=Counter[str])
    zero_logprobs: int = 0
    drifts: int = 0
    rewritten_prompts: int = 0
    retokenized: int = 0
    without_stop_token: int = 0
    token_rewards: Counter[str] = field(default_factory=Counter[str])
    unplaced_token_rewards: int = 0
    shared_steps: int = 0
    unusable_rewards: list[str] = field(default_factory=list[str])
    no_final_reward: Counter[str] = field(default_factory=Counter[str])
    repeated: int = 0
    shared_group_ids: int = 0
    compared: int = 0
    mixed_version_groups: int = 0

    def __str__(self) -> str:
        """Short lines: what was used and trained, then all reasons with counts, then all other counts above 0."""
        tokens = f"{self.tokens:,} tokens, {self.trained_tokens:,} trained"
        lines = [
            f"trajectories  {self.trajectories:,}: {self.trajectories_used:,} used",
            f"completions   {self.completions:,}: {self.trained_completions:,} trained",
            f"batches       {self.batches:,}: {self.sequences:,} sequences, {tokens}",
        ]
        for what in ("trajectories_skipped", "completions_skipped", "sequences_skipped"):
            counts: Counter[str] = getattr(self, what)
            lines += [f"{what.replace('_', ' ')}  {reason}: {count:,}" for reason, count in counts.most_common()]
        told = {"trajectories", "trajectories_used", "completions", "trained_completions", "batches", "sequences"}
        for one in fields(self):
            value: Counter[str] | list[str] | int = getattr(self, one.name)
            if value and one.name not in told | {"tokens", "trained_tokens"} and not one.name.endswith("_skipped"):
                shown = dict(value) if isinstance(value, Counter) else value
                lines.append(f"{one.name.replace('_', ' ')}  {shown}")
        return "\n".join(lines)

    @property
    def helps(self) -> dict[str, str]:
        """What to do about each reason in this report, by reason."""
        return helps_against((*self.trajectories_skipped, *self.completions_skipped, *self.sequences_skipped))

    def count(self, decisions: TrainingDecisions) -> None:
        """Add the decisions on rollouts, without their sequences, which `give` counts."""
        selected = np.repeat(~decisions.refused.known, np.diff(decisions.turn_offsets))
        skipped = Counter(decisions.skipped)
        self.trajectories += len(decisions)
        self.trajectories_used += skipped.pop(None, 0)
        self.trajectories_skipped.update({reason: count for reason, count in skipped.items() if reason is not None})
        self.completions += int(np.count_nonzero(selected))
        codes, counts = np.unique(decisions.reasons[decisions.reasons >= 0], return_counts=True)
        reasons = map(REASONS.__getitem__, codes.tolist())
        self.completions_skipped.update(dict(zip(reasons, counts.tolist(), strict=True)))
        self.unusable_rewards += list(decisions.unusable.values())[: NAMED - len(self.unusable_rewards)]
        if not decisions.refused.known.all():
            self.token_rewards.update({name: int(counts.sum()) for name, counts in decisions.token_rewards.items()})
        totals = {name: int(counts.sum()) for name, counts in decisions.counts.items()}
        if too_long := totals.pop("too_long", 0):
            self.sequences_skipped[TOO_LONG] += too_long
        for name, count in totals.items():
            setattr(self, name, getattr(self, name) + count)

    def give(self, sequences: Iterable[SequenceCounts]) -> None:
        """Count sequences that are given."""
        for counts in sequences:
            self.sequences += 1
            self.tokens += counts.tokens
            self.trained_tokens += counts.trained_tokens
            self.trained_completions += counts.completions
            self.without_logprobs += counts.without_logprobs
            self.retokenized += counts.retokenized
            self.without_stop_token += counts.without_stop_token
            self.altered_sampling.update(counts.altered)
            self.zero_logprobs += counts.zero_logprobs
            self.zero_advantage_tokens += counts.zero_advantage_tokens

    def give_all(self, decisions: TrainingDecisions) -> None:
        """Count all sequences of some rollouts as given."""
        self.sequences += len(decisions.sequences)
        totals = SequenceCounts(*decisions.sequences.sum(axis=0).tolist())._asdict()
        totals["trained_completions"] = totals.pop("completions")
        del totals["altered"]
        for name, count in totals.items():
            setattr(self, name, getattr(self, name) + count)
        self.altered_sampling.update({mode: int(each.sum()) for mode, each in decisions.altered.items() if each.any()})

    def skip(self, sequence: SequenceCounts, reason: str) -> None:
        """Count a sequence that was made but is not given, and its completions."""
        self.sequences_skipped[reason] += 1
        self.skipped_trained_tokens += sequence.trained_tokens
        self.completions_skipped[reason] += sequence.completions


class Counted(Protocol):
    """The counts that the reports of all kinds of batches have."""

    trajectories: int
    trajectories_used: int
    trajectories_skipped: Counter[str]


def warn_of_nothing(report: Counted, selection: Selection, chunks: Sequence[Chunk]) -> None:
    """Warn if no trajectory is trained, and say why; if rewards are missing, also which rewards there are."""
    skipped = report.trajectories_skipped
    if report.trajectories_used:
        return
    if not report.trajectories:
        why = "because there is no trajectory in the sources"
    elif skipped.keys() <= {NO_IDS}:
        why = (
            "because no completion has token ids. Ask the server for them with ART_OTEL_REQUEST_TOKENS=1 when you"
            " record, or give batches(…, tokenizer=…) what makes them from the messages, without logprobs"
        )
    elif skipped.keys() <= {"split", "training step"}:
        asked = {"split": selection.split, "training_step": selection.training_step}
        filters = {name: values for name, values in asked.items() if values is not None}
        columns = read_columns(chunks, whole=True)
        names = {*filters, *(["split"] if "split" in skipped else [])}
        recorded: dict[str, set[object]] = {name: set(getattr(columns, name)) for name in names}
        wanted = _as_filters(filters) if filters else "a split to train"
        why = f"because no trajectory has {wanted}; they have {_as_filters(recorded)}"
        if selection.split is None and "split" in skipped:
            why += f'. Without split=, {_shown(HELD_OUT)} stay out: name what to train, as split="val", or split="*"'
    else:
        counts = ", ".join(f"{reason}: {count:,}" for reason, count in skipped.most_common())
        why = f"because all {report.trajectories:,} trajectories are left out ({counts})"
        if "no reward" in skipped and (names := names_given(chunks, selection)):
            why += f". The recorded rewards are named {', '.join(names)}"
    warnings.warn(f"there are no batches, {why}", stacklevel=3)


def warn_of_no_comparison(report: BatchReport, plan: Plan) -> None:
    """Warn if several trajectories are trained, each alone in its group, so that all advantages are 0."""
    is_zero = 0 < report.trained_tokens == report.zero_advantage_tokens
    if not is_zero or report.trajectories_used == 1 or plan.compares:
        return
    why = "each is alone in its group" if plan.has_groups else "none has a group_id"
    warnings.warn(
        f"all advantages of {report.trajectories_used:,} trajectories are 0, because {why}. Give the rollouts of a"
        ' task the same group_id, or compare all rollouts with advantage="reinforce_plus_plus"',
        stacklevel=3,
    )


def names_given(chunks: Sequence[Chunk], selection: Selection) -> list[str]:
    """The names of the rewards of selected trajectories, with the kind of target unless it is the whole rollout.

        ["correct", "style (of steps)"]

    Raises StoreError.
    """
    columns = read_columns(chunks, CREDITING | parts_for(selection))
    selected = ~choose(columns, selection, why_left_out(chunks)).refused.known[columns.reward_rows]
    judged = [
        "" if target is None and step is None else f" (of {kind}s)" if kind else " (of tokens)" if tokens else of_span
        for target, step, kind, tokens, of_span in zip(
            columns.target,
            columns.reward_step,
            columns.target_kind,
            (columns.token_start != UNKNOWN).tolist(),
            np.where(judges_call(columns), " (of calls)", " (of steps)").tolist(),
            strict=True,
        )
    ]
    return sorted(
        {f"{name}{of}" for name, of, is_chosen in zip(columns.reward_name, judged, selected, strict=True) if is_chosen}
    )


def _as_filters(values_by_name: Mapping[str, AbstractSet[object]]) -> str:
    return " and ".join(f"{name} {_shown(values)}" for name, values in values_by_name.items())


def _shown(values: AbstractSet[object]) -> str:
    """The first `_MOST_VALUES` values as Python writes them, the shortest first and None last."""
    shown = sorted(map(repr, values), key=lambda text: (text == "None", len(text), text))
    return ", ".join(shown[:_MOST_VALUES]) + (", …" if len(shown) > _MOST_VALUES else "")
