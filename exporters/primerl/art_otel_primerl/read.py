"""Read: the JSONL of `samples` as the objects that prime-rl packs. Needs prime-rl, and nothing of art-otel.

Invariant: a sample is made by the names of its fields, so it does not depend on their order, which is the wire's.
"""

# prime-rl is not installed where types are checked.
# pyright: reportMissingImports=false, reportUnknownVariableType=false, reportUnknownMemberType=false

import base64
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

_FIELDS: Final = ("token_ids", "mask", "logprobs", "temperatures", "env_name", "advantages")


def read_samples(path: str | Path, sample: Callable[..., Any] | None = None) -> Iterator[Any]:
    """The records of the file, as `TrainingSample` of prime-rl, or of what `sample` makes of its fields.

    `routed_experts`, where a record has them, are the fields of prime-rl's `RoutedExperts`: `data` (bytes), `shape`
    ([tokens, layers, experts]) and `dtype`.

    Raises ImportError where prime-rl is not installed and no `sample` is given.
    """
    make = _training_sample() if sample is None else sample
    with Path(path).open(encoding="utf-8") as lines:
        for line in lines:
            record = json.loads(line)
            fields = {name: record[name] for name in _FIELDS if name in record}
            if (experts := record.get("routed_experts")) is not None:
                fields["routed_experts"] = {**experts, "data": base64.b64decode(experts["data"])}
            yield make(**fields)


def _training_sample() -> Callable[..., Any]:
    try:
        from prime_rl.transports.rollouts import types  # noqa: PLC0415 # not installed where one only writes
    except ImportError:
        from prime_rl.transport import types  # noqa: PLC0415 # its place up to 0.8.0

    def make(*, routed_experts: dict[str, Any] | None = None, **fields: object) -> object:
        experts = None if routed_experts is None else types.RoutedExperts(**routed_experts)
        return types.TrainingSample(routed_experts=experts, **fields)

    return make
