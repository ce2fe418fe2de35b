"""Schemas: the file of each format, by its columns.

Each has an explicit schema, so that files of several exports fit together. A tool is JSON in text: as structs, Arrow
would fill the parameters of each tool with those of all others, as nulls.
"""

# pyarrow ships no types.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from typing import Final

import pyarrow as pa

from art_otel.exporting import ParquetFile

_CALL: Final = pa.struct(
    [
        ("id", pa.string()),
        ("type", pa.string()),
        ("function", pa.struct([("name", pa.string()), ("arguments", pa.string())])),
    ]
)
_MESSAGE: Final = pa.struct(
    [
        ("role", pa.string()),
        ("content", pa.string()),
        ("reasoning_content", pa.string()),
        ("tool_calls", pa.list_(_CALL)),
        ("tool_call_id", pa.string()),
        ("name", pa.string()),
        ("train", pa.bool_()),
    ]
)

SFT: Final = ParquetFile(
    pa.schema(
        [
            ("messages", pa.list_(_MESSAGE)),
            ("tools", pa.list_(pa.string())),
            ("rollout_id", pa.string()),
            ("group_id", pa.string()),
            ("reward", pa.float64()),
        ]
    )
)
ROLLOUTS: Final = ParquetFile(
    pa.schema(
        [
            ("prompts", pa.list_(pa.int32())),
            ("responses", pa.list_(pa.int32())),
            ("response_mask", pa.list_(pa.int8())),
            ("rollout_log_probs", pa.list_(pa.float32())),
            ("rm_scores", pa.list_(pa.float32())),
            ("advantages", pa.list_(pa.float32())),
            ("uid", pa.string()),
            ("rollout_id", pa.string()),
            ("policy_version", pa.string()),
        ]
    )
)
PROMPTS: Final = ParquetFile(
    pa.schema(
        [
            ("data_source", pa.string()),
            ("prompt", pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))),
            ("ability", pa.string()),
            ("reward_model", pa.struct([("style", pa.string()), ("ground_truth", pa.string())])),
            (
                "extra_info",
                pa.struct(
                    [
                        ("index", pa.int64()),
                        ("split", pa.string()),
                        ("group_id", pa.string()),
                        ("rollout_id", pa.string()),
                    ]
                ),
            ),
        ]
    )
)
