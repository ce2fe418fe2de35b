"""Strings and brackets of JSON, found without decoding it, so that bad JSON can be taken apart.

Invariant: one pass, no recursion, a byte a level; nothing raises for any bytes.
"""

import re
from itertools import islice
from typing import Final

TOKEN: Final = re.compile(rb'"(?:[^"\\]++|\\.?)*+"?|[{}\[\]]', re.DOTALL)
"""A string, possibly without its end, or a bracket."""

CLOSER_OF: Final = {ord("{"): ord("}"), ord("["): ord("]")}
OPENER_OF: Final = {closer: opener for opener, closer in CLOSER_OF.items()}

COLON: Final = re.compile(rb"\s*+:")


def object_end(data: bytes, start: int, limit: int) -> int | None:
    """Where the object that begins at `start` ends; None when its brackets do not match up to `limit`."""
    nest = bytearray()
    for token in TOKEN.finditer(data, start, limit):
        byte = data[token.start()]
        if byte in CLOSER_OF:
            nest.append(byte)
        elif byte in OPENER_OF:
            if nest.pop() != OPENER_OF[byte]:
                return None
            if not nest:
                return token.end()
    return None


def object_keys(data: bytes, start: int, limit: int, most: int | None = None) -> frozenset[bytes]:
    """The names in the object that begins at `start`, as far as they stand before `limit`; without its inner ones.

    `most` is how many tokens are looked at.
    """
    keys: set[bytes] = set()
    depth = 0
    for token in islice(TOKEN.finditer(data, start, limit), most):
        byte = data[token.start()]
        if byte in CLOSER_OF:
            depth += 1
        elif byte in OPENER_OF:
            depth -= 1
            if depth <= 0:
                break
        elif depth == 1 and COLON.match(data, token.end()):
            keys.add(token.group()[1:-1])
    return frozenset(keys)
