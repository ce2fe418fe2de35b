"""Payloads: experiences as the bytes that Trinity-RFT's `Experience.deserialize_many` reads.

Invariant: equal experiences give equal bytes. The pickled part holds values of Python's own types only. A payload holds
the experiences of one task, in the order of its runs.

Source: `Experience.serialize_many` of Trinity-RFT 0.6.0, version 1: `TRXP`, the version as a byte, the lengths of both
parts as 8 bytes each, little-endian; a pickle of the fields; a safetensors file of the arrays, named `{index}:{field}`.
"""

import io
import pickle
import struct
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save

from art_otel.exporting import ExportStats, ScoredTrajectory, SpillFile
from art_otel_trinity.experiences import ExperiencesConfig, TrinityExperience, TrinityTask, encode_runs

_NAME: Final = "payloads/{:06d}.trxp"
_MAGIC: Final = b"TRXP"
_VERSION: Final = 1
_PICKLE: Final = 5  # of Python 3.8 and later
_FIELDS: Final = ("reward", "truncate_status", "prompt_length", "response_text", "messages", "tools")
_ARRAYS: Final = ("tokens", "logprobs", "token_level_reward", "advantages", "action_mask")


def encode_payloads(
    items: Iterator[ScoredTrajectory], config: ExperiencesConfig, stats: ExportStats
) -> Iterator[tuple[str, bytes]]:
    """Yield a payload for each task, in the order of their first runs.

    Experiences wait on disk. Only those of one task are in memory.
    """
    tasks: dict[TrinityTask, list[int]] = {}
    with SpillFile[list[TrinityExperience]]() as spilled:
        for number, experiences in enumerate(encode_runs(items, config, stats)):
            if experiences:
                eid = experiences[0].eid
                tasks.setdefault((eid.batch, eid.task), []).append(number)
                spilled[number] = experiences
        for task_number, numbers in enumerate(tasks.values()):
            yield _NAME.format(task_number), to_bytes([one for number in numbers for one in spilled[number]])


def to_bytes(experiences: Sequence[TrinityExperience]) -> bytes:
    """The payload of the experiences, in their order."""
    items = [_item(experience) for experience in experiences]
    fields = _pickled({"version": _VERSION, "num_items": len(items), "items": items})
    arrays = save({name: array for position, one in enumerate(experiences) for name, array in _arrays(position, one)})
    return _MAGIC + struct.pack("<BQQ", _VERSION, len(fields), len(arrays)) + fields + arrays


def _item(experience: TrinityExperience) -> dict[str, Any]:
    return {
        "eid": asdict(experience.eid),
        **{name: getattr(experience, name) for name in _FIELDS},
        "info": dict(experience.info),
        "metrics": dict(experience.metrics),
        "custom_fields": [],
        "multi_modal_input_keys": [],
    }


def _arrays(position: int, experience: TrinityExperience) -> Iterator[tuple[str, NDArray[Any]]]:
    for name in _ARRAYS:
        array: NDArray[Any] | None = getattr(experience, name)
        if array is not None:
            yield f"{position}:{name}", np.ascontiguousarray(array)
    if experience.advantages is not None:
        # Trinity's own advantages without a critic are the returns too.
        yield f"{position}:returns", np.ascontiguousarray(experience.advantages)


def _pickled(value: object) -> bytes:
    """A pickle without references between equal parts. They would depend on which of the parts are one object."""
    buffer = io.BytesIO()
    pickler = pickle.Pickler(buffer, _PICKLE)
    pickler.fast = True
    pickler.dump(value)
    return buffer.getvalue()
