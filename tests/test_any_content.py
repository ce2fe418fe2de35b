"""Whatever attributes, events and log records hold, a conversion succeeds and its sums hold (laws 6 and 7)."""

import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.conversions import convert_files
from tests.dumps import attribute, make_span, request_of, write_lines
from tests.examples import examples
from tests.fuzz.names import EVENT_NAMES, NAMES

pytestmark = pytest.mark.long

TEXT = st.text(max_size=8)
NUMBERS = st.one_of(
    st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False, allow_infinity=False), st.sampled_from([2**64, 10**30])
)
JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), NUMBERS, TEXT),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.sampled_from(
                ["role", "parts", "type", "content", "id", "choices", "message", "index", "messages", "model"]
            ),
            inner,
            max_size=3,
        ),
    ),
    max_leaves=8,
)
MESSAGES = st.lists(
    st.fixed_dictionaries(
        {"role": st.sampled_from(["user", "assistant", "tool", "system"])},
        optional={"content": JSON, "parts": JSON, "tool_calls": JSON, "finish_reason": JSON, "name": JSON, "id": JSON},
    ),
    max_size=3,
)
VALUES = st.one_of(
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(),
    TEXT,
    st.lists(TEXT, max_size=3),
    st.one_of(JSON, MESSAGES).map(json.dumps),
    st.sampled_from(["chat", "embeddings", "LLM", "i4:1:AAAAAA==", "i4:x", "f4:1:AAAAAA==", "[", "NaN", "9" * 40]),
)
ATTRIBUTES = st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=10)


def pairs(attributes) -> list[dict]:
    return [{"key": key, "value": attribute(value)} for key, value in attributes.items()]


@st.composite
def spans(draw):
    number = draw(st.integers(1, 9))
    events = draw(st.lists(st.tuples(st.sampled_from(EVENT_NAMES), ATTRIBUTES), max_size=2))
    linked = draw(st.lists(st.integers(1, 9), max_size=1))
    return make_span(
        number,
        draw(st.one_of(st.none(), st.integers(1, 9))),
        trace=draw(st.integers(1, 3)),
        name=draw(st.sampled_from(["rollout x", "step 1", "reward y", "openai.chat", "invoke_agent z", "work"])),
        kind=draw(st.sampled_from([1, 3])),
        attributes=draw(ATTRIBUTES),
        status=draw(st.sampled_from([{}, {"code": 2}, {"code": 2, "message": "m"}])),
        endTimeUnixNano=draw(st.sampled_from(["0", "3000000"])),
        events=[{"timeUnixNano": "5", "name": name, "attributes": pairs(known)} for name, known in events],
        links=[{"traceId": f"{1:032x}", "spanId": f"{to:016x}"} for to in linked],
    )


@settings(max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(spans(), max_size=8), st.sampled_from([(), ("work",)]))
def test_any_content_converts(found, globs):
    with tempfile.TemporaryDirectory() as folder:
        dump = write_lines(Path(folder) / "in.jsonl", [request_of(span) for span in found])
        trajectories, report = convert_files(Path(folder) / "out", dump, rollout_spans=globs)
        assert report.spans.read == len(found)
        assert all(trajectory.complete != bool(trajectory.incomplete_reasons) for trajectory in trajectories)
