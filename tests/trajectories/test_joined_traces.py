"""Traces that share the value of an attribute are one rollout: what proxies and chats write, a trace a request."""

import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

import art_otel
from art_otel.cli import main
from art_otel.engines import Times
from art_otel.errors import UsageError
from art_otel.spool import SpoolWriter
from art_otel.store import read_trajectories
from art_otel.trajectories import histories
from tests.conversions import SMALL, convert_files, convert_spans
from tests.dumps import chat_span, make_span, request_of, write_lines

NAME = "session.id"
JOINED = {"rollout_attributes": [NAME]}
RECORDED = Path(__file__).parent.parent / "dialects"
TALK = ["q1", "a1", "q2", "a2", "q3", "a3"]


def in_session(session, **attributes):
    return {NAME: session, **attributes}


def exchange(turn, session, *, trace=None, **attributes):
    """A request to a proxy, which is a trace of its own; the call below says of which session it is."""
    trace, first = trace or turn, 10 * turn
    yield make_span(first, trace=trace, name="POST /chat")
    yield make_span(first + 1, first, trace=trace, name="look up", attributes={"gen_ai.operation.name": "execute_tool"})
    known = in_session(session, **attributes)
    yield chat_span(first + 2, first, TALK[: 2 * turn - 1], TALK[2 * turn - 1], trace=trace, attributes=known)


def conversation(session="s1", turns=3):
    return [span for turn in range(1, turns + 1) for span in exchange(turn, session)]


def test_a_conversation_over_several_traces_is_one_rollout(tmp_path):
    apart, _ = convert_spans(tmp_path / "apart", *conversation())
    assert len(apart) == 3
    (one,), report = convert_spans(tmp_path, *conversation(), **JOINED)
    assert (one.rollout_id, one.status, one.complete, one.name) == ("s1", "ok", True, "POST /chat")
    assert [call.choices[0].message.content for call in one.calls] == ["a1", "a2", "a3"]
    assert [message.message.content for message in histories(one)[0].messages] == TALK
    assert len(histories(one)) == 1
    assert (one.started_at, one.ended_at) == (1_000_010, 2_000_030)
    assert len(one.tool_calls) == 3  # what says nothing goes along with its trace
    assert report.spans.used == report.spans.read
    assert report.hints == []


def test_a_recording_of_pydantic_ai(tmp_path):
    recording = RECORDED / "pydantic_v2_result_object.jsonl"
    apart, _ = convert_files(tmp_path / "apart", recording)
    found, _ = convert_files(tmp_path / "out", recording, rollout_attributes=["gen_ai.conversation.id"])
    outer = [one for one in found if one.parent_rollout_id is None]
    assert sum(len(one.calls) for one in found) == sum(len(one.calls) for one in apart)
    assert len(outer) == 1 < len(apart)
    assert all(one.complete and len(histories(one)) == 1 for one in found)
    assert {one.parent_rollout_id for one in found} <= {None, outer[0].rollout_id}


def test_rewards_find_a_joined_rollout_and_what_is_in_it(tmp_path):
    last = make_span(30, trace=3)
    linked = [{"traceId": last["traceId"], "spanId": last["spanId"]}]
    call = [{"traceId": f"{2:032x}", "spanId": f"{22:016x}"}]
    spans = [
        *conversation(),
        make_span(1, trace=50, name="reward by id", attributes={"art.rollout.id": "s1", "art.reward": 0.1}),
        make_span(1, trace=51, name="reward by trace", attributes={"art.rollout.id": f"{2:032x}", "art.reward": 0.2}),
        make_span(1, trace=52, name="reward by span", attributes={"art.reward": 0.3}, links=linked),
        make_span(1, trace=53, name="reward of call", attributes={"art.reward": 0.4}, links=call),
    ]
    for number, order in enumerate((spans, spans[::-1])):
        (one,), report = convert_spans(tmp_path / str(number), *order, sizes=SMALL, **JOINED)
        assert report.rewards.undeliverable == {}
        assert {(reward.value, reward.target) for reward in one.rewards} == {
            (0.1, None),
            (0.2, None),
            (0.3, None),
            (0.4, f"{22:016x}"),
        }


