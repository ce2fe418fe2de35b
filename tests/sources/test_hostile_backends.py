"""A bad span costs no other span in the formats of backends either, and each bad piece is quarantined by name."""

import json

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from art_otel.sources import Limits, all_formats, format_named
from art_otel.sources.files.encodings import PARQUET_MAGICS
from tests.dumps import make_span, request_of
from tests.examples import daily
from tests.sources.requests import RECORDINGS, damages_of, numbers, read_bytes, reasons_of, spans_of
from tests.sources.test_laws import laws, mutated, read
from tests.sources.writers import WRITERS

BACKENDS = [name for name in WRITERS if not name.startswith("otlp-json")]
TRACE = f"{1:032x}"
RECORDED = [json.loads(line) for line in (RECORDINGS / "genai_span" / "sync_tools.jsonl").read_text().splitlines()]


def dump(name: str, *spans: dict) -> bytes:
    return WRITERS[name]([request_of(*spans, scope="lib", resource={"service.name": "here"})])


def forced(name: str):
    return format_named(name.split(maxsplit=1)[0])


@pytest.mark.parametrize("name", BACKENDS)
@pytest.mark.parametrize("text", [b"NaN", b"5"])
def test_a_span_of_wrong_types_costs_no_other_of_its_document(text, name, tmp_path):
    good = [make_span(number, name='{"traceId": \'') for number in (1, 2, 4, 5)]
    data = dump(name, *good[:2], make_span(3, name="@@", attributes={"x": 'a "quoted" {'}), *good[2:])
    records, account = read_bytes(tmp_path, data.replace(b'"@@"', text), format=forced(name))
    assert numbers(records) == [1, 2, 4, 5]
    assert {record.resource.attributes.get("service.name", "here") for record in spans_of(records)} == {"here"}
    (damage,) = damages_of(records)
    assert (damage.reason, damage.kind, damage.partial) == ("bad field", "span", False)
    assert f" / trace {TRACE} / span {3:016x}" in damage.path
    assert (account.spans, account.quarantined) == (4, 1)


@pytest.mark.parametrize("name", BACKENDS)
@pytest.mark.parametrize("half", [rb"\ud83d", rb"\udc00\u0041", b"\xf0\x9f"])
def test_a_text_that_was_cut_inside_a_character_costs_nothing(half, name, tmp_path):
    data = dump(name, make_span(1), make_span(2, name="whole @@"), make_span(3)).replace(b"@@", rb"\ud83d\ude00" + half)
    records, account = read_bytes(tmp_path, data, format=forced(name))
    assert (numbers(records), damages_of(records), account.replaced) == ([1, 2, 3], [], 1)
    assert spans_of(records)[1].name == "whole \U0001f600\ufffd" + "A" * half.endswith(b"0041")


@pytest.mark.parametrize("name", BACKENDS)
@pytest.mark.parametrize("text", [b"[" * 50_000 + b"]" * 50_000, b'{"a":' * 50_000, b"", b'"\x01"', b"[1}", b'"a"b"'])
def test_a_broken_document_costs_itself(text, name, tmp_path):
    broken = dump(name, make_span(2, name="@@")).replace(b'"@@"', text)
    records, _ = read_bytes(tmp_path, b"\n".join((dump(name, make_span(1)), broken, dump(name, make_span(3)))))
    assert numbers(records) == [1, 3]
    assert [(damage.kind, damage.partial) for damage in damages_of(records)] == [("unknown", False)]
    assert damages_of(records)[0].path.startswith(f"{tmp_path}/in.dump:")


def nested(levels: int) -> list:
    value: list = []
    for _ in range(levels - 1):
        value = [value]
    return value


ENVELOPES = [name for name in WRITERS if name.startswith("otlp-json of")]


@pytest.mark.parametrize("name", ENVELOPES)
def test_envelopes_that_are_cut_or_follow_each_other(name, tmp_path):
    first, last = dump(name, make_span(1), make_span(2)), dump(name, make_span(3))
    records, _ = read_bytes(tmp_path, first.strip() + last.strip() + b"\n" + last)
    assert (numbers(records), damages_of(records)) == ([1, 2, 3, 3], [])
    for cut in range(20, len(first) - 4, 9):
        records, _ = read_bytes(tmp_path, first[:cut], format=forced(name))
        assert numbers(records) == [1, 2][: len(spans_of(records))]
        assert reasons_of(records) == ["torn"]


@pytest.mark.parametrize(
    "line", ['{"trace": "x"}', '{"result": 5}', '{"batches": 5}', '{"trace": {}}', '{"result": {"x": 1}}']
)
def test_no_envelope_of_otlp(line, tmp_path):
    records, _ = read_bytes(tmp_path, line.encode(), format=forced("otlp-json"))
    assert reasons_of(records) == ["not OTLP"]


VALUES: dict[str, tuple[object, str]] = {
    "33 lists": (nested(33), "nested too deep"),
    "a whole number of 65 bits": (2**64, "bad field"),
    "a whole number of 5,000 digits": (10**4000, "bad field"),
}
"""What only a format with JSON values can say."""


@pytest.mark.parametrize("name", ["phoenix-json", "mlflow-json", "console in lines"])
@pytest.mark.parametrize("what", VALUES)
def test_a_bad_value(what, name, tmp_path):
    value, reason = VALUES[what]
    if name == "mlflow-json" and isinstance(value, list):
        return  # a list of lists stays text
    data = dump(name, make_span(1), make_span(2, attributes={"x": 777_777}), make_span(3))
    records, _ = read_bytes(tmp_path, data.replace(b"777777", json.dumps(value).encode()))
    assert numbers(records) == [1, 3]
    assert reasons_of(records) == [reason]


