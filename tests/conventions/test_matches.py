"""The names of attributes decide which conventions are asked about a call; who is not asked knows nothing of it."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from art_otel.conventions import parse_call
from art_otel.conventions.attribute_names import AttributeNames
from art_otel.conventions.attributes import SpanRecording
from art_otel.conventions.dialects import DIALECTS
from art_otel.conventions.facts import NO_FACTS
from tests.conventions.builders import event, log, span
from tests.conventions.test_hostile import logs_of_anything, spans_of_anything


def asked(convention, one, records=()):
    """What it knows, asked or not, and whether it is asked."""
    names = AttributeNames(one.attributes)
    found = convention.read(SpanRecording(one, records, names), NO_FACTS)
    told = NO_FACTS if found is None else msgspec.structs.replace(found, conventions=())
    if not convention.shown_by:
        return told, bool(one.events or records)
    return told, bool(names.families.starting(convention.shown_by))


@settings(deadline=None)
@given(spans_of_anything, logs_of_anything, st.sampled_from(DIALECTS))
def test_who_is_not_asked_knows_nothing(one, records, convention):
    told, is_asked = asked(convention, one, records)
    assert is_asked or told == NO_FACTS


@pytest.mark.parametrize("convention", DIALECTS, ids=lambda dialect: dialect.convention)
def test_nobody_is_asked_about_an_apps_own_span(convention):
    assert asked(convention, span({"http.url": "x", "gen_a": 1, "llm": 2, "art.metadata.x": 3})) == (NO_FACTS, False)


@pytest.mark.parametrize("recorder", [event, log])
def test_events_and_log_records_are_read_without_any_attribute(recorder):
    recorded = [recorder("gen_ai.user.message", attributes={"role": "user", "content": "q"})]
    found = parse_call(span(events=recorded)) if recorder is event else parse_call(span(), recorded)
    assert found.input_messages[0].content == "q"
