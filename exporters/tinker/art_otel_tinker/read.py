"""Read: the JSONL of `datums` as the objects that tinker trains on. Needs tinker, and nothing of art-otel.

Invariant: an input of the loss is float32, the target tokens are int64, as `assemble_training_data` has them.
"""

# tinker is not installed where types are checked.
# pyright: reportMissingImports=false, reportUnknownVariableType=false, reportUnknownMemberType=false

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

_INPUTS: Final = ("target_tokens", "logprobs", "advantages", "mask")


def read_datums(path: str | Path) -> Iterator[Any]:
    """The records of the file, as `tinker.Datum`. Raises ImportError without tinker."""
    from tinker import Datum, ModelInput, TensorData  # noqa: PLC0415 # not installed where exports are only written

    with Path(path).open(encoding="utf-8") as lines:
        for line in lines:
            record = json.loads(line)
            inputs = {
                name: TensorData(
                    data=record[name],
                    dtype="int64" if name == "target_tokens" else "float32",
                    shape=[len(record[name])],
                )
                for name in _INPUTS
                if name in record
            }
            yield Datum(model_input=ModelInput.from_ints(record["model_input"]), loss_fn_inputs=inputs)
