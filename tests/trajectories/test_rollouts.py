"""What is a rollout, and which spans belong to it."""

from tests.conversions import convert_spans
from tests.dumps import chat_span, make_span

ID = "art.rollout.id"


def test_the_root_of_a_trace_with_calls_is_a_rollout(tmp_path):
    (trajectory,), report = convert_spans(tmp_path, make_span(1, name="handle"), chat_span(2, 1, ["hi"], "hello"))
    assert (trajectory.rollout_id, trajectory.name, trajectory.status) == (f"{1:032x}", "handle", "ok")
    assert trajectory.complete
    assert (trajectory.started_at, trajectory.ended_at) == (1_000_001, 2_000_001)
    assert report.spans.used == 2


def test_traces_without_calls_are_ignored_and_explained(tmp_path):
    trajectories, report = convert_spans(tmp_path, make_span(1), make_span(2, 1))
    assert trajectories == []
    assert report.spans.ignored == {"no LLM call in its trace": 2}
    (hint,) = report.hints
    assert hint.startswith("2 spans, no LLM call")


def test_globs_choose_rollouts(tmp_path):
    spans = [
        make_span(1, name="POST /solve"),
        make_span(2, 1, name="episode 1"),
        chat_span(3, 2, ["hi"], "one"),
        make_span(4, 1, name="episode 2"),
        chat_span(5, 4, ["hi"], "two"),
        chat_span(6, 1, ["judge"], "good"),
    ]
    trajectories, report = convert_spans(tmp_path, *spans, rollout_spans=["episode *"])
    assert [trajectory.name for trajectory in trajectories] == ["episode 1", "episode 2"]
    assert [trajectory.rollout_id for trajectory in trajectories] == [f"{1:032x}-{at:016x}" for at in (2, 4)]
    assert report.spans.ignored == {"outside every rollout": 2}


def test_a_rollout_id_gathers_spans_of_several_traces(tmp_path):
    spans = [
        make_span(1, name="rollout solve", attributes={ID: "r1"}),
        chat_span(2, 1, ["hi"], "one"),
        chat_span(3, 99, ["hi one more"], "two", trace=2, attributes={ID: "r1"}),
    ]
    (trajectory,), _ = convert_spans(tmp_path, *spans)
    assert trajectory.rollout_id == "r1"
    assert [call.trace_id[-1] for call in trajectory.calls] == ["1", "2"]
    assert trajectory.incomplete_reasons == {"missing parent": 1}


def test_an_unmarked_span_with_an_id_is_the_rollout_where_the_id_begins(tmp_path):
    spans = [
        make_span(1, name="task"),
        make_span(2, 1, name="attempt", attributes={ID: "r1"}),
        chat_span(3, 2, ["a"], "b"),
    ]
    (trajectory,), report = convert_spans(tmp_path, *spans)
    assert (trajectory.rollout_id, trajectory.name) == ("r1", "attempt")
    assert trajectory.complete
    assert report.spans.ignored == {"outside every rollout": 1}


def test_a_lone_call_with_an_id_is_its_own_rollout(tmp_path):
    call = chat_span(1, None, ["a"], "b", attributes={ID: "r"})
    reward = make_span(2, trace=2, name="reward x", attributes={ID: "r", "art.reward": 1.0})
    below = [make_span(3, trace=3), chat_span(4, 3, ["a"], "b", trace=3, attributes={ID: "r"})]
    for number, spans in enumerate(([call], [call, reward], below)):
        (trajectory,), _ = convert_spans(tmp_path / str(number), *spans)
        assert (trajectory.rollout_id, trajectory.status, len(trajectory.calls)) == ("r", "ok", 1)
        assert trajectory.complete


def test_calls_of_one_id_without_a_common_root_miss_it(tmp_path):
    calls = [chat_span(number, None, ["a"], "b", trace=number, attributes={ID: "r"}) for number in (1, 2)]
    (trajectory,), _ = convert_spans(tmp_path / "two", *calls)
    assert (trajectory.status, len(trajectory.calls)) == ("unfinished", 2)
    assert trajectory.incomplete_reasons == {"missing root": 1}
    (trajectory,), _ = convert_spans(tmp_path / "orphan", chat_span(1, 9, ["a"], "b", attributes={ID: "r"}))
    assert trajectory.incomplete_reasons == {"missing root": 1, "missing parent": 1}


