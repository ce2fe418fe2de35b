"""Gathering: trajectories in, sequences out, and everything that is left out on the way counted.

Invariant: each completion of a selected trajectory is trained in exactly one sequence, or counted once with the reason
why it is not.
"""

from collections import Counter
from collections.abc import Sequence as Items
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from art_otel.batches.chat_template import ChatTemplate
from art_otel.batches.plan import UNUSABLE, Worth
from art_otel.batches.report import BatchReport
from art_otel.batches.retokenised import RetokenisedHistories, RetokenisedHistory, retokenise
from art_otel.batches.sequences import Sequence, build_sequence
from art_otel.batches.token_rewards import TokenRewards, Weights, count_by_name, token_rewards
from art_otel.errors import UsageError
from art_otel.trajectories import TokenHistory, Trajectory, text_only_histories, token_histories

TooLong: TypeAlias = Literal["leave_out", "cut", "raise"]

NO_IDS: Final = "no token ids"
NOTHING: Final = "nothing sampled"
TOO_LONG: Final = "longer than max_tokens"

_NAMED: Final = 100  # rollouts with such rewards
_NOTHING_TOKENISED: Final = RetokenisedHistories(histories=(), left_out=())


@dataclass(frozen=True, kw_only=True, slots=True)
class Lengths:
    """`max_tokens` is the longest a sequence may be (None: any length), `too_long` what becomes of a longer one."""

    max_tokens: int | None
    too_long: TooLong


@dataclass(frozen=True, kw_only=True, slots=True)
class Gatherer:
    """Makes sequences of trajectories, and counts in `report`.

    With a `template`, what has no token ids is tokenised by it; the trajectories then need their messages.
    """

    report: BatchReport
    advantages: bool
    lengths: Lengths
    weights: Weights | None = None
    template: ChatTemplate | None = None

    def sequences(self, trajectory: Trajectory, worth: Items[Worth]) -> list[Sequence]:
        """The sequences of a trajectory that is selected. `worth` has shape (turns,)."""
        tokenized = token_histories(trajectory)
        retokenized = _retokenized(trajectory, self.template)
        left_out = _untrained(trajectory, tokenized, retokenized)
        extras = None
        if self.weights is not None:
            extras = token_rewards(trajectory, self.weights)
            self.report.token_rewards.update(count_by_name(trajectory, self.weights))
        sequences: list[Sequence] = []
        for history in (*tokenized, *retokenized.histories):
            retokenised = isinstance(history, RetokenisedHistory)
            sequence = build_sequence(
                trajectory,
                history,
                worth,
                left_out,
                advantages=self.advantages,
                token_rewards=_placed(extras, history, self.report) if retokenised else extras,
                retokenised=retokenised,
            )
            fitting = None if sequence is None else self._fitted(sequence, left_out)
            if fitting is not None:
                sequences.append(fitting)
        self._count(trajectory, left_out, used=bool(sequences))
        return sequences

    def _count(self, trajectory: Trajectory, left_out: Counter[str], *, used: bool) -> None:
        report = self.report
        report.drifts += sum([prompt.drifted_at is not None for prompt in trajectory.prompts])
        report.respellings += sum([prompt.respelled_at is not None for prompt in trajectory.prompts])
        report.completions += len(trajectory.turns)
        if left_out:
            report.completions_left_out.update(left_out)
        if UNUSABLE in left_out and len(report.unusable_rewards) < _NAMED:
            report.unusable_rewards.append(trajectory.rollout_id)
        if used:
            report.trajectories_used += 1
        else:
            report.trajectories_left_out[_why(left_out)] += 1

    def _fitted(self, sequence: Sequence, left_out: Counter[str]) -> Sequence | None:
        """The sequence, or what may be of it."""
        limit = self.lengths.max_tokens
        if limit is None or len(sequence) <= limit:
            return sequence
        if self.lengths.too_long == "raise":
            raise UsageError(
                f"rollout {sequence.rollout_id}: a sequence of {len(sequence)} tokens, max_tokens is {limit}; "
                'allow more, or say too_long="leave_out" or "cut"'
            )
        cut = sequence.cut(limit) if self.lengths.too_long == "cut" else None
        if cut is None:
            left_out[TOO_LONG] += len(sequence.completions)
            self.report.leave_out(sequence, TOO_LONG)
            return None
        left_out[TOO_LONG] += len(sequence.completions) - len(cut.completions)
        self.report.cut_sequences += 1
        self.report.cut_tokens += len(sequence) - len(cut)
        self.report.cut_trained_tokens += sequence.trained_tokens - cut.trained_tokens
        return cut


def _retokenized(trajectory: Trajectory, template: ChatTemplate | None) -> RetokenisedHistories:
    """The completions that no server gave ids for, tokenized with the template if there is one."""
    histories = () if template is None else text_only_histories(trajectory)
    if template is None or not histories:
        return _NOTHING_TOKENISED
    return retokenise(trajectory, template, histories)


def _placed(extras: TokenRewards | None, history: RetokenisedHistory, report: BatchReport) -> TokenRewards | None:
    """Those of a retokenised history: none, for they count the tokens that the server sampled."""
    if extras is None:
        return None
    report.unplaced_token_rewards += sum(turn in extras for turn in history.turns)
    return {}


def _untrained(
    trajectory: Trajectory, tokenized: Items[TokenHistory], retokenized: RetokenisedHistories
) -> Counter[str]:
    """Count the completions that no sequence trains, whatever they are worth, by reason."""
    with_tokens = {turn for history in (*tokenized, *retokenized.histories) for turn in history.turns}
    reasons = {turn: each.reason for each in retokenized.left_out for turn in each.turns}
    left_out = Counter[str]()
    for position, turn in enumerate(trajectory.turns):
        if turn.untrained is not None:
            left_out[turn.untrained] += 1
        elif position not in with_tokens:
            left_out[reasons.get(position, NO_IDS)] += 1
    return left_out


def _why(left_out: Counter[str]) -> str:
    """Why no sequence came of a trajectory: what most of its completions were left out for."""
    found = left_out.most_common(1)
    return found[0][0] if found else NOTHING
