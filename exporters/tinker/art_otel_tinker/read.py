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
    """The records of the file, as `tinker.Datum`. Raises ImportError without tinker, ValueError for another file."""
    with Path(path).open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            try:
                datum = _datum(json.loads(line))
            except (KeyError, TypeError, ValueError) as error:
                raise ValueError(
                    f"{path}:{number}: {error!r}; give a file of `art-otel export --to tinker --format datums`"
                ) from error
            yield datum


def _datum(record: dict[str, Any]) -> Any:  # noqa: ANN401 # tinker's class
    from tinker import Datum, ModelInput, TensorData  # noqa: PLC0415 # not installed where exports are only written

    inputs = {
        name: TensorData(
            data=record[name], dtype="int64" if name == "target_tokens" else "float32", shape=[len(record[name])]
        )
        for name in _INPUTS
        if name in record
    }
    return Datum(model_input=ModelInput.from_ints(record["model_input"]), loss_fn_inputs=inputs)
