"""Quarantined to bytes: flips, cuts, repeats, insertions and splices."""

import random

from tests.fuzz.hostile import FRAGMENTS

Chance = random.Random
MAX_BYTES = 1_500_000
FLOODS = (10_000, 100_000, 1_000_000)


def damage_bytes(data: bytes, others: list[bytes], chance: Chance) -> bytes:
    """The data with one to six pieces of damage. `others` are dumps to splice with."""
    for _ in range(chance.choice((1, 1, 1, 2, 3, 6))):
        data = _damage_once(data, others, chance)[:MAX_BYTES]
    return data


def _damage_once(data: bytes, others: list[bytes], chance: Chance) -> bytes:
    at = chance.randrange(len(data) + 1)
    if chance.random() < 0.02:
        return data[:at] + _flood(data, chance) + data[at:]
    end = min(len(data), at + chance.choice((1, 2, 4, 16, 100, 1_000, 10_000)))
    match chance.randrange(8):
        case 0:
            return data[:at] + bytes([chance.randrange(256)]) + data[at + 1 :]
        case 1:
            flipped = bytes(byte ^ (1 << chance.randrange(8)) for byte in data[at : at + 1])
            return data[:at] + flipped + data[at + 1 :]
        case 2:
            return data[:at] if chance.random() < 0.5 else data[at:]
        case 3:
            return data[:at] + data[end:]
        case 4:
            return data[:end] + data[at:end] * chance.choice((1, 1, 2, 20)) + data[end:]
        case 5:
            return data[:at] + chance.choice(FRAGMENTS) + data[end if chance.random() < 0.3 else at :]
        case 6:
            other = chance.choice(others)
            return data[:at] + other[chance.randrange(len(other) + 1) :]
        case _:
            return data[:at] + bytes(reversed(data[at:end])) + data[end:]


def _flood(data: bytes, chance: Chance) -> bytes:
    """One short piece over and over: what a reader looks at twice for each time it comes takes too long here."""
    at = chance.randrange(len(data) + 1)
    piece = chance.choice((chance.choice(FRAGMENTS), data[at : at + chance.choice((1, 4, 16, 60, 300))])) or b" "
    return piece * (chance.choice(FLOODS) // len(piece))
