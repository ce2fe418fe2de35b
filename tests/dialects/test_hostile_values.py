"""Whatever stands where a real client wrote something else, nothing raises."""

import json
from functools import cache
from pathlib import Path
from random import Random

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from art_otel.conventions import parse_call, role_of, tool_facts
from art_otel.sources import FileStats, find_inputs, read_file
from art_otel.spans import Span
from tests.examples import examples

HERE = Path(__file__).parent
SMALL = (None, True, -1, 2**70, 1.5, "", "x", "{", [], {}, [[]], [{}], ["x"], [None], {"a": 1}, [[{"lc": 1}]])
ALIKE = (
    *({"type": "text"}, {"type": []}, {"type": "function_call"}, {"type": "x", "data": {}}, {"role": "user"}),
    *({"lc": 1}, {"kind": 3}, {"text": 5}, {"parts": [1]}, {"functionCall": []}, {"generations": [[]]}),
)


@cache
def recorded() -> list[Span]:
    inputs = [source for path in sorted(HERE.glob("*.jsonl")) for source in find_inputs([path])]
    return [one for source in inputs for one in read_file(source, FileStats()) if isinstance(one, Span)]


def spoiled(value, random: Random):
    """The value with something else at one place in it."""
    if isinstance(value, dict) and value and random.random() < 0.8:
        name = random.choice(list(value))
        return {**value, name: spoiled(value[name], random)}
    if isinstance(value, list) and value and random.random() < 0.8:
        position = random.randrange(len(value))
        return [spoiled(inner, random) if at == position else inner for at, inner in enumerate(value)]
    return random.choice(SMALL + ALIKE)


def spoiled_attribute(value, random: Random):
    if not isinstance(value, str) or not value.startswith(("[", "{")):
        return random.choice(SMALL)
    try:
        return json.dumps(spoiled(json.loads(value), random))
    except ValueError:
        return value


@settings(deadline=None, max_examples=examples(5000))
@given(st.randoms(use_true_random=False))
def test_no_spoiled_value_raises(random):
    span = random.choice(recorded())
    attributes = dict(span.attributes)
    for name in random.sample(list(attributes), min(len(attributes), 3)):
        attributes[name] = spoiled_attribute(attributes[name], random)
    one = msgspec.structs.replace(span, attributes=attributes)
    role_of(one)
    tool_facts(one)
    call = parse_call(one)
    msgspec.json.encode([call.parameters, list(call.tools or ()), call.input_messages])
