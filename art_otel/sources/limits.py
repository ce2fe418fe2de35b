"""Limits: how much one dump may ask of this process before a piece of it is set aside as "over a limit"."""

import msgspec


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Sizes are bytes after decompression.

    `max_message_bytes` bounds one line, object or protobuf message, `max_document_bytes` a format that must be read
    whole (a pretty-printed JSON document). `max_depth` counts lists and dicts inside each other in one attribute value;
    32 is what every protobuf reader can take (it stops at 100 messages inside each other, which is 32 dicts in an
    event).
    `max_parquet_memory` is what the process that reads a Parquet file may hold.
    """

    max_message_bytes: int = 256 << 20
    max_document_bytes: int = 512 << 20
    max_decompressed_bytes: int = 1 << 40
    max_depth: int = 32
    max_parquet_memory: int = 800 << 20
