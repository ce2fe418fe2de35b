"""Lines are the same however the bytes come."""

import io

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from art_otel.sources.files import lines
from art_otel.sources.files.lines import Lines


def expected(data: bytes, limit: int):
    for number, line in enumerate(data.split(b"\n"), 1):
        if len(line) > limit:
            yield number, None
        elif line.strip():
            yield number, line


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    data=st.lists(st.sampled_from([b"\n", b" ", b"a", b"bc", b"defgh" * 3])).map(b"".join),
    limit=st.integers(1, 20),
    block=st.integers(1, 9),
)
def test_lines_are_numbered_and_bounded(monkeypatch, data, limit, block):
    monkeypatch.setattr(lines, "_BLOCK_BYTES", block)
    found = list(Lines(io.BufferedReader(io.BytesIO(data), 7), limit))
    assert [(number, line and line.removesuffix(b"\n")) for number, line in found] == list(expected(data, limit))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    data=st.lists(st.sampled_from([b"\n", b"a", b"bc" * 5, "é".encode(), b"\xff"])).map(b"".join),
    block=st.integers(1, 9),
)
def test_only_ascii_is_called_ascii(monkeypatch, data, block):
    monkeypatch.setattr(lines, "_BLOCK_BYTES", block)
    found = Lines(io.BufferedReader(io.BytesIO(data), 7), 1000)
    told = [(found.is_ascii, line.isascii()) for _, line in found if line is not None]
    assert all(is_ascii for called, is_ascii in told if called)
    assert not data.isascii() or all(called for called, _ in told)