def test_a_root_that_dropped_its_id_has_it_from_its_start(tmp_path):
    start = make_span(1, name="rollout x", attributes={ID: "r", "art.group.id": "g"}, endTimeUnixNano="0")
    root = make_span(1, name="rollout x", attributes={"art.metric.m": 1.0}, droppedAttributesCount=2)
    (trajectory,), report = convert_spans(tmp_path, start, root, chat_span(2, 1, ["a"], "b", attributes={ID: "r"}))
    assert (trajectory.rollout_id, trajectory.group_id, trajectory.name) == ("r", "g", "x")
    assert (trajectory.status, trajectory.metrics) == ("ok", {"m": 1.0})
    assert trajectory.incomplete_reasons == {"rollout attributes dropped": 1}
    assert report.spans.ignored == {"start of a span that ended": 1}


def test_a_nested_rollout_is_its_own_trajectory(tmp_path):
    spans = [
        make_span(1, name="rollout outer", attributes={ID: "outer"}),
        chat_span(2, 1, ["plan"], "delegate"),
        make_span(3, 1, name="rollout inner", attributes={ID: "inner"}),
        chat_span(4, 3, ["do"], "done", attributes={ID: "inner"}),
        chat_span(5, 1, ["plan", "delegate", "done"], "good", attributes={ID: "outer"}),
    ]
    trajectories, _ = convert_spans(tmp_path, *spans)
    inner, outer = trajectories
    assert (inner.rollout_id, inner.parent_rollout_id, len(inner.calls)) == ("inner", "outer", 1)
    assert (outer.rollout_id, outer.parent_rollout_id, len(outer.calls)) == ("outer", None, 2)
    assert inner.complete
    assert outer.complete


def test_attempts_of_one_rollout_are_trajectories_of_their_own(tmp_path):
    spans = [
        make_span(1, name="rollout x", attributes={ID: "r", "art.rollout.attempt": 1}),
        chat_span(2, 1, ["a"], "b", attributes={ID: "r"}),
        make_span(3, name="rollout x", trace=2, attributes={ID: "r", "art.rollout.attempt": 2}),
        chat_span(4, 3, ["a"], "c", trace=2, attributes={ID: "r"}),
    ]
    trajectories, _ = convert_spans(tmp_path, *spans)
    assert [(trajectory.attempt, len(trajectory.calls)) for trajectory in trajectories] == [(1, 1), (2, 1)]


def test_a_missing_root_leaves_an_incomplete_trajectory(tmp_path):
    (trajectory,), _ = convert_spans(tmp_path, chat_span(2, 1, ["a"], "b"), chat_span(3, 1, ["a", "b", "c"], "d"))
    assert (trajectory.rollout_id, trajectory.status) == (f"{1:032x}", "unfinished")
    assert trajectory.incomplete_reasons == {"missing root": 1, "missing parent": 2}
    assert [turn.parent for turn in trajectory.turns] == [None, 0]


def test_an_orphan_among_several_rollouts_goes_to_the_one_that_was_running(tmp_path):
    def rollout(number: int, name: str, start: int):
        times = {"startTimeUnixNano": str(start), "endTimeUnixNano": str(start + 100)}
        return make_span(number, 9, name=f"rollout {name}", attributes={ID: name}, **times)

    def orphan(number: int, start: int):
        return chat_span(number, 77, ["a"], "b", startTimeUnixNano=str(start), endTimeUnixNano=str(start + 1))

    spans = [make_span(9), rollout(1, "r1", 1_000), rollout(2, "r2", 2_000), orphan(3, 2_050), orphan(4, 5_000)]
    trajectories, _ = convert_spans(tmp_path, *spans)
    calls = {trajectory.rollout_id: [call.span_id[-1] for call in trajectory.calls] for trajectory in trajectories}
    assert calls == {"r1": [], "r2": ["3"], f"{1:032x}": ["4"]}


def test_what_the_rollout_span_says_is_in_the_trajectory(tmp_path):
    said = {
        ID: "r",
        "art.rollout.name": "solve",
        "art.group.id": "g",
        "art.split": "val",
        "art.training.step": 12,
        "art.policy.version": "v7",
        "art.metric.tokens": 3,
        "art.metadata.task": "t1",
        "app.user": "u",
        "art.reward": 0.5,
    }
    log = {
        "timeUnixNano": "5",
        "name": "art.log",
        "attributes": [{"key": "art.log.message", "value": {"stringValue": "hm"}}],
    }
    (trajectory,), _ = convert_spans(tmp_path, make_span(1, attributes=said, events=[log]))
    assert (trajectory.name, trajectory.group_id, trajectory.split) == ("solve", "g", "val")
    assert (trajectory.training_step, trajectory.reward) == (12, 0.5)
    assert (trajectory.policy_version.first, trajectory.policy_version.last) == ("v7", "v7")
    assert trajectory.metrics == {"tokens": 3.0}
    assert trajectory.metadata == {"app.user": "u", "task": "t1"}
    assert trajectory.logs == ("hm",)


