"""Lines are numbered and bounded, however the bytes come."""

import io

from hypothesis import given
from hypothesis import strategies as st

from art_otel.sources.json_documents import Lines


def expected(data: bytes, limit: int):
    for number, line in enumerate(data.split(b"\n"), 1):
        if len(line) > limit:
            yield number, None
        elif line.strip():
            yield number, line


@given(
    data=st.lists(st.sampled_from([b"\n", b" ", b"a", b"bc", b"defgh" * 3])).map(b"".join),
    limit=st.integers(1, 20),
    block=st.integers(1, 40),
)
def test_lines_are_numbered_and_bounded(data, limit, block):
    lines = [(number, line and bytes(line)) for number, line in Lines(io.BytesIO(data), limit, block)]
    assert [(number, line and line.removesuffix(b"\n")) for number, line in lines] == list(expected(data, limit))


def test_a_line_that_is_given_back_comes_again():
    read = Lines(io.BytesIO(b"a\nb\n"), 9)
    first = next(iter(read))
    read.give_back(*first)
    assert list(read) == [(1, b"a\n"), (2, b"b\n")]