def test_values_in_one_trace_are_rollouts_of_their_own(tmp_path):
    spans = [
        make_span(1, name="batch"),
        make_span(2, 1, name="agent", attributes=in_session("a")),
        chat_span(3, 2, ["q"], "of a"),
        make_span(4, 3, name="agent", attributes=in_session("b")),
        chat_span(5, 4, ["q"], "of b"),
        chat_span(6, 1, ["q"], "of none"),
        chat_span(7, None, ["q"], "of a too", trace=2, attributes=in_session("a")),
    ]
    found, _ = convert_spans(tmp_path, *spans, **JOINED)
    assert {one.rollout_id: [call.choices[0].message.content for call in one.calls] for one in found} == {
        "a": ["of a", "of a too"],
        "b": ["of b"],
        f"{1:032x}": ["of none"],
    }
    assert {one.rollout_id: one.parent_rollout_id for one in found} == {"a": None, "b": "a", f"{1:032x}": None}
    assert all(one.complete for one in found)


def test_the_first_of_several_names_decides_and_a_resource_speaks_for_its_process(tmp_path):
    talk = {"gen_ai.conversation.id": "c1"}
    dump = write_lines(
        tmp_path / "dump.jsonl",
        [
            request_of(chat_span(1, None, ["q1"], "a1", trace=1, attributes=talk | in_session("s1"))),
            request_of(chat_span(2, None, ["q2"], "a2", trace=2), resource={NAME: "s1"}),
            request_of(chat_span(3, None, ["q3"], "a3", trace=3, attributes=talk)),
            request_of(chat_span(4, None, ["q4"], "a4", trace=4, attributes={NAME: 7})),
            request_of(chat_span(5, None, ["q5"], "a5", trace=5, attributes={NAME: ""})),
        ],
    )
    found, _ = convert_files(tmp_path / "out", dump, rollout_attributes=[NAME, "gen_ai.conversation.id"])
    assert {one.rollout_id: len(one.calls) for one in found} == {"s1": 2, "c1": 1, "7": 1, f"{5:032x}": 1}


def test_what_somebody_meant_stays_and_what_was_made_up_does_not_count(tmp_path):
    explicit, made_up = {"art.rollout.id": "r1"}, {"art.rollout.id": "random", "art.rollout.name": "POST /chat"}
    told = {"art.rollout.id": "process", "art.rollout.joined_id": "s2"}
    spans = [
        make_span(1, name="rollout task", attributes=explicit | in_session("s1")),
        chat_span(7, None, ["q"], "elsewhere", trace=6, attributes=explicit | in_session("s1")),
        chat_span(2, 1, ["q"], "explicit", attributes=explicit | in_session("s1")),
        make_span(3, trace=2, name="POST /chat", attributes=made_up),
        chat_span(4, 3, ["q1"], "a1", trace=2, attributes={"art.rollout.id": "random"} | in_session("s2")),
        chat_span(5, None, ["q2"], "a2", trace=3, attributes=told),
        make_span(6, trace=4, name="rollout python", attributes={"art.rollout.id": "process"}),
        make_span(1, trace=50, name="reward late", attributes={"art.rollout.id": "random", "art.reward": 1.0}),
    ]
    found, report = convert_spans(tmp_path, *spans, **JOINED)
    assert {one.rollout_id: len(one.calls) for one in found} == {"r1": 2, "s2": 2}
    assert {one.rollout_id: one.reward for one in found} == {"r1": None, "s2": 1.0}
    assert report.spans.ignored == {"no LLM call in its trace": 1}


def test_traces_without_the_attribute_or_without_calls_are_as_before(tmp_path):
    spans = [
        make_span(1, name="POST /chat"),
        chat_span(2, 1, ["q"], "a"),
        make_span(3, trace=2, name="click", attributes=in_session("s1")),
    ]
    (one,), report = convert_spans(tmp_path, *spans, **JOINED)
    assert one.rollout_id == f"{1:032x}"
    assert report.spans.ignored == {"no LLM call in its trace": 1}


def test_a_failure_is_that_of_the_last_request(tmp_path):
    failed = {"status": {"code": 2, "message": "boom"}}
    spans = conversation()
    spans[0] |= failed
    (one,), _ = convert_spans(tmp_path / "first", *spans, **JOINED)
    assert one.status == "ok"
    spans[6] |= failed
    (one,), _ = convert_spans(tmp_path / "last", *spans, **JOINED)
    assert (one.status, one.error) == ("error", "boom")


