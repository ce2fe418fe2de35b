"""Case: one damaged dump, made from a target's name and a number."""

import json
import random

from tests.fuzz.byte_damage import MAX_BYTES, damage_bytes
from tests.fuzz.corpus import MIXTURES, TARGETS, dumps_of
from tests.fuzz.json_damage import damage_json
from tests.fuzz.mixtures import mix
from tests.fuzz.parquet_damage import damage_parquet
from tests.fuzz.protobuf_damage import damage_protobuf

DAMAGES = {"json": damage_json, "protobuf": damage_protobuf, "parquet": damage_parquet, "bytes": damage_bytes}
BYTES_SHARE = {"json": 0.25, "protobuf": 0.4, "parquet": 0.4, "bytes": 1}
"""How often the bytes are damaged and not the structure."""


def make_case(target: str, number: int) -> bytes:
    """The bytes of a case, the same in every run."""
    chance = random.Random(f"{target}/{number}")
    if target == MIXTURES:
        data = mix(chance)
        return damage_json(data, [], chance) if chance.random() < 0.5 else data
    dumps, structure = dumps_of(target), TARGETS[target].structure
    damage = damage_bytes if chance.random() < BYTES_SHARE[structure] else DAMAGES[structure]
    data = damage(chance.choice(dumps), dumps, chance)
    if structure != "bytes" and chance.random() < 0.05:
        data = damage_bytes(data, dumps, chance)
    return data[:MAX_BYTES]


def reordered(target: str, data: bytes) -> bytes:
    """The same records in another order, where a dump holds one sound request a line; else the dump as it is."""
    if target != MIXTURES:
        return data
    try:
        lines = [line for line in data.split(b"\n") if line]
        for line in lines:
            json.loads(line)
    except (ValueError, RecursionError):
        return data
    return b"\n".join(reversed(lines))
