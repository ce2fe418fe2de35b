"""Retokenizing: token ids for completions of which no server gave any, made by the policy's chat template.

Optional: nothing here is loaded unless a tokenizer is given.
"""

from collections.abc import Mapping, Sequence

from art_otel.data.retokenize.chat_template import ChatTemplate
from art_otel.data.retokenize.histories import RetokenizedHistories, RetokenizedHistory, Skipped, retokenize
from art_otel.data.sequences.builder import HistorySource
from art_otel.data.sequences.sequence import History
from art_otel.data.tokenizer import ChatTokenizer
from art_otel.trajectories import Trajectory, text_only_histories, token_histories

__all__ = [
    "ChatTemplate",
    "RetokenizedHistories",
    "RetokenizedHistory",
    "Skipped",
    "retokenize",
    "retokenizing_histories",
]


def retokenizing_histories(tokenizer: ChatTokenizer) -> HistorySource:
    """The token histories of the server, and behind them those that the tokenizer makes of what has no ids.

    Raises UsageError for a tokenizer without a chat template, and for what is no tokenizer.
    """
    template = ChatTemplate(tokenizer)

    def histories(trajectory: Trajectory) -> tuple[Sequence[History], Mapping[int, str]]:
        recorded, without_ids = token_histories(trajectory), text_only_histories(trajectory)
        if not without_ids:
            return recorded, {}
        retokenized = retokenize(trajectory, template, without_ids)
        return (*recorded, *retokenized.histories), {
            turn: each.reason for each in retokenized.skipped for turn in each.turns
        }

    return histories
