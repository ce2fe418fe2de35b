"""An incremental conversion takes what no earlier one into the folder took: the whole is as if converted at once."""

import gzip
import json
import os

import pytest

from art_otel import batches, read_trajectories
from art_otel.engines import Times
from art_otel.errors import UsageError
from art_otel.store import read_keys, read_manifest, row_groups
from art_otel.store.superseded import compact
from tests.conversions import RECORDINGS, convert_files
from tests.dumps import chat_span, make_span, request_of, write_lines

DAY = 86_400.0
SECOND = 10**9


def rollout(number: int):
    """The lines of a rollout."""
    spans = [make_span(1, trace=number, name="rollout x"), chat_span(2, 1, [f"q{number}"], "a", trace=number)]
    return [request_of(span) for span in spans]


def take(folder, *sources, grace=0.0, now=None, **options):
    times = Times(grace=grace, retain=options.pop("retain", DAY), now=now)
    return convert_files(folder, *sources, incremental=True, times=times, **options)


def test_files_that_come_and_grow_are_taken_once(tmp_path):
    spool, out = tmp_path / "spool", tmp_path / "out"
    spool.mkdir()
    expected = set()
    for number in range(1, 6):
        file = spool / f"{number % 2}.otlp.jsonl"
        before = file.read_text() if file.exists() else ""
        write_lines(file, rollout(number))
        file.write_text(before + file.read_text())
        rows, report = take(out, spool)
        expected.add(f"{number:032x}")
        assert ({row.rollout_id for row in rows}, len(rows)) == (expected, number)
        assert (report.trajectories.total, report.spans.read) == (1, 2)
    before = {path.name: path.read_bytes() for path in out.glob("part-*")}
    rows, report = take(out, spool)
    assert (len(rows), report.spans.read) == (5, 0)
    assert [hint.partition(":")[0] for hint in report.hints] == ["nothing new"]
    assert {path.name: path.read_bytes() for path in out.glob("part-*")} == before
    assert {path.name for path in out.iterdir() if not path.name.startswith("_kept-")} == {"_report.json", *before}
    whole, _ = convert_files(tmp_path / "whole", spool)
    assert sorted(rows, key=lambda row: row.order) == whole


def test_a_line_that_is_still_written_waits(tmp_path):
    file, out = write_lines(tmp_path / "in.jsonl", [*rollout(1), *rollout(2)]), tmp_path / "out"
    whole = file.read_bytes()
    file.write_bytes(whole[:-30])
    assert take(out, file)[1].spans.read == 3
    file.write_bytes(whole)
    assert take(out, file)[1].spans.read == 1
    last = whole.splitlines()[0]
    file.write_bytes(whole + last[:-1])
    assert take(out, file)[1].spans.read == 0
    os.utime(file, (1, 1))
    assert take(out, file)[1].spans.quarantined == {"torn": 1}


