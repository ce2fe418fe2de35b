"""Passing over texts quickly misses nothing."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from art_otel.tracing.redaction.marks import Marks
from art_otel.tracing.redaction.patterns import BUILTIN_PATTERNS, EMAIL
from tests.tracing.redaction.secrets import any_secret

PATTERNS = (*BUILTIN_PATTERNS, EMAIL)
MARKS = Marks(PATTERNS)

matched = st.one_of([st.from_regex(pattern.regex) for pattern in PATTERNS])
"""Texts in which a pattern matches, of every form that its regex allows."""


@given(matched)
def test_where_a_pattern_matches_there_is_a_position_in_the_match(text):
    positions = MARKS.positions(text)
    for pattern in PATTERNS:
        for match in pattern.regex.finditer(text):
            if "secret" not in pattern.regex.groupindex or match["secret"] is not None:
                assert any(match.start() <= position < match.end() for position in positions), pattern.kind


@given(st.text(max_size=50), any_secret, st.text(max_size=50))
def test_positions_are_those_of_the_text_whatever_letters_it_has(before, secret, behind):
    text = f"{before} {secret} {behind}"
    start = len(before) + 1
    assert any(start <= position < start + len(secret) for position in MARKS.positions(text))
    assert MARKS.positions(text) == sorted(MARKS.positions(text))


@given(any_secret, st.text(max_size=20), st.integers(1, 3))
def test_a_secret_in_json_has_a_position_without_reading_the_json(secret, before, depth):
    text: object = f"{before}\n{secret}"
    for _ in range(depth):
        text = json.dumps({"a": text})
    assert MARKS.found(str(text))


@given(st.text(alphabet="abkpsIJz-_@ \\nu0"))
def test_found_is_whether_there_are_positions(text):
    assert MARKS.found(text) == bool(MARKS.positions(text))


@pytest.mark.parametrize("text", ["", "plain", "task-force", "\ud800", "日本語 sk"])
def test_ordinary_texts_have_none(text):
    assert MARKS.positions(text) == []


def test_no_marks_find_nothing():
    assert Marks(()).positions("sk-abc @") == []