def test_no_split_order_or_number_of_workers_matters(tmp_path):
    spans = [span for session in range(6) for span in session_of(session)]
    dump = write_lines(tmp_path / "0.jsonl", map(request_of, spans))
    expected, _ = convert_files(tmp_path / "one", dump, **JOINED)
    assert {one.rollout_id: len(one.calls) for one in expected} == {f"s{session}": 3 for session in range(6)}
    Random(0).shuffle(spans)
    parts = [write_lines(tmp_path / f"{at}.jsonl", map(request_of, spans[at::4])) for at in range(4)]
    found, _ = convert_files(tmp_path / "two", *parts, workers=2, sizes=SMALL, **JOINED)
    assert sorted(found, key=lambda one: one.order) == sorted(expected, key=lambda one: one.order)


def session_of(session):
    for turn in range(1, 4):
        yield from exchange(turn, f"s{session}", trace=100 * session + turn)


def test_rounds_give_the_rows_of_one_conversion(tmp_path):
    (expected,), _ = convert_spans(tmp_path / "once", *conversation(), **JOINED)
    source, now = tmp_path / "in", 2_000_000_000 * 10**9
    seen = []
    for turn in (1, 3, 2):
        now += 1000 * 10**9
        path = write_lines(source / f"{turn}.jsonl", map(request_of, exchange(turn, "s1")))
        os.utime(path, ns=(now, now))
        for pause in (1, 1000):  # nothing is given before the grace
            now += pause * 10**9
            times = Times(grace=900.0, now=now)
            found, _ = convert_files(tmp_path / "out", source, incremental=True, times=times, **JOINED)
            seen.append([(one.rollout_id, one.revision, len(one.calls)) for one in found])
    assert seen == [[], [("s1", 0, 1)], [("s1", 0, 1)], [("s1", 1, 2)], [("s1", 1, 2)], [("s1", 2, 3)]]
    assert replace(next(iter(read_trajectories(tmp_path / "out"))), revision=0) == expected
    with pytest.raises(UsageError, match="was converted with --rollout-attribute"):
        convert_files(tmp_path / "out", source, incremental=True)


def test_the_command_and_the_function(tmp_path, capsys):
    dump = write_lines(tmp_path / "dump.jsonl", map(request_of, conversation()))
    assert main(["convert", str(dump), "--out", str(tmp_path / "a"), "--rollout-attribute", NAME]) == 0
    assert "1 trajectory" in capsys.readouterr().out
    report = art_otel.convert(dump, tmp_path / "b", rollout_attributes=NAME)
    assert report.trajectories.complete == 1


def spooled(spool, *spans):
    for span in spans:
        spool.write(json.dumps(request_of(span)).encode() + b"\n")


def test_a_spool_gives_a_joined_rollout_after_the_grace_and_again_with_more(tmp_path):
    spool = SpoolWriter(tmp_path / "spool/run")
    new = art_otel.NewTrajectories(tmp_path / "spool", grace=0.3, rollout_attributes=[NAME])
    for turn in (1, 2, 3):
        spooled(spool, *exchange(turn, "s1"))
        assert new.take() == []
        time.sleep(0.4)
        assert [(one.rollout_id, one.revision, len(one.calls)) for one in new.take()] == [("s1", turn - 1, turn)]
        assert new.take() == []


def test_a_meant_rollout_in_a_session_is_given_once(tmp_path):
    counts = {"art.rollout.spans.started": 1, "art.rollout.spans.ended": 1}
    spool = SpoolWriter(tmp_path / "spool/run")
    new = art_otel.NewTrajectories(tmp_path / "spool", grace=0.3, rollout_attributes=[NAME])
    explicit = {"art.rollout.id": "r1"} | in_session("s1")
    spans = [
        make_span(1, name="rollout task", attributes=explicit | counts),
        chat_span(2, 1, ["q"], "explicit", attributes=explicit),
    ]
    spooled(spool, *spans)
    assert [(one.rollout_id, one.revision) for one in new.take()] == [("r1", 0)]
    time.sleep(0.4)
    assert new.take() == []
    spooled(spool, *exchange(2, "s1"))
    assert new.take() == []
    time.sleep(0.4)
    assert [(one.rollout_id, one.revision) for one in new.take()] == [("s1", 0)]


APP = """
import art_otel
from opentelemetry import trace

recording = art_otel.configure()
tracer = trace.get_tracer("framework")
chat = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m"}
for question in ("a", "b"):
    with tracer.start_as_current_span("POST /answer"):
        with tracer.start_as_current_span("chat m", attributes=chat) as call:
            call.set_attribute("session.id", "s1")
    with tracer.start_as_current_span("chat m", attributes=chat) as lone:
        lone.set_attribute("session.id", "s2")

@art_otel.rollout
def meant():
    with tracer.start_as_current_span("chat m", attributes=chat | {"session.id": "s1"}):
        pass

meant()
recording.shutdown()
"""


