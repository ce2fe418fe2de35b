"""SequenceBuilder: a trajectory becomes token sequences, and a verdict on each of its completions.

Invariant: each completion is trained in exactly one sequence, or its verdict is the reason why not.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from art_otel.data.rewards.plan import TurnReward
from art_otel.data.rewards.token_rewards import TokenRewards, Weights, count_by_name, token_rewards
from art_otel.data.sequences.sequence import History, TokenSequence, build_sequence
from art_otel.errors import UsageError
from art_otel.store import Wanted
from art_otel.trajectories import TokenHistory, Trajectory, token_histories

Overflow: TypeAlias = Literal["drop", "truncate", "raise"]

HistorySource: TypeAlias = Callable[[Trajectory], tuple[Sequence[History], Mapping[int, str]]]
"""The token histories of a trajectory, and why turns are in none of them."""

NO_IDS: Final = "no token ids"
NOTHING: Final = "nothing sampled"
TOO_LONG: Final = "longer than max_tokens"


def recorded_histories(trajectory: Trajectory) -> tuple[Sequence[History], Mapping[int, str]]:
    """The histories of the token ids that the server gave."""
    return token_histories(trajectory), {}


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """What becomes of one trajectory.

    `skipped` is why nothing of it is trained, None where something is. `completions` has shape (turns,): None for a
    completion that is trained, else the reason why not. It is empty where an option refused the whole trajectory.
    """

    rollout_id: str
    skipped: str | None
    completions: tuple[str | None, ...] = ()


@dataclass(kw_only=True, slots=True)
class BuiltSequences:
    """The sequences of one trajectory and the verdict on it.

    `dropped` are sequences longer than `max_tokens`; `truncated` counts those that were cut, `truncated_tokens` what
    they lost. `token_rewards` counts those given by name, `unplaced_token_rewards` completions
    that have some, but no tokens of the server's.
    """

    sequences: list[TokenSequence]
    verdict: Verdict
    dropped: list[TokenSequence] = field(default_factory=list[TokenSequence])
    truncated: int = 0
    truncated_tokens: int = 0
    truncated_trained_tokens: int = 0
    unplaced_token_rewards: int = 0
    token_rewards: Counter[str] = field(default_factory=Counter[str])


@dataclass(frozen=True, kw_only=True, slots=True)
class SequenceBuilder:
    """Builds the sequences of trajectories.

    `max_tokens` is the longest a sequence may be (None: any length), `overflow` what becomes of a longer one, `weights`
    are those of token rewards. `histories` gives the token histories; `tokenizer` names what makes some of messages.
    """

    advantages: bool
    max_tokens: int | None = None
    overflow: Overflow = "drop"
    weights: Weights | None = None
    histories: HistorySource = recorded_histories
    tokenizer: str | None = None

    def __str__(self) -> str:
        """What decides which sequences there are."""
        weights = sorted((self.weights or {}).items())
        limit = f"max_tokens={self.max_tokens} overflow={self.overflow}"
        return f"{limit} token_rewards={weights} tokenizer={self.tokenizer}"

    @property
    def wanted(self) -> Wanted:
        """The parts of trajectories that are read."""
        return Wanted(prompts=False, messages=self.tokenizer is not None)

    def build(self, trajectory: Trajectory, turn_rewards: Sequence[TurnReward]) -> BuiltSequences:
        """Build the sequences of a selected trajectory. `turn_rewards` has shape (turns,).

        Raises UsageError for a sequence that is too long, where `overflow` says so.
        """
        histories, reasons_without = self.histories(trajectory)
        reasons = _untrained(trajectory, histories, reasons_without)
        built = BuiltSequences(sequences=[], verdict=_NO_VERDICT)
        extras = None
        if self.weights is not None:
            extras = token_rewards(trajectory, self.weights)
            built.token_rewards = count_by_name(trajectory, self.weights)
        for history in histories:
            retokenized = not isinstance(history, TokenHistory)
            if retokenized and extras:
                built.unplaced_token_rewards += sum(turn in extras for turn in history.turns)
            sequence = build_sequence(
                trajectory,
                history,
                turn_rewards,
                reasons,
                advantages=self.advantages,
                token_rewards=_NO_EXTRAS if retokenized and extras is not None else extras,
                retokenized=retokenized,
            )
            if sequence is not None:
                self._add(sequence, built, reasons)
        skipped = None if built.sequences else _most_common(reasons)
        built.verdict = Verdict(rollout_id=trajectory.rollout_id, skipped=skipped, completions=tuple(reasons))
        return built

    def _add(self, sequence: TokenSequence, built: BuiltSequences, reasons: list[str | None]) -> None:
        """Add the sequence, or what may be of it."""
        if self.max_tokens is None or len(sequence) <= self.max_tokens:
            built.sequences.append(sequence)
            return
        if self.overflow == "raise":
            raise UsageError(
                f"rollout {sequence.rollout_id}: a sequence of {len(sequence)} tokens, max_tokens is {self.max_tokens};"
                ' allow more, or say overflow="drop" or "truncate"'
            )
        rest = sequence.truncate(self.max_tokens) if self.overflow == "truncate" else None
        for span in sequence.completions[0 if rest is None else len(rest.completions) :]:
            reasons[span.turn] = TOO_LONG
        if rest is None:
            built.dropped.append(sequence)
            return
        built.sequences.append(rest)
        built.truncated += 1
        built.truncated_tokens += len(sequence) - len(rest)
        built.truncated_trained_tokens += sequence.trained_tokens - rest.trained_tokens


_NO_VERDICT: Final = Verdict(rollout_id="", skipped=None)
_NO_EXTRAS: Final[TokenRewards] = {}
"""Rewards of spans of tokens count the tokens that the server sampled, so others have none."""


def _untrained(trajectory: Trajectory, histories: Sequence[History], reasons: Mapping[int, str]) -> list[str | None]:
    """Why completions are in no sequence, whatever their reward is; None for the others. Shape: (turns,)."""
    with_tokens = {turn for history in histories for turn in history.turns}
    return [
        turn.untrained or (None if position in with_tokens else reasons.get(position, NO_IDS))
        for position, turn in enumerate(trajectory.turns)
    ]


def _most_common(reasons: Sequence[str | None]) -> str:
    """Why no sequence came of a trajectory: what most of its completions were skipped for."""
    counts = Counter(reason for reason in reasons if reason is not None).most_common(1)
    return counts[0][0] if counts else NOTHING
