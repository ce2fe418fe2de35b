"""A trainer: GRPOTrainer that trains every history of a rollout, where TRL's own takes one row for a prompt.

Invariant: a further history is a row of the micro-batch that its rollout's first row is in, with the same advantage.
Rewards, baselines and advantages are TRL's, of one row a rollout. A loss over tokens (`dapo`, the default) is divided
by the trained tokens of all rows.

    HistoriesGRPOTrainer(model, rollout_func=LiveRollouts(play).rollout_func, reward_funcs=recorded_reward, …)

Needs TRL, which art-otel-trl itself does not depend on. Source: `GRPOTrainer` of TRL 1.16 and 1.14.
"""

# TRL and torch are not installed where the types are checked.
# pyright: reportMissingImports=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUntypedBaseClass=false, reportUnknownParameterType=false

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

from art_otel.errors import UsageError
from art_otel.exporting import Row
from art_otel_trl.rollouts import LiveRollouts

try:
    import torch
    from torch.nn.utils.rnn import pad_sequence
    from trl import GRPOTrainer
except ImportError as missing:
    raise ImportError("art_otel_trl.trainer needs TRL: pip install trl") from missing

FURTHER: Final = "further_rows"
"""The entry of a batch with the further rows of each row: TRL shuffles and splits it as it does tensors."""

_REFUSED: Final = {
    "ref_per_token_logps": "beta=0.0",
    "old_per_token_logps": "num_iterations=1, and no more steps_per_generation than gradient_accumulation_steps",
    "importance_sampling_ratio": "vllm_importance_sampling_correction=False",
}
"""What TRL computes of each row before the loss, and has for first rows alone; and how to do without."""


class HistoriesGRPOTrainer(GRPOTrainer):
    """GRPOTrainer with the rows of all histories. Its `rollout_func` is that of a `LiveRollouts`.

    Raises UsageError in the first step for another `rollout_func`, and for a configuration in which TRL needs more of a
    row than its tokens.
    """

    takes_further_rows: ClassVar = True

    def _generate_and_score_completions(self, inputs: Any) -> dict[str, Any]:  # noqa: ANN401 # TRL's
        live = getattr(self.rollout_func, "__self__", None)
        if not isinstance(live, LiveRollouts):
            raise UsageError(
                f"rollout_func: {self.rollout_func!r:.100}; give the rollout_func of a LiveRollouts itself"
            )
        batch = super()._generate_and_score_completions(inputs)
        if found := [setting for name, setting in _REFUSED.items() if name in batch]:
            raise UsageError(f"HistoriesGRPOTrainer: further histories are trained only with {' and '.join(found)}")
        tokens = torch.tensor(sum(sum(row["env_mask"]) for rows in live.further for row in rows))
        added = self.accelerator.gather(tokens.to(batch["num_items_in_batch"].device)).sum()
        return batch | {FURTHER: live.further, "num_items_in_batch": batch["num_items_in_batch"] + added}

    def compute_loss(self, model: Any, inputs: Mapping[str, Any], *arguments: Any, **named: Any) -> Any:  # noqa: ANN401 # as above
        """TRL's loss, over the first and the further rows."""
        batch = {name: value for name, value in inputs.items() if name != FURTHER}
        whole = _with_rows(batch, inputs[FURTHER], self.processing_class.pad_token_id)
        return super().compute_loss(model, whole, *arguments, **named)


def _with_rows(batch: dict[str, Any], further: Sequence[Sequence[Row]], pad_token_id: int) -> dict[str, Any]:
    """The batch with the further rows behind its own. Prompts are padded at their start, completions at their end."""
    rows = [row for rest in further for row in rest]
    if not rows:
        return batch
    first = [place for place, rest in enumerate(further) for _ in rest]
    unknown = math.nan  # as TRL writes a logprob that nobody has
    logprobs = [[unknown if logprob is None else logprob for logprob in row["logprobs"]] for row in rows]
    columns = {
        "prompt_ids": ([row["prompt_ids"] for row in rows], pad_token_id, "left"),
        "prompt_mask": ([[1] * len(row["prompt_ids"]) for row in rows], 0, "left"),
        "completion_ids": ([row["completion_ids"] for row in rows], pad_token_id, "right"),
        "completion_mask": ([[1] * len(row["completion_ids"]) for row in rows], 0, "right"),
        "tool_mask": ([row["env_mask"] for row in rows], 1, "right"),
        "sampling_per_token_logps": (logprobs, 0.0, "right"),
    }
    padded = {name: _stack(batch[name], *column) for name, column in columns.items()}
    return batch | padded | {"advantages": torch.cat([batch["advantages"], batch["advantages"][first]])}


def _stack(rows: Any, added: Sequence[Sequence[float]], padding: float, side: str) -> Any:  # noqa: ANN401 # a tensor
    """Rows of shape (rows, width), and the added ones."""
    further = [torch.tensor(row, dtype=rows.dtype, device=rows.device) for row in added]
    return pad_sequence([*rows, *further], batch_first=True, padding_value=padding, padding_side=side)
