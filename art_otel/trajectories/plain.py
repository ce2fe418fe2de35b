"""Plain: a trajectory as JSON values, for people and programs that read text.

Invariant: nothing that was recorded is left out and nothing is rounded; packed ids and logprobs become lists, bytes
become base64 text.
"""

from dataclasses import replace
from typing import Any

import msgspec

from art_otel.calls import Logprobs, TokenIds
from art_otel.trajectories.trajectory import Trajectory


def trajectory_json(trajectory: Trajectory) -> dict[str, Any]:
    """The whole trajectory with `complete` beside it; keys are the field names."""
    fields: dict[str, Any] = msgspec.to_builtins(replace(trajectory, result=None), enc_hook=_unpack)
    del fields["result"]
    return {**fields, "complete": trajectory.complete}


def _unpack(value: object) -> object:
    if isinstance(value, TokenIds | Logprobs):
        return value.tolist()
    raise NotImplementedError(f"a trajectory holds no {type(value).__name__}")