@pytest.mark.parametrize("setting", ["app", "reader"])
def test_what_a_live_app_made_up_gives_way(setting, tmp_path):
    """With the app's setting every reader of its spool joins; without it the one who is told."""
    environment = {**os.environ, "OTEL_TRACES_EXPORTER": "none"}
    if setting == "app":
        environment["ART_OTEL_ROLLOUT_ATTRIBUTES"] = "gen_ai.conversation.id, session.id"
    subprocess.run([sys.executable, "-c", APP], cwd=tmp_path, env=environment, check=True)
    options = {} if setting == "app" else JOINED
    found, report = convert_files(tmp_path / "out", tmp_path / ".art/spool", **options)
    calls = {one.rollout_id: len(one.calls) for one in found}
    assert calls.pop("s1") == 2
    if setting == "app":  # what is in the rollout of the process
        assert calls.pop("s2") == 2
    assert sorted(calls.values()) == ([1] if setting == "app" else [1, 2])
    assert "meant" in {one.name for one in found}
    assert report.spans.quarantined == {}


def of_every_kind():
    """Two conversations, values in one trace, a meant and a made-up rollout in a session, and rewards for them."""
    for session in range(2):
        yield from session_of(session)
    yield make_span(1, trace=500, name="batch")
    yield make_span(2, 1, trace=500, name="agent", attributes=in_session("s0"))
    yield chat_span(3, 2, ["q"], "x", trace=500)
    yield make_span(4, 1, trace=500, name="agent", attributes=in_session("b"))
    yield chat_span(5, 4, ["q"], "y", trace=500)
    yield chat_span(6, 1, ["q"], "z", trace=500)
    meant, made_up = {"art.rollout.id": "r1"} | in_session("s1"), {"art.rollout.id": "m1"}
    counts = {"art.rollout.spans.started": 1, "art.rollout.spans.ended": 1}
    yield make_span(1, trace=600, name="rollout task", attributes=meant | counts)
    yield chat_span(2, 1, ["q"], "e", trace=600, attributes=meant)
    yield make_span(3, trace=601, name="POST /", attributes=made_up | {"art.rollout.name": "POST /"})
    yield chat_span(4, 3, ["q"], "m", trace=601, attributes=made_up | in_session("b"))
    link = [{"traceId": f"{2:032x}", "spanId": f"{22:016x}"}]
    yield make_span(1, trace=700, name="reward a", attributes={"art.reward": 0.5}, links=link)
    yield make_span(1, trace=701, name="reward b", attributes={"art.rollout.id": "s1", "art.reward": 0.25})
    yield make_span(1, trace=702, name="reward c", attributes={"art.rollout.id": "m1", "art.reward": 0.75})


def rows(trajectories):
    return sorted((replace(one, revision=0) for one in trajectories), key=lambda one: one.order)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(6))
def test_whatever_comes_when_the_rows_are_those_of_one_conversion(seed, tmp_path):
    chance, records = Random(seed), list(map(request_of, of_every_kind()))
    expected = rows(convert_files(tmp_path / "once", write_lines(tmp_path / "0.jsonl", records), **JOINED)[0])
    assert [one.rollout_id for one in expected] == [f"{500:032x}", "b", "r1", "s0", "s1"]
    delivered = [one for one in records for _ in range(chance.choice([1, 1, 2]))]
    chance.shuffle(delivered)
    parts = [delivered[at::4] for at in range(4)]
    spool = SpoolWriter(tmp_path / "spool/run")
    new = art_otel.NewTrajectories(tmp_path / "spool", grace=0, rollout_attributes=[NAME])
    now, last = 2_000_000_000 * 10**9, {}
    for number, part in enumerate([*parts, []]):
        now += chance.choice([1, 60, 1000]) * 10**9 if part else 1000 * 10**9
        path = write_lines(tmp_path / f"in/{number}.jsonl", part)
        os.utime(path, ns=(now, now))
        times = Times(grace=900.0, now=now)
        found, _ = convert_files(
            tmp_path / "out", tmp_path / "in", incremental=True, times=times, sizes=SMALL, **JOINED
        )
        for one in part:
            spool.write(json.dumps(one).encode() + b"\n")
        for one in new.take():
            assert one.rollout_id not in last or one.revision > last[one.rollout_id].revision
            last[one.rollout_id] = one
    assert rows(found) == expected
    assert rows(last[one.rollout_id] for one in expected) == expected
