"""Schemas: the file of each format, by its columns.

Conversations are columns of the type JSON, which `datasets` (4.7 and later) decodes to the same objects: as structs,
Arrow would fill every message and all arguments with the keys of the others, as nulls. Tools are JSON in text, which
TRL decodes itself.
"""

# pyarrow ships no types.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from typing import Final

import pyarrow as pa

from art_otel.exporting import ParquetFile
from art_otel_trl.config import Layout

_ORIGIN: Final = [("rollout_id", pa.string()), ("group_id", pa.string()), ("reward", pa.float64())]

SFT: Final = ParquetFile(
    pa.schema(
        [
            ("input_ids", pa.list_(pa.int32())),
            ("labels", pa.list_(pa.int32())),
            *_ORIGIN,
            ("policy_version", pa.string()),
        ]
    )
)
GRPO: Final = ParquetFile(
    pa.schema(
        [
            ("prompt_ids", pa.list_(pa.int32())),
            ("completion_ids", pa.list_(pa.int32())),
            ("env_mask", pa.list_(pa.int8())),
            ("logprobs", pa.list_(pa.float32())),
            *_ORIGIN,
            ("policy_version", pa.string()),
            ("training_step", pa.int64()),
        ]
    )
)
DPO: Final = ParquetFile(
    pa.schema(
        [
            ("prompt", pa.json_()),
            ("chosen", pa.json_()),
            ("rejected", pa.json_()),
            ("tools", pa.string()),
            ("group_id", pa.string()),
            ("chosen_rollout_id", pa.string()),
            ("rejected_rollout_id", pa.string()),
            ("chosen_reward", pa.float64()),
            ("rejected_reward", pa.float64()),
        ]
    )
)


def chat_file(layout: Layout) -> ParquetFile:
    """The file of `chat`."""
    talk = ("messages",) if layout == "messages" else ("prompt", "completion")
    return ParquetFile(pa.schema([*((name, pa.json_()) for name in talk), ("tools", pa.string()), *_ORIGIN]))
