"""Lines are numbered and bounded, however the bytes come."""

import io

from hypothesis import given
from hypothesis import strategies as st

from art_otel.sources.files.lines import Lines


def expected(data: bytes, limit: int):
    for number, line in enumerate(data.split(b"\n"), 1):
        if len(line) > limit:
            yield number, None
        elif line.strip():
            yield number, line


@given(
    data=st.lists(st.sampled_from([b"\n", b" ", b"a", b"bc", b"defgh" * 3])).map(b"".join),
    limit=st.integers(1, 20),
    block=st.integers(1, 9),
)
def test_lines_are_numbered_and_bounded(data, limit, block):
    found = list(Lines(io.BufferedReader(io.BytesIO(data), block), limit))
    assert [(number, line and line.removesuffix(b"\n")) for number, line in found] == list(expected(data, limit))


def test_lines_that_are_given_back_come_again():
    lines = Lines(io.BytesIO(b"a\nb\nc\n"), 9)
    first, second = next(lines), next(lines)
    lines.give_back([first, second])
    assert list(lines) == [(1, b"a\n"), (2, b"b\n"), (3, b"c\n")]
