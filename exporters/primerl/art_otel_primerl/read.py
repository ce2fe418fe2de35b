"""Read: the JSONL of `samples` as the objects that prime-rl packs. Needs prime-rl, and nothing of art-otel.

Invariant: a sample is made by the names of its fields, so it does not depend on their order, which is the wire's.
"""

# prime-rl is not installed where types are checked.
# pyright: reportMissingImports=false, reportUnknownVariableType=false

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

_FIELDS: Final = ("token_ids", "mask", "logprobs", "temperatures", "env_name", "advantages")


def read_samples(path: str | Path, sample: Callable[..., Any] | None = None) -> Iterator[Any]:
    """The records of the file, as `TrainingSample` of prime-rl, or of what `sample` makes of its fields.

    Raises ImportError where prime-rl is not installed and no `sample` is given.
    """
    make = _training_sample() if sample is None else sample
    with Path(path).open(encoding="utf-8") as lines:
        for line in lines:
            record = json.loads(line)
            yield make(**{name: record[name] for name in _FIELDS if name in record})


def _training_sample() -> Callable[..., Any]:
    try:
        from prime_rl.transports.rollouts import TrainingSample  # noqa: PLC0415 # not installed where one only writes
    except ImportError:
        from prime_rl.transport import TrainingSample  # noqa: PLC0415 # its place up to 0.8.0
    return TrainingSample
