"""What is new in a spool: each rollout once it has ended, whole, and again where more of it comes."""

import asyncio
import json
import tempfile
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from opentelemetry import trace

import art_otel
from art_otel import NewTrajectories
from art_otel.errors import UsageError
from art_otel.spool import SpoolWriter
from art_otel.tracing.api.context import recorder, use_recorder
from art_otel.trajectories import with_later_rewards
from tests.conversions import RECORDINGS, convert_files
from tests.dumps import chat_span, explode, joined, make_span, request_of
from tests.examples import examples
from tests.tracing.api.app import App, questions


@pytest.fixture
def app(tmp_path, monkeypatch):
    before = recorder()
    made = App(tmp_path)
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", made.provider)
    yield made
    use_recorder(before)


def ids(trajectories) -> list[tuple[str, int, int, bool]]:
    return [(one.name, one.revision, len(one.calls), one.complete) for one in trajectories]


def test_a_rollout_is_given_once_it_has_ended_and_again_where_more_comes(app, tmp_path):
    new = NewTrajectories(tmp_path / "spool")
    assert new.take() == []
    with art_otel.rollout(name="a") as outer:
        app.ask("one")
        with art_otel.rollout(name="b"):
            app.ask("two")
        (given,) = new.take()
        assert (ids([given]), given.parent_rollout_id) == ([("b", 0, 1, True)], outer.rollout_id)
        app.ask("three")
    assert ids(new.take()) == [("a", 0, 2, True)]
    assert new.take() == []
    late = {"art.rollout.id": given.rollout_id, "art.reward": 0.5}
    with app.app.start_as_current_span("reward late", attributes=late):
        pass
    (again,) = new.take()
    assert (ids([again]), again.reward) == ([("b", 1, 1, True)], 0.5)
    assert NewTrajectories(tmp_path / "spool").take() == app.convert()[0]


def test_a_later_reward_by_id_reaches_the_trajectory_that_was_taken(app, tmp_path):
    new = NewTrajectories(tmp_path / "spool")
    with art_otel.rollout(name="a"):
        app.ask("one")
    (given,) = new.take()
    art_otel.reward(0.25, rollout_id=given.rollout_id)
    assert (given.reward, with_later_rewards(given).reward) == (None, 0.25)


def test_loops_are_given_what_comes_and_keep_the_rest_for_later(app, tmp_path):
    new = NewTrajectories(tmp_path / "spool")

    def roll(name: str, group_id: str) -> None:
        with art_otel.rollout(name=name, group_id=group_id):
            app.ask("one")

    async def first_of(stream):
        async with asyncio.timeout(30), aclosing(stream):
            return await anext(stream)

    async def run():
        async with asyncio.timeout(30):
            coming = asyncio.create_task(anext(new))
            await asyncio.sleep(0)
            roll("a", "g")
            assert (await coming).name == "a"
        for name, group_id in (("b", "g"), ("c", "h"), ("d", "g"), ("e", "h")):
            roll(name, group_id)
        group = await first_of(new.groups(size=2))
        assert len({one.group_id for one in group}) == 1
        other = await first_of(new.groups(size=2))
        assert {one.name for one in (*group, *other)} == {"b", "c", "d", "e"}
        roll("f", "i")
        late = await first_of(new.groups(size=2, timeout=0.01))
        assert [one.name for one in late] == ["f"]
        with pytest.raises(UsageError, match=r"groups\(size=0\)"):
            await first_of(new.groups(size=0))
        roll("g", "i")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5), aclosing(new.groups(size=2)) as groups:
                await anext(groups)

    asyncio.run(run())
    assert ids(new.take()) == [("g", 0, 1, True)]
    roll("h", "i")

    async def fail():
        async with asyncio.timeout(30), new:
            async for one in new:
                raise ValueError(one.name)

    for _ in range(2):
        with pytest.raises(ValueError, match="h"):
            asyncio.run(fail())
    assert ids(new.take()) == [("h", 0, 1, True)], "what was not handled is given again"
    assert new.take() == []


