"""Batches: what trainers compute on, as numpy arrays.

The package can be called: `art_otel.batches(paths, …)` is `art_otel.batches.batches(paths, …)`, because importing it
gives it that name in `art_otel`, whatever else bore it.
"""

import sys
from types import ModuleType

from art_otel.batches.advantages import Advantages, Rewards, centred, dr_grpo, grpo, reinforce, rloo, step_level
from art_otel.batches.batch import Batch
from art_otel.batches.credit import Credit, TurnRewards, discounted, final, per_call, step_wise, weighted, whole
from art_otel.batches.options import ADVANTAGES, batches
from art_otel.batches.reading import Batches, State
from art_otel.batches.report import BatchReport

__all__ = [
    "ADVANTAGES",
    "Advantages",
    "Batch",
    "BatchReport",
    "Batches",
    "Credit",
    "Rewards",
    "State",
    "TurnRewards",
    "batches",
    "centred",
    "discounted",
    "dr_grpo",
    "final",
    "grpo",
    "per_call",
    "reinforce",
    "rloo",
    "step_level",
    "step_wise",
    "weighted",
    "whole",
]


class _Room(ModuleType):
    """A module that can be called."""

    __call__ = staticmethod(batches)


sys.modules[__name__].__class__ = _Room