@pytest.mark.parametrize("indent", [None, 1])
def test_a_document_without_an_end_of_line_does_not_wait(tmp_path, indent):
    """What an API answers to curl, as it is or as jq prints it, which grows while it is printed."""
    file, out = tmp_path / "in.json", tmp_path / "out"
    whole = json.dumps({"batches": [part for line in rollout(1) for part in line["resourceSpans"]]}, indent=indent)
    for size in (len(whole) // 2, len(whole)):
        file.write_text(whole[:size])
        rows, report = take(out, file)
    assert ([len(row.calls) for row in rows], report.spans.quarantined) == ([1], {})
    file.write_text(whole + "\n")
    assert take(out, file)[0] == rows


def test_what_a_full_conversion_took_is_not_taken_again(tmp_path):
    file = write_lines(tmp_path / "in.jsonl", rollout(1))
    convert_files(tmp_path / "out", file)
    assert take(tmp_path / "out", file)[1].spans.read == 0
    (entry,) = read_manifest(str(tmp_path / "out")).ledger
    stat = file.stat()
    assert (entry.name, entry.bytes, entry.mtime_ns) == (str(file), stat.st_size, stat.st_mtime_ns)


@pytest.mark.parametrize("compress", [bytes, gzip.compress])
def test_a_file_that_was_only_touched_is_nothing_new(tmp_path, compress):
    file = tmp_path / "in"
    file.write_bytes(compress((RECORDINGS / "genai_span" / "error_retry.jsonl").read_bytes()))
    take(tmp_path / "out", file)
    os.utime(file, (1, 1))
    assert take(tmp_path / "out", file)[1].files == []


def counted(number: int, calls: int):
    """A rollout whose process counted so many calls, the rollout's own span last."""
    known = {"art.rollout.id": f"r{number}"}
    counts = {"art.rollout.spans.started": calls, "art.rollout.spans.ended": calls}
    spans = [chat_span(call, 1, [f"q{call}"], "a", trace=number, attributes=known) for call in range(2, 2 + calls)]
    return [
        request_of(span) for span in (*spans, make_span(1, trace=number, name="rollout x", attributes=known | counts))
    ]


def late_reward(number: int, value: float):
    link = [{"traceId": f"{number:032x}", "spanId": f"{1:016x}"}]
    reward = make_span(
        int(8 * value), trace=1000 + number, name="reward late", links=link, attributes={"art.reward": value}
    )
    return request_of(reward)


def test_a_rollout_is_given_when_its_counts_are_met_or_it_was_quiet(tmp_path):
    spool, out, now = tmp_path / "spool", tmp_path / "out", 2_000_000_000 * SECOND
    *calls, root = counted(1, 2)
    for number, (lines, given) in enumerate([([root, calls[0]], 0), ([calls[1]], 1), (rollout(2), 1), ([], 1)]):
        file = write_lines(spool / f"{number}.jsonl", lines)
        os.utime(file, ns=(now, now))
        rows, report = take(out, spool, grace=900.0, now=now)
        assert (len(rows), report.spans.waiting) == (given, [2, 0, 2, 0][number])
        now += SECOND
    rows, report = take(out, spool, grace=900.0, now=now + 900 * SECOND)
    assert [row.revision for row in rows] == [0, 0]
    assert (report.trajectories.total, report.spans.read, report.spans.again) == (1, 0, 2)


def test_what_comes_late_is_the_next_revision_for_every_reader(tmp_path):
    spool, out = tmp_path / "spool", tmp_path / "out"
    write_lines(spool / "0.jsonl", [*counted(1, 2), *counted(2, 2)])
    take(out, spool, grace=900.0)
    for revision, reward in enumerate((0.25, 0.75), 1):
        write_lines(spool / f"{revision}.jsonl", [late_reward(1, reward)])
        rows, report = take(out, spool, grace=900.0)
        assert (report.trajectories.total, report.rewards.delivered) == (1, revision)
        assert {row.rollout_id: row.revision for row in rows} == {"r1": revision, "r2": 0}
    (first, _, last) = read_manifest(str(out)).parts
    assert read_manifest(str(out)).superseded.keys() == {first.name, read_manifest(str(out)).parts[1].name}
    assert [row.rollout_id for row in read_trajectories(out / first.name)] == ["r2"]
    assert [key[0] for keys in read_keys(row_groups(out)) for key in keys] == ["r2", "r1"]
    assert len(list(batches(out, advantage=None).decisions())) == 2
    done = compact(out)
    assert (done.parts, done.became, done.rows) == (3, 1, 2)
    assert sorted((row.rollout_id, row.revision) for row in read_trajectories(out)) == [("r1", 2), ("r2", 0)]
    assert (out / last.name).exists()  # somebody may read it
    write_lines(spool / "9.jsonl", [late_reward(2, 1.0)])
    assert {row.rollout_id: row.revision for row in take(out, spool, grace=900.0)[0]} == {"r1": 2, "r2": 1}
    assert compact(out, linger=0).parts == 2
    assert compact(out, linger=0).parts == 0


@pytest.mark.long
@pytest.mark.parametrize("is_merged", [False, True])
def test_what_comes_after_the_retention_is_too_late_and_named(tmp_path, is_merged):
    spool, out, now = tmp_path / "spool", tmp_path / "out", 2_000_000_000 * SECOND
    *calls, root = counted(1, 3)
    write_lines(spool / "0.jsonl", [root, *calls[:2]])
    rows, _ = take(out, spool, now=now)
    assert [row.complete for row in rows] == [False]
    now += int(2 * DAY) * SECOND
    for other in range(2, 6 if is_merged else 2):
        write_lines(spool / f"{other}.jsonl", counted(other, 8))
        take(out, spool, now=now)
    known = {"art.rollout.id": "r1"}
    elsewhere = request_of(chat_span(7, None, ["q"], "a", trace=77, attributes=known))
    write_lines(spool / "9.jsonl", [calls[2], elsewhere, late_reward(1, 1.0)])
    after, report = take(out, spool, now=now)
    assert [row for row in after if row.rollout_id == "r1"] == rows
    assert (report.spans.quarantined, report.spans.used) == ({"too late": 2}, 1)
    assert report.rewards.undeliverable == {"too late": 1}
    assert {entry.path for entry in report.quarantine} == {f"trace {1:032x}", f"trace {77:032x}"}
    assert "--retain" in report.quarantine[0].detail
    write_lines(spool / "10.jsonl", counted(1, 3)[:1])  # the same again, and a new attempt of the same id
    again = [request_of(make_span(1, trace=78, name="rollout x", attributes=known))]
    write_lines(spool / "11.jsonl", [*again, request_of(chat_span(2, 1, ["q"], "a", trace=78))])
    after, report = take(out, spool, now=now)
    assert [row.trace_id for row in after if row.rollout_id == "r1"] == [rows[0].trace_id, f"{78:032x}"]
    assert report.spans.quarantined == {"too late": 1}


def test_rows_of_a_full_conversion_stay_as_they_are(tmp_path):
    spool, out = tmp_path / "spool", tmp_path / "out"
    *calls, root = counted(1, 2)
    write_lines(spool / "0.jsonl", [root, calls[0]])
    rows, _ = convert_files(out, spool)
    write_lines(spool / "1.jsonl", [calls[1], *counted(2, 1)])
    after, report = take(out, spool)
    assert ([row.rollout_id for row in after], after[0]) == (["r1", "r2"], rows[0])
    assert report.spans.quarantined == {"too late": 1}


def test_other_settings_are_refused_by_name(tmp_path):
    file, out = write_lines(tmp_path / "in.jsonl", rollout(1)), tmp_path / "out"
    take(out, file)
    with pytest.raises(UsageError, match="was converted without --rollout-span"):
        take(out, file, rollout_spans=["x"])
    with pytest.raises(UsageError, match="was converted without --rollout-traces"):
        take(out, file, rollout_traces=True)
    with pytest.raises(UsageError, match="--retain must be at least --grace"):
        take(out, file, grace=10.0, retain=1.0)


@pytest.mark.long
def test_few_files_are_kept_however_many_rounds_there_were(tmp_path):
    spool, out = tmp_path / "spool", tmp_path / "out"
    for number in range(1, 30):
        write_lines(spool / f"{number}.jsonl", counted(number, 1))
        rows, _ = take(out, spool)
        for file in spool.iterdir():  # as a spool's retention does
            file.unlink()
        write_lines(spool / "0.jsonl", [])
    assert len(rows) == 29
    assert len(list(out.glob("_kept-*"))) <= 12
