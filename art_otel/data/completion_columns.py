"""Completion columns: which completions of some files an option leaves out, decided from their columns.

Invariant: `CompletionChoice.skip_reason` decides, once for each combination of facts that occurs: of a million turns
there are few. The rows with several models are those that `make_plan` finds.

    model    agent   finish_reason   …        code of a turn ─► facts ─► reason ─► position in REASONS
    policy   -       stop            …        0
    judge    -       stop            …        1                           another model
"""

# pyarrow ships no types.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportAttributeAccessIssue=false, reportUnknownArgumentType=false, reportUnknownParameterType=false

from typing import Any, Final, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from art_otel.data.columns import Columns, Flags, Ints, flags, numbers
from art_otel.data.completions import (
    HOW_SAMPLED,
    NOT_THE_POLICYS,
    CompletionChoice,
    CompletionFacts,
    SeveralModels,
)
from art_otel.data.rewards import UNUSABLE
from art_otel.data.sequences import EMPTY, NO_IDS, TOO_LONG
from art_otel.trajectories import TokensUntrained

_OF_REWARDS: Final = ("no reward", UNUSABLE, "zero variance")
REASONS: Final = (
    *get_args(TokensUntrained), NO_IDS, EMPTY, *_OF_REWARDS, *NOT_THE_POLICYS, *HOW_SAMPLED, TOO_LONG
)  # fmt: skip
"""Reasons of completions."""
CODES: Final = {reason: code for code, reason in enumerate(REASONS)}
"""The position of each reason in REASONS."""


def left_out_turns(read: Columns, completions: CompletionChoice) -> NDArray[np.int32]:
    """Why an option leaves each turn out: a position in REASONS, -1 where none does. Shape: (turns,)."""
    facts, kinds = _facts_of_turns(read)
    reasons = map(completions.skip_reason, facts)
    codes = np.array([-1 if reason is None else CODES[reason] for reason in reasons] or [-1], np.int32)
    return codes[kinds]


def _facts_of_turns(read: Columns) -> tuple[list[CompletionFacts], Ints]:
    """The different facts that completions have, and which of them each turn has. Shape: (turns,)."""
    of_calls = [
        pc.coalesce(read.of_call("request_model"), read.of_call("response_model")),
        *(read.of_call(name) for name in ("agent", "marked_untrained")),
    ]
    columns = [
        *(column.take(pa.array(read.turn_calls)) for column in of_calls),
        read.column("end").take(pa.array(read.turn_rows)),
        read.of_turn("finish_reason"),
        *(read.of_call(name).take(pa.array(read.turn_calls)) for name in ("is_constrained", "has_media")),
    ]
    codes = np.zeros(len(read.turn_calls), np.int64)
    values: list[list[Any]] = []
    for column in columns:
        encoded = column.dictionary_encode()
        values.append([*encoded.dictionary.to_pylist(), None])
        codes = codes * len(values[-1]) + numbers(encoded.indices, len(values[-1]) - 1)
    distinct, kinds = np.unique(codes, return_inverse=True)
    facts: list[CompletionFacts] = []
    for code in distinct.tolist():
        fields: list[Any] = []
        for of_column in reversed(values):
            code, position = divmod(code, len(of_column))  # noqa: PLW2901 # the digits of the code, the last one first
            fields.append(of_column[position])
        facts.append(CompletionFacts(*reversed(fields)))
    return facts, kinds.astype(np.int64)


def several_models(
    read: Columns, is_rewarded: Flags, left_out: NDArray[np.int32], trained_version: str | None
) -> SeveralModels:
    """The rows with completions of several models among those that would be trained, as `make_plan` finds them."""
    several = SeveralModels(trained_version)
    others = [CODES[reason] for reason in NOT_THE_POLICYS]
    trained = is_rewarded & ~np.isin(left_out, others) & flags(read.tokens_untrained.is_null())
    models = pc.coalesce(read.of_call("request_model"), read.of_call("response_model")).dictionary_encode()
    of_turns = numbers(models.indices, -1)[read.turn_calls]
    is_known = trained & (of_turns >= 0)
    rows = read.turn_rows[is_known]
    largest, smallest = np.full(read.rows, -1), np.full(read.rows, len(models.dictionary))
    np.maximum.at(largest, rows, of_turns[is_known])
    np.minimum.at(smallest, rows, of_turns[is_known])
    names = models.dictionary.to_pylist()
    for row in np.flatnonzero((largest >= 0) & (largest != smallest)).tolist():  # few: they are looked at one by one
        turns = slice(int(read.turn_ends[row]), int(read.turn_ends[row + 1]))
        several.add(row, [names[model] for model in of_turns[turns][is_known[turns]].tolist()])
    return several
