"""Plain: a trajectory as JSON values, for people and programs that read text.

Invariant: nothing that was recorded is left out and nothing is rounded; packed ids and logprobs become lists, bytes
become base64 text.
"""

from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any, cast

import msgspec

from art_otel.calls import Logprobs, TokenIds
from art_otel.trajectories.model import Trajectory


def trajectory_json(trajectory: Trajectory) -> dict[str, Any]:
    """The whole trajectory with `complete` beside it; keys are the field names."""
    names = [field.name for field in fields(trajectory) if field.name != "result"]
    plain = {name: _plain(getattr(trajectory, name)) for name in names}
    return {**plain, "complete": trajectory.complete}


def _plain(value: object) -> object:
    if isinstance(value, TokenIds | Logprobs):
        return value.tolist()
    if isinstance(value, msgspec.Struct):
        return {name: _plain(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in cast(Mapping[str, object], value).items()}
    if isinstance(value, tuple | list):
        return [_plain(item) for item in cast(Iterable[object], value)]
    return msgspec.to_builtins(value)