def test_a_folder_that_does_not_exist_is_told_once_and_may_come_later(app, tmp_path, caplog):
    new = NewTrajectories(tmp_path / "elsewhere")
    assert new.take() == new.take() == []
    (told,) = caplog.records
    assert f"{tmp_path / 'elsewhere'} does not exist" in told.getMessage()
    with art_otel.rollout(name="a"):
        app.ask("one")
    (tmp_path / "spool").rename(tmp_path / "elsewhere")
    assert ids(new.take()) == [("a", 0, 1, True)]
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError, match="give the folder"):
        NewTrajectories(tmp_path / "file").take()


def test_what_others_do_not_count_is_given_when_it_is_quiet(tmp_path):
    spool = SpoolWriter(tmp_path)
    patient, quick = NewTrajectories(tmp_path, grace=1e9), NewTrajectories(tmp_path, grace=0)
    spool.write(json.dumps(request_of(make_span(1, name="root"))).encode() + b"\n")
    spool.write(json.dumps(request_of(chat_span(2, 1, ["q"], "a"))).encode() + b"\n")
    assert [len(one.calls) for one in quick.take()] == [1]
    spool.write(json.dumps(request_of(chat_span(3, 1, ["q", "a", "r"], "b"))).encode() + b"\n")
    assert [(len(one.calls), one.revision) for one in quick.take()] == [(2, 1)]
    assert patient.take() == []


def test_a_rollout_that_never_ends_is_given_unfinished_after_the_grace(app, tmp_path):
    new, quick = NewTrajectories(tmp_path / "spool"), NewTrajectories(tmp_path / "spool", grace=0)
    running = art_otel.rollout(name="a")
    with running:
        app.ask("one")
        assert new.take() == []
        (given,) = quick.take()
        assert (given.status, given.complete, given.revision) == ("unfinished", False, 0)
    for each, revision in ((new, 0), (quick, 1)):
        (given,) = each.take()
        assert (given.status, given.complete, given.revision) == ("ok", True, revision)


def test_what_cannot_be_read_is_said_and_costs_nothing_else(app, tmp_path, caplog):
    app.spool.write(b"{ no JSON\n")
    with art_otel.rollout(name="a"):
        app.ask("one")
    assert ids(NewTrajectories(tmp_path / "spool").take()) == [("a", 0, 1, True)]
    assert "10 bytes of " in caplog.text


def test_what_is_gathered_is_what_the_spool_gives(app, tmp_path):
    new = NewTrajectories(tmp_path / "spool")

    @art_otel.rollout
    async def agent(number: int) -> None:
        await app.ask_later(f"{number}")

    for step in range(3):
        gathered = asyncio.run(art_otel.gather_trajectories(agent(step * 4 + number) for number in range(4)))
        taken = new.take()
        assert {one.rollout_id: one for one in taken} == {one.rollout_id: replace(one, result=None) for one in gathered}
        assert sorted(questions(one)[0] for one in taken) == sorted(str(step * 4 + number) for number in range(4))


DUMPS = [
    RECORDINGS / "openinference" / "sync_tools.jsonl",
    RECORDINGS / "traceloop" / "responses_api.jsonl",
    RECORDINGS / "genai_event" / "n2.jsonl",
    RECORDINGS / "genai_event" / "n2.logs.jsonl",
]
SINGLE = explode(*DUMPS)


@pytest.fixture(scope="module")
def converted(tmp_path_factory):
    trajectories, _ = convert_files(tmp_path_factory.mktemp("out"), *DUMPS)
    return {one.order: one for one in trajectories}


@pytest.mark.long
@settings(max_examples=examples(100), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 1 << 32))
def test_whatever_the_order_and_the_looks_the_last_revision_is_what_a_dump_gives(converted, seed):
    chance = Random(seed)
    records = [record for record in SINGLE for _ in range(chance.choice([1, 1, 2]))]
    chance.shuffle(records)
    with tempfile.TemporaryDirectory() as folder:
        spools = [SpoolWriter(Path(folder), max_file_bytes=chance.choice([1, 10**9])) for _ in range(3)]
        grace = chance.choice([0, 1e9])
        new, last = NewTrajectories(folder, grace=grace), {}
        while records:
            some, records = records[:3], records[3:]
            line = joined(some)
            chance.choice(spools).write((line if isinstance(line, str) else json.dumps(line)).encode() + b"\n")
            if chance.random() < 0.3:
                last |= taken(new, last)
        new._cursor.arriving._grace = 0
        last |= taken(new, last)
    # What was quiet too long may have been given before the span came that has its rollout's id.
    assert {order: replace(last[order], revision=0) for order in (last if grace else converted)} == converted


