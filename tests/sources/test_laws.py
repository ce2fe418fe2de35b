"""Laws of reading: nothing raises, everything is counted, and what is good beside rubbish is kept."""

import json

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from art_otel.errors import SourceError
from art_otel.sources import FileStats, Limits, find_inputs, read_file
from art_otel.sources.files.encodings import PARQUET_MAGICS
from art_otel.spans import LogRecord, Quarantined, Span
from tests.sources.requests import COMPRESSORS, RECORDINGS, lines, prefixed, span, spans_of, to_protobuf, traces

RECORDED = (RECORDINGS / "genai_span" / "sync_tools.jsonl").read_bytes()
EVENTS = (RECORDINGS / "genai_event" / "sync_tools.logs.jsonl").read_bytes()
MESSAGES = [to_protobuf(json.loads(line)) for line in (RECORDED + EVENTS).splitlines()]
GOOD = lines(traces(span(0xA), span(0xB)))
LIMITS = Limits(max_message_bytes=1 << 20, max_decompressed_bytes=8 << 20)
laws = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)


def read(folder, data):
    """Records and account of a file found in a folder; reading it never raises.

    But what calls itself Parquet can be read as a whole or is a SourceError.
    """
    (folder / "x").mkdir(exist_ok=True)
    (folder / "x" / "in").write_bytes(data)
    account = FileStats()
    (source,) = find_inputs([folder / "x"])
    try:
        records = list(read_file(source, account, limits=LIMITS))
    except SourceError:
        if not data.startswith(PARQUET_MAGICS):
            raise
        return [], account
    whole = [record for record in records if isinstance(record, Quarantined) and not record.partial]
    assert account.spans == sum(isinstance(record, Span) for record in records)
    assert account.log_records == sum(isinstance(record, LogRecord) for record in records)
    assert account.quarantined == len(whole)
    assert account.partly_quarantined == len(records) - account.spans - account.log_records - len(whole)
    for record in records:
        json.dumps(str(record)).encode()
        assert not isinstance(record, Quarantined) or record.path.startswith(str(source.name))
    return records, account


@st.composite
def mutated(draw, original: bytes):
    """The original with a few places overwritten, cut out, doubled or filled with rubbish."""
    data = bytearray(original)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, max(len(data) - 1, 0)))
        length = draw(st.integers(0, 9))
        rubbish = draw(
            st.binary(max_size=9) | st.sampled_from([b'"', b"}", b"]", b"{", b"[", b"\\", b"\n", b"\xff", b"NaN"])
        )
        data[at : at + length] = rubbish
    return bytes(data)


@laws
@given(data=st.binary(max_size=400) | st.text(max_size=200).map(str.encode))
@example(data=b"PAR1")
@example(data=b"PARE")
@example(data=b"PAR1" + bytes(400) + b"PAR1")
def test_random_bytes(data, tmp_path):
    read(tmp_path, data)


@laws
@given(data=mutated(RECORDED) | mutated(EVENTS))
def test_a_mutated_recording(data, tmp_path):
    read(tmp_path, data)
    records, _ = read(tmp_path, GOOD + data + b"\n" + GOOD)
    kept = [one.span_id for one in spans_of(records)]
    assert kept.count(f"{0xA:016x}") == kept.count(f"{0xB:016x}") == 2


@laws
@given(data=mutated(b"".join(MESSAGES)) | mutated(prefixed(*MESSAGES)))
def test_a_mutated_recording_in_protobuf(data, tmp_path):
    read(tmp_path, data)


@laws
@given(data=st.sampled_from(MESSAGES).flatmap(mutated))
def test_a_mutated_message_beside_good_ones(data, tmp_path):
    good = to_protobuf(traces(span(0xA), span(0xB)))
    records, _ = read(tmp_path, prefixed(good, data, good))
    kept = [one.span_id for one in spans_of(records)]
    assert kept.count(f"{0xA:016x}") == kept.count(f"{0xB:016x}") == 2


@laws
@given(data=st.data(), compression=st.sampled_from(sorted(COMPRESSORS)))
def test_a_mutated_compressed_recording(data, compression, tmp_path):
    read(tmp_path, data.draw(mutated(COMPRESSORS[compression](RECORDED))))


@laws
@given(st.lists(st.sampled_from([GOOD, RECORDED, EVENTS, b"rubbish\n", b'{"hello":1}\n']), max_size=5))
def test_every_line_gives_what_it_gives_alone(tmp_path, parts):
    alone = [read(tmp_path, GOOD + part)[1] for part in parts]
    _, together = read(tmp_path, GOOD + b"".join(parts))
    assert together.spans == sum(account.spans for account in alone) - 2 * (len(parts) - 1)
    assert together.log_records == sum(account.log_records for account in alone)
    assert bool(together.quarantined) == any(account.quarantined for account in alone)


@laws
@given(spans=st.lists(st.integers(0, 2), min_size=1, max_size=6), data=st.data())
def test_damage_costs_only_the_lines_that_it_is_in(spans, data, tmp_path):
    numbers = [range(10 * at + 1, 10 * at + 1 + count) for at, count in enumerate(spans)]
    written = [lines(traces(*map(span, some))) for some in numbers]
    damaged = data.draw(st.sets(st.integers(0, len(written) - 1)))
    dump = b"".join(
        data.draw(mutated(line[:-1])).replace(b"\n", b" ") + b"\n" if at in damaged else line
        for at, line in enumerate(written)
    )
    kept = {one.span_id for one in spans_of(read(tmp_path, GOOD + dump)[0])}
    sound = {f"{number:016x}" for at, some in enumerate(numbers) if at not in damaged for number in some}
    assert sound <= kept