@pytest.mark.parametrize("name", [name for name in BACKENDS if not name.startswith("zipkin")])
@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity"])
def test_a_number_that_is_not_finite_is_lost_and_its_span_kept(number, name, tmp_path):
    spans = [make_span(1), make_span(2, attributes={"x": 777_777.5, "y": 'NaN "Infinity"'}), make_span(3)]
    data = dump(name, *spans)
    records, _ = read_bytes(tmp_path, data.replace(b"777777.5", number.encode()))
    assert numbers(records) == [1, 2, 3]
    if name.startswith(("mlflow", "clickhouse")):
        assert spans_of(records)[1].attributes["x"] == number  # it is the text in which the store keeps it
        return
    assert spans_of(records)[1].attributes == {"x": None, "y": 'NaN "Infinity"'}
    (damage,) = damages_of(records)
    assert (damage.reason, damage.partial) == ("not a finite number", True)
    assert damage.path.endswith('attributes["x"]')


@pytest.mark.parametrize("name", BACKENDS)
def test_times_that_contradict_each_other_are_not_corrected(name, tmp_path):
    backwards = make_span(2, startTimeUnixNano="5000000", endTimeUnixNano="1000000")
    records, _ = read_bytes(tmp_path, dump(name, make_span(1), backwards, make_span(3)))
    assert numbers(records) == [1, 3]
    assert reasons_of(records) in (["ends before it starts"], ["bad field"])  # a duration below zero


@pytest.mark.parametrize("name", BACKENDS)
def test_ids_of_zeros(name, tmp_path):
    zero = make_span(2, spanId="0" * 16)
    records, _ = read_bytes(tmp_path, dump(name, make_span(1), zero, make_span(3)))
    assert numbers(records) == [1, 3]
    assert reasons_of(records) == ["bad id"]


@pytest.mark.parametrize("name", daily(BACKENDS, one_in=3))
def test_a_dump_cut_anywhere_gives_what_is_whole_and_says_that_it_is_torn(name, tmp_path):
    whole = dump(name, *[make_span(number, name=f"s{number}") for number in range(1, 5)])
    for cut in range(len(whole) * 9 // 10, 0, -7):
        records, account = read_bytes(tmp_path, whole[:cut], format=forced(name))
        kept = numbers(records)
        assert kept == list(range(1, len(kept) + 1))
        assert len(damages_of(records)) <= 2
        is_one_document = "lines" not in name and not name.startswith("console")
        assert not is_one_document or reasons_of(records) == ["torn"] or len(kept) == 4 or cut < 40
        assert account.spans == len(kept)


@pytest.mark.parametrize("name", BACKENDS)
def test_a_document_over_the_limit_costs_no_other(name, tmp_path):
    texts = [dump(name, make_span(number, trace=number)) for number in (1, 2, 3)]
    long = make_span(2, trace=2, attributes={"x": "long {" * 500_000})
    data = b"\n".join((texts[0], dump(name, long), texts[2]))
    records, _ = read_bytes(tmp_path, data, limits=Limits(max_message_bytes=1 << 20))
    assert numbers(records) == [1, 3]
    assert reasons_of(records) == ["over a limit"]
    assert damages_of(records)[0].detail.endswith("raise --max-message-bytes (Limits.max_message_bytes) to read this")


@pytest.mark.parametrize("name", [name for name in BACKENDS if not name.startswith("console")])
def test_text_between_the_records_is_one_damage(name, tmp_path):
    first, last = dump(name, make_span(1, trace=1)), dump(name, make_span(2, trace=2))
    records, _ = read_bytes(tmp_path, first + b"\nwhat is this\nand that\n" + last)
    assert numbers(records) == [1, 2]
    assert reasons_of(records) == ["not JSON"]


def test_what_a_program_prints_between_spans_is_no_damage(tmp_path):
    noise = b'[1/3] {"a": 1\nsaid "hello {\n}}}]]\n{"name": "x", "context": 5}\n\xff\xfe\n'
    spans = b"".join(noise + dump("console", make_span(number)) + noise for number in range(1, 6))
    records, account = read_bytes(tmp_path, spans)
    assert numbers(records) == [1, 2, 3, 4, 5]
    assert (account.format, damages_of(records)) == ("console", [])


@pytest.mark.parametrize("name", BACKENDS)
def test_objects_of_other_kinds(name, tmp_path):
    good = dump(name, make_span(1))
    records, _ = read_bytes(tmp_path, good + b'\n{"hello": "world"}\n{}\n[[]]\n' + good.replace(b"0001", b"0002"))
    assert len(spans_of(records)) == 2
    assert len(damages_of(records)) == (0 if name.startswith("console") else 2)


@pytest.mark.parametrize("name", BACKENDS)
@laws
@given(data=st.data())
def test_a_mutated_dump_beside_good_ones(name, data, tmp_path):
    good = dump(name, make_span(0xA1, trace=0xA), make_span(0xA2, trace=0xA)) + b"\n"
    bad = data.draw(mutated(dump(name, make_span(1, name='a "b" {c}'), make_span(2, trace=2))))
    records, _ = read(tmp_path, good + bad + b"\n" + good)
    kept = numbers(records)
    assert kept.count(0xA1) == kept.count(0xA2) == 2


@pytest.mark.parametrize("known", list(all_formats()), ids=lambda known: known.name)
@laws
@given(content=st.binary(max_size=300) | st.text(max_size=300).map(str.encode))
def test_any_bytes_in_any_format(known, content, tmp_path):
    assume(not content.startswith(PARQUET_MAGICS))  # a Parquet file is whole or no file
    read_bytes(tmp_path, content, format=known, limits=Limits(max_message_bytes=100))
