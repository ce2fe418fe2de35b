"""DataProto: rollouts that were exported, as verl's trainers and its functions for advantages take them.

    data = load_rollouts("out/verl-rollouts.parquet")

Needs verl, which art-otel-verl itself does not depend on.
"""

# verl and torch are not installed where the types are checked, and pyarrow ships no types.
# pyright: reportMissingImports=false, reportMissingTypeStubs=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownParameterType=false

from pathlib import Path
from typing import Final

import pyarrow.parquet as pq

from art_otel.errors import UsageError
from art_otel_verl.padding import pad_rollouts
from art_otel_verl.schemas import ROLLOUTS

try:
    import torch
    from verl import DataProto
except ImportError as missing:
    raise ImportError("art_otel_verl.data_proto needs verl: install it as verl's documentation says") from missing

_NAMES: Final = ("uid", "rollout_id", "policy_version")


def load_rollouts(
    path: str | Path, *, prompt_length: int | None = None, response_length: int | None = None, pad_token_id: int = 0
) -> DataProto:
    """The rows of a file of the format `rollouts`: tensors as `pad_rollouts` pads them; `uid`, `rollout_id` and
    `policy_version` as arrays of objects. `rollout_log_probs`, `rm_scores` and `advantages` are there only if every row
    has them. Raises UsageError for rows that are longer than the lengths, for no rows and for another file.
    """  # noqa: D205 # names of tensors read better in one piece
    table = pq.read_table(path)
    if missing := [name for name in ROLLOUTS.schema.names if name not in table.column_names]:
        raise UsageError(
            f"{path}: has no {', '.join(missing)}; give a file of `art-otel export --to verl --format rollouts`"
        )
    rows = table.to_pylist()
    arrays = pad_rollouts(rows, prompt_length=prompt_length, response_length=response_length, pad_token_id=pad_token_id)
    tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
    return DataProto.from_dict(tensors=tensors, non_tensors={name: [row[name] for row in rows] for name in _NAMES})