def test_a_failed_and_a_cancelled_rollout_keep_their_calls(tmp_path):
    failed = {"code": 2, "message": "no luck"}
    spans = [
        make_span(1, name="rollout a", attributes={ID: "a"}, status=failed),
        chat_span(2, 1, ["a"], "b"),
        make_span(
            3,
            name="rollout b",
            trace=2,
            status={"code": 2},
            attributes={ID: "b", "error.type": "asyncio.CancelledError"},
        ),
    ]
    first, second = convert_spans(tmp_path, *spans)[0]
    assert (first.status, first.error, len(first.calls)) == ("error", "no luck", 1)
    assert second.status == "cancelled"


def test_a_rollout_that_never_ended_is_unfinished(tmp_path):
    (trajectory,), _ = convert_spans(
        tmp_path, make_span(1, name="rollout x", attributes={ID: "r"}, endTimeUnixNano="0"), chat_span(2, 1, ["a"], "b")
    )
    assert (trajectory.status, trajectory.ended_at) == ("unfinished", None)
    assert trajectory.incomplete_reasons == {"not ended": 1}


def test_what_cannot_be_read_as_meant_stays_visible_as_metadata(tmp_path):
    said = {
        ID: "r",
        "art.metric.x": "abc",
        "art.rollout.attempt": "first",
        "art.env_state": "{}",
        "art.metric.y": "1.5",
    }
    root = make_span(1, name="rollout x", attributes=said)
    root["attributes"].append({"key": "raw", "value": {"bytesValue": "AQI="}})
    (trajectory,), _ = convert_spans(tmp_path, root)
    assert trajectory.metadata == {
        "art.env_state": "{}",
        "art.metric.x": "abc",
        "art.rollout.attempt": "first",
        "raw": "AQI=",
    }
    assert (trajectory.metrics, trajectory.attempt) == ({"y": 1.5}, None)


def test_a_call_that_is_its_own_rollout_leaves_no_content_in_the_metadata(tmp_path):
    call = chat_span(1, None, ["a"], "b", attributes={"art.tokens.prompt": "i4:1:AQAAAA==", "app.user": "u"})
    (trajectory,), _ = convert_spans(tmp_path, call)
    assert trajectory.metadata == {"app.user": "u"}
    assert trajectory.calls[0].prompt_token_ids.tolist() == [1]


def test_a_call_without_a_parent_belongs_to_the_rollout_of_its_trace(tmp_path):
    spans = [make_span(1, name="rollout x", attributes={ID: "r"}), chat_span(2, None, ["a"], "b")]
    (trajectory,), report = convert_spans(tmp_path, *spans)
    assert len(trajectory.calls) == 1
    assert trajectory.complete
    assert report.spans.used == 2


def test_a_rollout_span_may_be_an_agent_or_have_no_name_of_its_own(tmp_path):
    agent = {ID: "r", "openinference.span.kind": "AGENT", "art.reward": 0.5}
    for name in ("rollout", "solve"):
        spans = [make_span(1, name=name, attributes=agent), chat_span(2, 1, ["a"], "b", attributes={ID: "r"})]
        (trajectory,), _ = convert_spans(tmp_path / name, *spans)
        assert (trajectory.status, trajectory.reward, trajectory.complete) == ("ok", 0.5, True)


def test_a_rollout_span_below_its_own_rollout_is_a_part_of_it(tmp_path):
    spans = [
        make_span(1, name="rollout x", attributes={ID: "r"}),
        make_span(2, 1, name="retry"),
        make_span(3, 2, name="rollout x", attributes={ID: "r"}),
    ]
    (trajectory,), report = convert_spans(tmp_path, *spans)
    assert trajectory.trace_id == f"{1:032x}"
    assert report.spans.used == 3


def test_an_orphan_with_the_id_of_several_attempts_goes_to_the_one_that_was_running(tmp_path):
    def attempt(number: int, start: int):
        times = {"startTimeUnixNano": str(start), "endTimeUnixNano": str(start + 100)}
        return make_span(number, name="rollout x", trace=number, attributes={ID: "r"}, **times)

    times = {"startTimeUnixNano": "1050", "endTimeUnixNano": "1060"}
    call = chat_span(3, 77, ["a"], "b", trace=3, attributes={ID: "r"}, **times)
    trajectories, _ = convert_spans(tmp_path, attempt(1, 1_000), attempt(2, 2_000), call)
    assert [len(trajectory.calls) for trajectory in trajectories] == [1, 0]
