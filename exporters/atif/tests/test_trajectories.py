"""Documents: every sampled message is trained once, and everything recorded is somewhere."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from art_otel.calls import Choice as Sampled
from art_otel.calls import InferenceCall, Logprobs, Message, TokenIds, ToolCall, Usage
from art_otel.exporting import export
from art_otel.testing import trajectories
from art_otel.trajectories import Trajectory, Turn
from art_otel_atif.documents import NULL_REWARD
from art_otel_atif.steps import UNTRAINED
from exporters.atif.tests.documents import encoded, histories_of, is_trained, one_document
from tests.data.rollouts import agent_rollouts, answer, assistant, call, chat, looking, rollout, user
from tests.exporting import samples
from tests.exporting.exported import EVERY, rewarded

TESTDATA = Path(__file__).parent.parent / "testdata"


def test_the_golden_documents(tmp_path):
    export(samples.samples(), "atif", tmp_path, **EVERY)
    # Of the samples these two have all that a document can have.
    for name in ("r-good.json", "r-branching.json"):
        if os.environ.get("ART_OTEL_GOLDEN"):
            (TESTDATA / name).write_bytes((tmp_path / name).read_bytes())
        assert (tmp_path / name).read_bytes() == (TESTDATA / name).read_bytes()


@given(st.lists(trajectories(), max_size=2) | agent_rollouts())
def test_every_sampled_message_is_trained_in_exactly_one_step(rollouts):
    files, stats = encoded(*rollouts)
    documents = [json.loads(data) for name, data in files.items() if name.endswith(".json")]
    items = list(rewarded(rollouts))
    told = [item for item in items if any(turn.message for turn in item.trajectory.turns)]
    assert stats.trajectories_skipped.total() == len(items) - len(told)
    for item, document in zip(told, documents, strict=True):
        trajectory = item.trajectory
        steps = [step for each in histories_of(document) for step in each["steps"] if is_trained(step)]
        expected = [
            number
            for number, turn in enumerate(trajectory.turns)
            if turn.message is not None and item.turn_rewards[number].skipped is None
        ]
        assert sorted(step["extra"]["turn"] for step in steps) == expected
        for step in steps:
            check_step(trajectory, trajectory.turns[step["extra"]["turn"]], step)


def check_step(trajectory: Trajectory, turn: Turn, step: dict) -> None:
    call, metrics = trajectory.calls[turn.call], step.get("metrics", {})
    for name, ids in (("prompt", call.prompt_token_ids), ("completion", turn.token_ids)):
        assert metrics.get(f"{name}_token_ids") == (None if ids is None else ids.tolist())
    assert metrics.get("logprobs") == (None if turn.logprobs is None else turn.logprobs.tolist())
    assert step["extra"]["span_id"] == call.span_id
    assert step.get("reasoning_content") == turn.message.reasoning
    spelled = [(one["function_name"], one.get("extra", {}).get("arguments")) for one in step.get("tool_calls", [])]
    for (name, text), sampled in zip(spelled, turn.message.tool_calls, strict=True):
        assert name == sampled.name
        assert text == sampled.arguments or not sampled.exact


@given(trajectories() | agent_rollouts().filter(bool).map(lambda rollouts: rollouts[0]))
def test_histories_are_whole_and_named(trajectory):
    files, _ = encoded(trajectory)
    for data in (data for name, data in files.items() if name.endswith(".json")):
        histories = histories_of(json.loads(data))
        by_id = {each["trajectory_id"]: each for each in histories}
        assert len(by_id) == len(histories)
        for each in histories:
            assert [step["step_id"] for step in each["steps"]] == list(range(1, len(each["steps"]) + 1))
            assert each["session_id"] == trajectory.rollout_id
        for each in histories[1:]:
            if shared := each.get("extra", {}).get("continues"):
                step = by_id[shared["trajectory_id"]]["steps"][shared["step_id"] - 1]
                assert step["source"] == "agent"
                assert step["extra"]["turn"] in [one.get("extra", {}).get("turn") for one in each["steps"]]
        for step in histories[0]["steps"]:
            for result in step.get("observation", {}).get("results", []):
                for reference in result.get("subagent_trajectory_ref", []):
                    assert reference["trajectory_id"] in by_id


def test_a_conversation_that_was_tokenized_anew_goes_on():
    first = (samples.QUESTION,)
    second = (*first, samples.looking("Bern"), samples.found("rain"))
    third = (*second, samples.said("Rain."), Message(role="user", content="Sure?"))
    calls = [
        samples.asked(0, first, second[1]),
        samples.asked(1, second, third[-2]),
        samples.asked(2, third, second[1]),
    ]
    drifted = [structs.replace(one, prompt_token_ids=TokenIds.of([number])) for number, one in enumerate(calls)]
    trajectory = samples.rollout("r", drifted)
    assert [turn.parent for turn in trajectory.turns] == [None, 0, 1]
    assert [turn.token_parent for turn in trajectory.turns] == [None, None, None]
    document, changed = one_document(trajectory)
    assert "subagent_trajectories" not in document
    assert [step["source"] for step in document["steps"]] == ["user", "agent", "agent", "user", "agent"]
    steps = [step for step in document["steps"] if is_trained(step)]
    assert [step["metrics"]["prompt_token_ids"] for step in steps] == [[0], [1], [2]]
    assert [step["extra"].get("drifted_at") for step in steps] == [None, 0, 0]
    assert changed == {}


def test_a_tools_answer_is_an_observation_of_the_step_that_asked():
    calls = chat(user("q"), looking(), answer("sun"), assistant("Sun."))
    document, changed = one_document(rollout(calls))
    assert [step["source"] for step in document["steps"]] == ["user", "agent", "agent"]
    assert document["steps"][1]["observation"] == {"results": [{"source_call_id": "call_0", "content": "sun"}]}
    assert changed == {}


def test_an_answer_that_nobody_asked_for_is_kept_with_its_id():
    calls = chat(answer("early", id="x"), user("q"), looking(), answer("other", id="y"), assistant("Sun."))
    document, _ = one_document(rollout(calls))
    first, _, ask, _ = document["steps"]
    assert (first["source"], first["message"]) == ("system", "")
    assert first["observation"] == {"results": [{"content": "early", "extra": {"tool_call_id": "x"}}]}
    assert ask["observation"] == {"results": [{"content": "other", "extra": {"tool_call_id": "y"}}]}


def test_answers_follow_each_other_in_one_observation():
    calls = chat(answer("1", id="x"), answer("2", id="y"), assistant("Sun."))
    document, _ = one_document(rollout(calls))
    assert [len(step["observation"]["results"]) for step in document["steps"][:1]] == [2]
    assert len(document["steps"]) == 2


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ('{"b": [1.50, 12345678901234567890123], "a": null}', {"b": [1.5, 12345678901234567890123], "a": None}),
        ("", {}),
        ("[1]", {}),
        ("{", {}),
        ('{"a": NaN}', {}),
        ('{"a":' * 5000 + "1" + "}" * 5000, {}),
    ],
)
def test_arguments_are_an_object_and_their_text_stays(text, arguments):
    document, changed = one_document(rollout(chat(user("q"), looking(text))))
    (found,) = document["steps"][-1]["tool_calls"]
    assert (found["arguments"], found["extra"]) == (arguments, {"arguments": text})
    reason = "arguments that are not a JSON object, written as {} with their text in extra"
    assert changed == ({} if arguments else {reason: 1})


def test_arguments_whose_text_is_lost_have_none():
    said = assistant(None, tool_calls=(ToolCall(name="look", arguments='{"a": 1}', exact=False),))
    document, changed = one_document(rollout(chat(user("q"), said)))
    (found,) = document["steps"][-1]["tool_calls"]
    assert found == {"tool_call_id": "call-2-0", "function_name": "look", "arguments": {"a": 1}}
    assert changed == {"tool calls without an id, which got one": 1}


def test_what_the_assistant_did_not_say_here_is_copied_context():
    shot = call(0, [user("1"), assistant("2", reasoning="add"), user("3")], assistant("4"))
    document, changed = one_document(rollout([shot]))
    _, given, _, sampled = document["steps"]
    assert (given["source"], given["message"], given["reasoning_content"]) == ("agent", "2", "add")
    assert (given["is_copied_context"], is_trained(sampled)) == (True, True)
    assert changed == {"assistant messages that were not sampled, marked as copied context": 1}


def test_what_a_failed_call_sampled_is_copied_context_with_its_tokens():
    failed = samples.asked(0, (samples.QUESTION,), samples.said("Ra"), error_type="Timeout")
    document, changed = one_document(samples.rollout("r", [failed]))
    (step,) = document["steps"][1:]
    assert step["is_copied_context"]
    assert step["metrics"]["completion_token_ids"] == samples.completion_ids(samples.said("Ra"))
    assert step["extra"]["error_type"] == "Timeout"
    assert changed == {"completions that must not be trained, marked as copied context": 1}


def test_a_prompt_that_nobody_recorded_is_told():
    document, changed = one_document(rollout([call(0, None, assistant("x"))]))
    (step,) = document["steps"]
    assert (step["message"], step["extra"]["prompt_messages"]) == ("x", "unknown")
    copied = {"completions that must not be trained, marked as copied context": 1}
    assert changed == {"completions whose prompt was not recorded": 1, **copied}


def test_usage_of_a_call_stands_once():
    usage = Usage(input_tokens=5, output_tokens=3, cached_tokens=2, total_tokens=8, reasoning_tokens=0)
    document, _ = one_document(rollout([call(0, [user("q")], assistant("a"), assistant("b"), usage=usage)]))
    first, second = (each["steps"][-1].get("metrics") for each in histories_of(document))
    extra = {"total_tokens": 8, "reasoning_tokens": 0}
    assert first == {"prompt_tokens": 5, "completion_tokens": 3, "cached_tokens": 2, "extra": extra}
    assert second is None
    sums = {"total_prompt_tokens": 5, "total_completion_tokens": 3, "total_cached_tokens": 2, "total_steps": 2}
    assert [each["final_metrics"] for each in histories_of(document)] == [sums, {"total_steps": 2}]


def test_sums_are_left_out_where_a_call_did_not_tell():
    first, second = chat(user("q"), assistant("a"), user("r"), assistant("b"))
    told = call(0, first.input_messages, assistant("a"), usage=Usage(input_tokens=5))
    document, _ = one_document(rollout([told, second]))
    assert document["final_metrics"] == {"total_steps": 4}


def test_logprobs_that_json_cannot_hold_are_left_out():
    choice = Sampled(index=0, message=assistant("a"), token_ids=TokenIds.of([1]), logprobs=Logprobs.of([-float("inf")]))
    asked = InferenceCall(
        trace_id="ab" * 16, span_id="1", operation_name="chat", start_ns=0, end_ns=1, choices=(choice,)
    )
    document, changed = one_document(rollout([asked]))
    assert document["steps"][0]["metrics"] == {"completion_token_ids": [1]}
    assert changed["logprobs that are not finite, or not as many as the token ids, left out"] == 1


def test_prompt_ids_can_be_left_out():
    document, _ = one_document(samples.group()[0], prompt_token_ids=False, agent_version="1.2")
    metrics = [step["metrics"] for step in document["steps"] if step["source"] == "agent"]
    assert [sorted(each) for each in metrics] == [["completion_token_ids", "logprobs"]] * 2
    assert document["agent"]["version"] == "1.2"


def test_another_agents_history_is_named_where_it_may_have_begun():
    document, _ = one_document(samples.branching())
    references = [
        reference
        for step in document["steps"]
        for result in step.get("observation", {}).get("results", [])
        for reference in result.get("subagent_trajectory_ref", [])
    ]
    (helper,) = [each for each in histories_of(document) if each["agent"]["name"] == "helper"]
    assert references == [{"trajectory_id": helper["trajectory_id"], "session_id": "r-branching"}]


def test_a_history_that_begins_before_every_step_is_named_nowhere():
    early = call(0, [user("plan")], assistant("go"), agent="planner")
    later = call(5, [user("q")], assistant("a"), agent="main"), call(7, [user("q"), assistant("a")], assistant("b"))
    document, _ = one_document(rollout([early, *later]))
    assert [each["agent"]["name"] for each in histories_of(document)] == ["main", "planner"]
    assert all("observation" not in step for step in document["steps"])


def test_tools_that_change_are_those_of_all_calls():
    first, second = chat(user("q"), assistant("a"), user("r"), assistant("b"))
    calls = [
        call(0, first.input_messages, assistant("a"), tools=({"name": "x"},)),
        call(1, second.input_messages, assistant("b"), tools=({"name": "x"}, {"name": "y"})),
    ]
    document, changed = one_document(rollout(calls))
    assert document["agent"]["tool_definitions"] == [{"name": "x"}, {"name": "y"}]
    assert changed == {"histories whose tools changed, written with the tools of all their calls": 1}


@pytest.mark.parametrize("reward", [float("nan"), float("-inf"), 1e300])
def test_an_unusable_reward_is_left_out_and_told(reward):
    document, changed = one_document(rollout(chat(user("q"), assistant("a")), reward=reward))
    assert "reward" not in document["extra"]
    assert changed == {NULL_REWARD: 1, UNTRAINED: 1}


def test_what_only_the_process_of_a_rollout_knows_is_not_written():
    trajectory, child = samples.failed(), samples.branching()
    gathered = replace(trajectory, result=object(), exception=ValueError("no rain"), children=(child,))
    assert encoded(gathered)[0] == encoded(trajectory)[0]


def test_the_export_is_a_folder_with_a_report(tmp_path):
    nothing = rollout([call(0, [user("q")], error="boom")], "r-nothing")
    report = export([*samples.samples(), nothing], "atif", tmp_path, **EVERY)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "_export.json",
        *sorted(map(name_of, report.files)),
    ]
    assert report.trajectories_skipped == {"nothing sampled": 1}
    assert report.trajectories_used == len(samples.samples())


def name_of(path: str) -> str:
    return Path(path).name