def taken(new: NewTrajectories, last: dict) -> dict:
    """What is new, each the next revision of what was given before."""
    given = {one.order: one for one in new.take()}
    for order, one in given.items():
        assert one.revision == (last[order].revision + 1 if order in last else 0)
    return given


class Spool:
    """A spool that spans are written to by hand, and who asks for what is new: `patient` waits for counts only."""

    def __init__(self, folder: Path) -> None:
        self.writer = SpoolWriter(folder)
        self.patient = NewTrajectories(folder, grace=1e9)

    def write(self, *spans: dict) -> None:
        for span in spans:
            assert self.writer.write(json.dumps(request_of(span)).encode() + b"\n")


def root(number: int, name: str, parent: int | None = None, *, trace: int = 1, spans: int = 1, **more) -> dict:
    counted = {"art.rollout.id": name, "art.rollout.spans.started": spans, **more}
    return make_span(number, parent, trace=trace, name=f"rollout {name}", attributes=counted)


def call(number: int, parent: int, name: str | None, *, trace: int = 1, question: str = "q") -> dict:
    belongs = {} if name is None else {"art.rollout.id": name}
    return chat_span(number, parent, [question], "a", trace=trace, attributes=belongs)


def test_all_that_was_counted_is_waited_for(tmp_path):
    spool = Spool(tmp_path)
    spool.write(root(1, "r", spans=2), call(2, 1, "r"))
    assert spool.patient.take() == []
    spool.write(call(2, 1, "r"))
    assert spool.patient.take() == [], "the same again"
    spool.write(call(3, 1, "r", question="r"))
    assert [(one.rollout_id, len(one.calls), one.complete) for one in spool.patient.take()] == [("r", 2, True)]


def test_a_reward_that_links_to_what_it_judges_gives_it_again(tmp_path):
    spool = Spool(tmp_path)
    spool.write(root(1, "r"), call(2, 1, "r"), root(11, "s", trace=2), call(12, 11, "s", trace=2))
    assert [(one.rollout_id, one.reward) for one in spool.patient.take()] == [("r", None), ("s", None)]
    link = {"traceId": f"{1:032x}", "spanId": f"{1:016x}"}
    spool.write(make_span(21, trace=3, name="reward late", links=[link], attributes={"art.reward": 0.5}))
    spool.patient._cursor.arriving._grace = 0
    assert [(one.rollout_id, one.reward, one.revision) for one in spool.patient.take()] == [("r", 0.5, 1)]


def test_a_rollout_that_a_service_made_up_is_part_of_the_one_around_it(tmp_path):
    spool = Spool(tmp_path)
    guessed = make_span(5, 1, name="POST /", attributes={"art.rollout.id": "made up", "art.rollout.provisional": True})
    spool.write(call(6, 5, "made up"), guessed)
    assert spool.patient.take() == []
    spool.write(root(1, "r"), call(2, 1, "r", question="own"))
    (given,) = spool.patient.take()
    assert (given.rollout_id, len(given.calls)) == ("r", 2)


def test_a_trace_of_many_rollouts_is_not_read_again_for_each(tmp_path, monkeypatch):
    from art_otel.live import new_trajectories  # noqa: PLC0415 # to count what it reads

    read = []
    assemble = new_trajectories.assemble
    monkeypatch.setattr(
        new_trajectories, "assemble", lambda lines, *rules: assemble(read.append(list(lines)) or read[-1], *rules)
    )
    spool = Spool(tmp_path)
    for number in range(20):
        spool.write(root(2 * number + 1, f"r{number}", parent=1000), call(2 * number + 2, 2 * number + 1, f"r{number}"))
        assert [one.rollout_id for one in spool.patient.take()] == [f"r{number}"]
    assert [len(lines) for lines in read] == [2] * 20


def test_what_nothing_came_of_for_long_is_forgotten(tmp_path):
    spool = Spool(tmp_path)
    spool.write(root(1, "r"), call(2, 1, "r"))
    assert len(spool.patient.take()) == 1
    spool.patient._cursor.arriving._max_age = -1
    spool.patient._cursor.arriving._forgot_at = 0  # it looks once a minute
    assert spool.patient.take() == []
    assert not spool.patient._cursor.arriving._spans
    assert not spool.patient._cursor.arriving._of_trace
