"""Aws: messages of AWS's event streams.

Source of the format: https://docs.aws.amazon.com/lexv2/latest/dg/event-stream-encoding.html
"""

import json
import struct
import zlib
from typing import Final

EVENT_STREAM: Final = "application/vnd.amazon.eventstream"


def event(kind: str, payload: dict) -> bytes:
    """One message: lengths and their checksum, headers, JSON, the checksum of all."""
    names = {":event-type": kind, ":content-type": "application/json", ":message-type": "event"}
    headers = b"".join(map(_header, names, names.values()))
    body = json.dumps(payload).encode()
    lengths = struct.pack(">II", 16 + len(headers) + len(body), len(headers))
    message = lengths + struct.pack(">I", zlib.crc32(lengths)) + headers + body
    return message + struct.pack(">I", zlib.crc32(message))


def _header(name: str, value: str) -> bytes:
    is_string = b"\x07"
    return bytes([len(name)]) + name.encode() + is_string + struct.pack(">H", len(value)) + value.encode()
