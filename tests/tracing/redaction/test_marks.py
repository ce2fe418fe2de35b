"""Passing over texts quickly misses nothing."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from art_otel.tracing.redaction.marks import Marks
from art_otel.tracing.redaction.patterns import BUILTIN_PATTERNS
from tests.tracing.redaction.secrets import any_secret

MARKS = Marks(BUILTIN_PATTERNS)

matched = st.one_of([st.from_regex(pattern.regex) for pattern in BUILTIN_PATTERNS])
"""Texts in which a pattern matches, of every form that its regex allows."""


@given(matched)
def test_where_a_pattern_matches_a_mark_is_found(text):
    assert MARKS.found(text)
    for pattern in BUILTIN_PATTERNS:
        for match in pattern.regex.finditer(text):
            assert any(mark in match[0] for mark in pattern.marks), pattern.kind


@given(st.text(max_size=50), any_secret, st.text(max_size=50))
def test_a_secret_is_found_whatever_letters_are_around_it(before, secret, behind):
    assert MARKS.found(f"{before}{secret}{behind}")


@given(any_secret, st.text(max_size=20), st.integers(1, 3))
def test_a_secret_in_json_is_found_without_reading_the_json(secret, before, depth):
    text: object = f"{before}\n{secret}"
    for _ in range(depth):
        text = json.dumps({"a": text})
    assert MARKS.found(str(text))


@pytest.mark.parametrize(
    "text", ["", "plain", "task-force", "key_of", "\ud800", "日本語 sk", "sk-toggleable-content-Box1"]
)
def test_ordinary_texts_have_none(text):
    assert not MARKS.found(text)


def test_no_marks_find_nothing():
    assert not Marks(()).found("sk-abc @")
