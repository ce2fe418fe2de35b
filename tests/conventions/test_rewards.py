"""Rewards are finite numbers, labels, or bad and said to be so."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from art_otel.conventions import BadReward, RecordedReward, evaluation_attributes, rewards_of, rewards_of_log
from art_otel.conventions.rewards import is_part, part_attributes
from tests.conventions.builders import event, log, span

RESULT = "gen_ai.evaluation.result"


def values_of(found):
    return [(reward.name, reward.value) for reward in found]


def test_an_evaluation_event():
    attributes = {
        "gen_ai.evaluation.name": "accuracy",
        "gen_ai.evaluation.score.value": 0.5,
        "gen_ai.evaluation.score.label": "half",
        "gen_ai.evaluation.explanation": "why",
        "gen_ai.response.id": "r",
    }
    expected = RecordedReward(
        name="accuracy",
        value=0.5,
        time_ns=15,
        source="evaluation",
        label="half",
        explanation="why",
        response_id="r",
    )
    assert rewards_of(span(events=[event(RESULT, attributes), event("other")])) == [expected]
    assert rewards_of_log(log(RESULT, attributes=attributes)) == [expected]
    assert rewards_of_log(log(RESULT, body=attributes)) == [expected]
    assert rewards_of_log(log("", attributes={"event.name": RESULT, **attributes})) == [expected]
    assert rewards_of_log(log("gen_ai.choice", attributes=attributes)) == []


def test_a_label_alone_is_a_reward_without_a_value():
    (found,) = rewards_of(span(events=[event(RESULT, {"gen_ai.evaluation.score.label": "pass"})]))
    assert (found.name, found.value, found.label) == ("evaluation", None, "pass")


def test_neither_score_nor_label_is_bad():
    (found,) = rewards_of(span(events=[event(RESULT, {"gen_ai.evaluation.name": "x"})]))
    assert found == BadReward(name="x", detail="has neither a score nor a label")


def test_our_attribute_and_the_proposed_one():
    found = rewards_of(span({"art.reward": 1, "rl.reward.score": "0.5", "rl.reward.name": "style"}))
    assert values_of(found) == [("reward", 1.0), ("style", 0.5)]
    assert [reward.source for reward in found] == ["attribute", "rl"]
    assert [reward.time_ns for reward in found] == [20, 20]
    assert rewards_of(span({"rl.reward.score": 1}, end_ns=None))[0].time_ns == 10


def test_a_reward_span():
    on_event = span(
        name="reward style",
        events=[event(RESULT, {"gen_ai.evaluation.name": "style", "gen_ai.evaluation.score.value": 1})],
    )
    on_attributes = span({"gen_ai.evaluation.name": "style", "gen_ai.evaluation.score.value": 1}, name="reward style")
    ours = span({"art.reward": 1}, name="reward style")
    for one in (on_event, on_attributes, ours):
        (found,) = rewards_of(one)
        assert (found.name, found.value, found.source) == ("style", 1.0, "reward_span")


def test_agent_lightning():
    attributes = {
        "agentlightning.reward.0.name": "primary",
        "agentlightning.reward.0.value": 0.75,
        "agentlightning.reward.1.name": "speed",
        "agentlightning.reward.1.value": "0.5",
        "agentlightning.link.0.key_match": "trace_id",
        "agentlightning.link.0.value_match": "t",
        "agentlightning.link.1.key_match": "gen_ai.response.id",
        "agentlightning.link.1.value_match": "r",
    }
    found = rewards_of(span(attributes, name="agentlightning.annotation"))
    assert values_of(found) == [("reward", 0.75), ("speed", 0.5)]
    assert {(reward.source, reward.response_id) for reward in found} == {("agentlightning", "r")}
    assert rewards_of(span(attributes, name="elsewhere")) == []


def test_agent_lightnings_primary_reward_is_the_reward_and_keeps_its_name():
    attributes = {"agentlightning.reward.0.name": "style", "agentlightning.reward.0.value": 1}
    assert values_of(rewards_of(span(attributes, name="agentlightning.annotation"))) == [
        ("reward", 1.0),
        ("style", 1.0),
    ]
    unnamed = span({"agentlightning.reward.0.value": 1}, name="agentlightning.annotation")
    assert values_of(rewards_of(unnamed)) == [("reward", 1.0)]


@pytest.mark.parametrize("name", ["agentlightning.annotation", "agentlightning.reward"])
def test_agent_lightning_before(name):
    assert values_of(rewards_of(span({"reward": 0.5}, name=name))) == [("reward", 0.5)]


@pytest.mark.parametrize("name", ["agentops.task.output", "agentops.entity.output"])
def test_agentops_outputs(name):
    assert values_of(rewards_of(span({name: '{"type": "reward", "value": 0.5}'}))) == [("reward", 0.5)]
    assert rewards_of(span({name: '{"type": "reward", "value": null}'})) == []
    assert rewards_of(span({name: '{"type": "text", "value": 1}'})) == []
    assert rewards_of(span({name: '{"type": "reward", "val'})) == []
    assert rewards_of(span({name: "text"})) == []


@pytest.mark.parametrize(
    ("recorded", "value"), [(1, 1.0), (True, 1.0), (False, 0.0), ("0.5", 0.5), ("true", 1.0), ("-1e-3", -0.001)]
)
def test_numbers_of_any_type(recorded, value):
    assert values_of(rewards_of(span({"art.reward": recorded}))) == [("reward", value)]


@pytest.mark.parametrize(
    "recorded", ["nan", float("nan"), float("inf"), "Infinity", "high", "", None, [1.0], {}, 10**400, "1_0", b"1"]
)
def test_bad_rewards(recorded):
    (found,) = rewards_of(span({"art.reward": recorded}))
    assert isinstance(found, BadReward)
    assert found.name == "reward"


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_finite_float_is_given_as_it_is(value):
    assert values_of(rewards_of(span({"art.reward": value}))) == [("reward", value)]


GIVING = st.dictionaries(
    st.sampled_from(
        [
            *("art.reward", "rl.reward.score", "rl.reward.name", "reward", "http.method"),
            *("gen_ai.evaluation.score.value", "gen_ai.evaluation.score.label", "gen_ai.evaluation.name"),
            *("agentlightning.reward.0.value", "agentops.task.output", "agentops.entity.output"),
        ]
    ),
    st.sampled_from([1.0, "good", '{"type": "reward", "value": 2}']),
    max_size=3,
)
NAMES = st.sampled_from(["GET /", "reward x", "agentlightning.annotation", "agentlightning.reward"])


@given(GIVING, NAMES)
def test_an_event_that_is_no_reward_changes_nothing(attributes, name):
    told = rewards_of(span(attributes, name=name))
    assert told == rewards_of(span(attributes, name=name, events=[event("exception")]))


PART = ("art.reward.choice", "art.reward.token_start", "art.reward.token_end")


def part_of(*recorded, name="span", event_attributes=None):
    told = {key: value for key, value in zip(PART, recorded, strict=True) if value is not None}
    if event_attributes is None:
        return rewards_of(span({"art.reward": 1.0} | told, name=name))[0]
    return rewards_of(span(events=[event(RESULT, event_attributes | told)]))[0]


@pytest.mark.parametrize(
    ("recorded", "part"),
    [
        ((None, None, None), (None, None, None)),
        ((1, None, None), (1, None, None)),
        ((None, 0, 3), (None, 0, 3)),
        ((0, 2, 3), (0, 2, 3)),
        (("1", "2", "3"), (1, 2, 3)),
        ((1.0, 2.0, 2**40), (1, 2, 2**40)),
    ],
)
@pytest.mark.parametrize("on_event", [True, False])
def test_the_part_of_a_call_that_is_judged(recorded, part, on_event):
    score = {"gen_ai.evaluation.score.value": 0.5, "gen_ai.response.id": "r"} if on_event else None
    found = part_of(*recorded, event_attributes=score)
    assert isinstance(found, RecordedReward)
    assert (found.choice, found.token_start, found.token_end) == part
    assert found.response_id == ("r" if on_event else None)


@pytest.mark.parametrize(
    "recorded",
    [
        *((-1, None, None), (None, 0, None), (None, None, 3), (1, 3, 3), (1, 4, 3), (None, -1, 3), (0, -3, -1)),
        *(("one", None, None), (True, None, None), (None, 0.5, 2), (None, "a", 2), (None, 0, [2]), (2**64, 0, 1)),
        *((None, {}, 1), (0, 0, float("nan"))),
    ],
)
@pytest.mark.parametrize("on_event", [True, False])
def test_a_part_that_no_call_has_is_bad(recorded, on_event):
    score = {"gen_ai.evaluation.name": "x", "gen_ai.evaluation.score.value": 0.5} if on_event else None
    found = part_of(*recorded, event_attributes=score)
    assert isinstance(found, BadReward)
    assert found.name == ("x" if on_event else "reward")
    assert "is for a part of a call that does not exist" in found.detail


@given(st.tuples(*[st.none() | st.integers(0, 2**63 - 1)] * 3))
def test_what_is_written_of_a_part_is_read_again(part):
    choice, start, end = part
    written = evaluation_attributes("n", 0.5) | part_attributes(choice, start, end)
    (found,) = rewards_of(span(events=[event(RESULT, written)]))
    assert isinstance(found, RecordedReward) == is_part(choice, start, end)
    if isinstance(found, RecordedReward):
        assert (found.choice, found.token_start, found.token_end) == part


def test_a_label_may_be_of_a_part_and_a_bad_reward_stays_what_it_is():
    labelled = part_of(0, 1, 2, event_attributes={"gen_ai.evaluation.score.label": "good"})
    assert (labelled.value, labelled.label, labelled.token_end) == (None, "good", 2)
    assert "no finite number" in part_of(0, 1, 2, event_attributes={"gen_ai.evaluation.score.value": "nan"}).detail
