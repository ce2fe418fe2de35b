"""Hostile values: what no convention expects, as JSON tokens and as bytes."""

import random

from tests.fuzz.names import EVENT_NAMES, NAMES

Chance = random.Random

DEPTHS = (33, 40, 500, 10_000)
NUMBERS = (
    "0", "-0", "-1", "1e999", "-1e999", "NaN", "Infinity", "-Infinity", "1.5",
    "1e-400", "00", "0x10", "1_0", str(2**31), str(2**53 + 1), str(2**63), str(2**64 - 1), str(2**70), str(-(2**63)),
    "9" * 400, "9" * 5_000, "253402300800000000000", "-1795187348240205707",
)  # fmt: skip
STRINGS = (
    '""', '" "', '"\\u0000"', '"\\ud800"', '"\\udc00\\ud800"', '"\\ud83d\\ude00"', '"\ufeff"', '"\u202e../../x"',
    '"NaN"', '"1e999"', '"0"', '"-5"', '"true"', '"null"', '"[]"', '"{}"', '"["', '"{\\"a\\":"', '"[null]"',
    '"i4:1:AAAAAA=="', '"i4:1://///w=="', '"f4:1:AADAfw=="', '"i4:-1:"', '"i4:0:"', '"f4:0:"',
    '"i4:\\u0661:AAAAAA=="', '"00000000000000000000000000000000"', '"0000000000000001"', '"ffffffffffffffff"',
    '"0x1"', '"AAAAAAAAAAA="', '"chat"', '"embeddings"', '"rollout x"', '"step 1"', '"reward y"', '"invoke_agent z"',
    '"LLM"', '"AGENT"', '"user"', '"assistant"', '"tool"', '"system"', '"2026-01-01T00:00:00Z"',
    '"9999-12-31T23:59:59.999999999Z"', '"0001-01-01 00:00:00"', '"\\u0661\\u0662"', '"\u00b2"',
)  # fmt: skip
OTHERS = ("null", "true", "false", "[]", "{}", "[[]]", "[{}]", "[null]", '{"":null}', '{"a":1,"a":2}', "[1,2]", '["a"]')


def value(chance: Chance) -> str:
    """One JSON value, or what pretends to be one, as text."""
    kind = chance.randrange(12)
    if kind == 0:
        return deep(chance)
    if kind == 1:
        return '"' + chance.choice("a\u00e9\U0001f600") * chance.choice((200, 5_000, 70_000)) + '"'
    if kind == 2:
        return f'"{name(chance)}"'
    return chance.choice(chance.choice((NUMBERS, STRINGS, OTHERS)))


def deep(chance: Chance) -> str:
    """Lists, dicts or OTLP arrays inside each other, sometimes without their ends."""
    opened, closed = chance.choice((("[", "]"), ('{"a":', "}"), ('{"arrayValue":{"values":[', "]}}")))
    depth = chance.choice(DEPTHS)
    inner = {"[": "", '{"a":': "1"}.get(opened, '{"intValue":"1"}')
    return opened * depth + inner + closed * (depth if chance.random() < 0.9 else depth - 1)


def name(chance: Chance) -> str:
    """The name of an attribute or event that conventions look for."""
    return chance.choice(chance.choice((NAMES, EVENT_NAMES)))


FRAGMENTS = (b"\0",
    b"\xff\xfe", b"\xed\xa0\x80", b"\xc0\x80", b"\xf5\x80\x80\x80", b"\xef\xbb\xbf", b"\n", b"\r\n", b"\x1e", b'"',
    b"\\", b"{", b"}", b"[", b"]", b",", b":", b"[" * 10_000, b'{"a":' * 2_000, b"9" * 5_000, b"1e999", b"NaN",
    b'{"resourceSpans":[', b'{"traceID":"', b"\x28\xb5\x2f\xfd", b"\x1f\x8b\x08", b"PAR1", b"\xff" * 10, b"\x80" * 20,
    b"\0" * 4, b"\x7f\xff\xff\xff", b"\0\0\0\1", b"\\ud800", b"\\u0000", b"\x85", b"\xe2\x80\xa8",
)  # fmt: skip
