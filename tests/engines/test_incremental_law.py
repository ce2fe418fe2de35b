"""The law of incremental conversion: whatever came when, in the end the rows are those of one conversion."""

import os
import tempfile
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from art_otel import Trajectory, read_trajectories
from art_otel.engines import Sizes, Times
from art_otel.store import read_manifest
from art_otel.store.superseded import compact
from tests.conversions import RECORDINGS, SMALL, convert_files
from tests.dumps import chat_span, explode, make_span, request_of, write_lines
from tests.engines.test_reward_delivery import result_log
from tests.examples import examples

pytestmark = pytest.mark.long

SECOND = 10**9
START = 2_000_000_000 * SECOND
"""Behind every file's time, so that the clock of the test says what is quiet."""
GRACE = 900.0


def link_rich() -> Iterable[dict]:
    """Rollouts over several traces, with and without counts, nested, and rewards of each kind of address."""
    for trace in range(1, 4):
        counts = {"art.rollout.spans.started": 2, "art.rollout.spans.ended": 2} if trace != 2 else {}
        known = {"art.rollout.id": f"r{trace}"}
        yield make_span(1, name="rollout x", trace=trace, attributes=known | counts)
        for call in (2, 3):
            response = {"gen_ai.response.id": f"response-{trace}-{call}"}
            yield chat_span(call, 1, [f"q{trace}{call}"], "a", trace=trace, attributes=known | response)
    wide = {"art.rollout.id": "wide"}
    yield make_span(1, name="rollout wide", trace=10, attributes=wide)
    for trace in (11, 12, 5):
        yield chat_span(2, None, [f"q{trace}"], "a", trace=trace, attributes=wide)
    yield make_span(1, name="training", trace=20)
    for number in (2, 4):
        nested = {"art.rollout.id": f"nested-{number}", "art.rollout.spans.ended": 1, "art.rollout.name": "n"}
        yield make_span(number, 1, name="rollout n", trace=20, attributes=nested)
        yield chat_span(number + 1, number, [f"q{number}"], "a", trace=20)
    yield chat_span(1, None, ["same response"], "a", trace=30, attributes={"gen_ai.response.id": "twice"})
    yield chat_span(1, None, ["same response"], "b", trace=31, attributes={"gen_ai.response.id": "twice"})
    link = [{"traceId": f"{1:032x}", "spanId": f"{2:016x}"}]
    yield make_span(1, name="reward late", trace=40, links=link, attributes={"art.reward": 0.5})
    score = {"gen_ai.evaluation.name": "ok", "gen_ai.evaluation.score.value": 0.5}
    for number, address in enumerate(
        (
            {"gen_ai.response.id": "response-2-3"},
            {"gen_ai.response.id": "twice"},
            {"art.rollout.id": "wide"},
            {"art.rollout.id": "r3", "gen_ai.response.id": "response-3-2"},
            {"art.rollout.id": "nobody"},
        )
    ):
        yield make_span(1, name="reward ok", trace=50 + number, attributes=score | address)


RECORDS = [
    *map(request_of, link_rich()),
    result_log(5, **{"art.rollout.id": "r1"}),
    result_log(6, **{"gen_ai.response.id": "response-1-3"}),
    *explode(
        RECORDINGS / "openinference" / "sync_tools.jsonl",
        RECORDINGS / "genai_event" / "n2.jsonl",
        RECORDINGS / "genai_event" / "n2.logs.jsonl",
    ),
]


def rows(trajectories: Iterable[Trajectory]) -> list[Trajectory]:
    """The rows but for their revisions."""
    return sorted((replace(one, revision=0) for one in trajectories), key=lambda one: one.order)


@cache
def at_once() -> list[Trajectory]:
    """The rows of one conversion."""
    with tempfile.TemporaryDirectory() as folder:
        dump = write_lines(Path(folder, "in.jsonl"), RECORDS)
        return rows(convert_files(Path(folder, "out"), dump)[0])


def shuffled(count: int) -> list[list[dict]]:
    """The records in some order, in so many parts."""
    records = list(RECORDS)
    Random(0).shuffle(records)
    return [records[number::count] for number in range(count)]


@st.composite
def rounds(draw):
    """The records in any order, some repeated, over rounds with pauses before them."""
    chance = draw(st.randoms(use_true_random=False))
    records = [number for number in range(len(RECORDS)) for _ in range(chance.choice([1, 1, 1, 2]))]
    chance.shuffle(records)
    count = draw(st.integers(1, 6))
    divided = [[] for _ in range(count)]
    for record in records:
        chance.choice(divided).append(record)
    pauses = draw(st.lists(st.sampled_from([1, 60, 1000]), min_size=count, max_size=count))
    compacted = draw(st.lists(st.booleans(), min_size=count, max_size=count))
    return list(zip(divided, pauses, compacted, strict=True))


@settings(max_examples=examples(100), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(rounds=rounds(), sizes=st.sampled_from([SMALL, Sizes()]), grows=st.booleans())
def test_any_split_over_rounds_gives_the_rows_of_one_conversion(rounds, sizes, grows):
    with tempfile.TemporaryDirectory() as folder:
        base, now = Path(folder), START
        for number, (records, pause, compacted) in enumerate(rounds):
            now += pause * SECOND
            write_lines(base / "new.jsonl", [RECORDS[record] for record in records])
            file = base / "in" / ("0.jsonl" if grows else f"{number}.jsonl")
            file.parent.mkdir(exist_ok=True)
            with file.open("ab") as lines:
                lines.write((base / "new.jsonl").read_bytes())
            os.utime(file, ns=(now, now))
            found, report = take(base, now, sizes)
            if compacted:
                compact(base / "out", linger=0)
        now += int(GRACE) * SECOND
        found, report = take(base, now, sizes)
        assert rows(found) == at_once()
        assert report.spans.waiting == 0
        assert take(base, now + 1, sizes)[1].spans.again == 0
        revisions = {one.order: one.revision for one in found}
        compact(base / "out", linger=0)
        manifest = read_manifest(str(base / "out"))
        assert (manifest.superseded, len(manifest.parts)) == ({}, 1)
        compacted = list(read_trajectories(sorted(base.glob("out/part-*.parquet"))))
        assert rows(compacted) == at_once()
        assert {one.order: one.revision for one in compacted} == revisions


def take(base: Path, now: int, sizes: Sizes):
    times = Times(grace=GRACE, now=now)
    return convert_files(base / "out", base / "in", incremental=True, times=times, sizes=sizes, workers=1)
