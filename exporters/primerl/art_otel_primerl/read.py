"""Read: the JSONL of `samples` as the objects that prime-rl packs. This file needs prime-rl, and nothing of art-otel.

Invariant: a sample is made by the names of its fields, so it does not depend on their order, which is the wire's.
"""

import base64
import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, Final

_NEWER_PLACES: Final = ("prime_rl.transports.batch.types", "prime_rl.transports.rollouts.types")
_FIELDS: Final = ("token_ids", "mask", "logprobs", "temperatures", "env_name", "advantages")


def read_samples(path: str | Path, sample: Callable[..., Any] | None = None) -> Iterator[Any]:
    """Read the records of a file as `TrainingSample` of prime-rl, or as what `sample` makes of their fields.

    `routed_experts`, where a record has them, are the fields of prime-rl's `RoutedExperts`: `data` (bytes), `shape`
    ([tokens, layers, experts]) and `dtype`. `sampling_mask` are those of its `SamplingMask`: `ids` and `counts`, bytes
    of int32.

    Raises ImportError if prime-rl is not installed and no `sample` is given. Raises ValueError for another file, and
    for a record with a sampling mask if this prime-rl has no place for it.
    """
    make = _training_sample() if sample is None else sample
    with Path(path).open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            try:
                fields = _fields(json.loads(line))
            except (KeyError, TypeError, ValueError) as error:
                raise ValueError(
                    f"{path}:{number}: {error!r}; give a file of `art-otel export --to primerl`"
                ) from error
            yield make(**fields)


def _fields(record: dict[str, Any]) -> dict[str, Any]:
    fields = {name: record[name] for name in _FIELDS if name in record or name != "advantages"}
    if (experts := record.get("routed_experts")) is not None:
        fields["routed_experts"] = {**experts, "data": base64.b64decode(experts["data"])}
    if (masks := record.get("sampling_mask")) is not None:
        fields["sampling_mask"] = {name: base64.b64decode(data) for name, data in masks.items()}
    return fields


def _training_sample() -> Callable[..., Any]:
    types: Any = _types()

    def make(
        *, routed_experts: dict[str, Any] | None = None, sampling_mask: dict[str, Any] | None = None, **fields: object
    ) -> object:
        if routed_experts is not None:
            fields["routed_experts"] = types.RoutedExperts(**routed_experts)
        if sampling_mask is not None:
            if not hasattr(types, "SamplingMask"):  # its logprobs are of the tokens in the mask only
                raise ValueError(
                    "this prime-rl does not replay sampling masks: take one with pull request 3431, or convert without"
                    " --token-facts sampling_mask"
                )
            fields["sampling_mask"] = types.SamplingMask(**sampling_mask)
        return types.TrainingSample(**fields)

    return make


def _types() -> ModuleType:
    """The module of prime-rl's types, which has moved twice since 0.8.0."""
    for name in _NEWER_PLACES:
        with suppress(ImportError):
            return import_module(name)
    return import_module("prime_rl.transport.types")
