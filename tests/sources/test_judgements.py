"""Scores, names, tags and metadata that lie in the exports of backends, in every shape in which they come."""

import json
import uuid

import pytest

from tests.conversions import convert_files

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
ROOT, CALL = "00f067aa0ba902b7", "00f067aa0ba902b8"
START, END = "2026-10-01T09:00:00.000Z", "2026-10-01T09:00:05.000Z"
ASKED = [{"role": "user", "content": "What is 1 + 2?"}]
ANSWERED = {"role": "assistant", "content": "3"}


def converted(folder, **files):
    """The trajectories and the report of files, each a list of rows."""
    for name, rows in files.items():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return convert_files(folder / "out", *(folder / f"{name}.jsonl" for name in files))


def judged(trajectory) -> dict:
    return {one.name: (one.value, one.label, one.target is not None) for one in trajectory.rewards}


def langfuse_observations() -> list[dict]:
    own = {"traceId": TRACE, "startTime": START, "endTime": END}
    root = {"id": ROOT, "type": "SPAN", "name": "agent", "parentObservationId": None}
    call = {"id": CALL, "type": "GENERATION", "parentObservationId": ROOT, "input": ASKED, "output": ANSWERED}
    return [own | root, own | call]


SCORES = [
    {"id": "1", "traceId": TRACE, "name": "correctness", "value": 0.5, "dataType": "NUMERIC", "timestamp": END},
    {"id": "2", "traceId": TRACE, "name": "ok", "value": 1, "stringValue": "True", "dataType": "BOOLEAN"},
    {"id": "3", "traceId": TRACE, "name": "tone", "value": 0, "stringValue": "nice", "dataType": "CATEGORICAL"},
    {"id": "4", "traceId": TRACE, "observationId": CALL, "name": "style", "value": 2, "dataType": "NUMERIC"},
]
ABOUT = {"id": TRACE, "timestamp": START, "name": "calc", "tags": ["prod"], "userId": "u1", "metadata": {"k": {"d": 1}}}


def snake(row: dict) -> dict:
    names = {"traceId": "trace_id", "observationId": "observation_id", "dataType": "data_type", "userId": "user_id"}
    names |= {"stringValue": "string_value", "parentObservationId": "parent_observation_id"}
    return {names.get(name, name): value for name, value in row.items()}


LANGFUSE = {
    "a trace with all": {"traces": [ABOUT | {"observations": langfuse_observations(), "scores": SCORES}]},
    "an answer of the API": {
        "traces": [{"data": [ABOUT | {"observations": langfuse_observations(), "scores": SCORES}], "meta": {}}]
    },
    "files of their own": {
        "scores": [snake(score) for score in SCORES],
        "observations": [snake(one) for one in langfuse_observations()],
        "traces": [snake(ABOUT)],
    },
    "enriched observations": {
        "observations": [
            snake(one) | {"trace_name": "calc", "tags": ["prod"], "user_id": "u1", "metadata": {"k": {"d": 1}}}
            for one in langfuse_observations()
        ],
        "scores": SCORES,
    },
    "a list of traces, and what they name by ids": {
        "traces": [ABOUT | {"observations": [ROOT, CALL], "scores": ["1"]}],
        "observations": langfuse_observations(),
        "scores": SCORES,
    },
}


@pytest.mark.parametrize("form", LANGFUSE)
def test_langfuse(form, tmp_path):
    (trajectory,), report = converted(tmp_path, **LANGFUSE[form])
    assert judged(trajectory) == {
        "correctness": (0.5, None, False),
        "ok": (1.0, "True", False),
        "tone": (None, "nice", False),
        "style": (2.0, None, True),
    }
    assert (trajectory.rollout_id, trajectory.name, trajectory.reward) == (TRACE, "calc", None)
    assert dict(trajectory.metadata) == {"k": {"d": 1}, "tags": ["prod"], "user_id": "u1"}
    assert not report.quarantine
    assert not report.rewards.undeliverable


def test_a_score_that_judges_nothing_here_is_set_aside_by_name(tmp_path):
    of_session = {"id": "1", "sessionId": "s", "traceId": None, "name": "mood", "value": 1, "dataType": "NUMERIC"}
    empty = {"id": "2", "traceId": TRACE, "name": "none", "value": None, "dataType": "NUMERIC"}
    trace = ABOUT | {"observations": langfuse_observations(), "scores": [empty]}
    _, report = converted(tmp_path, scores=[of_session], traces=[trace])
    assert [one.reason for one in report.quarantine] == ["bad reward", "bad reward"]
    assert "session" in report.quarantine[0].detail


def langsmith_runs(**fields) -> list[dict]:
    root, call = str(uuid.UUID(int=7)), str(uuid.UUID(int=8))
    shared = {"trace_id": root, "start_time": START, "end_time": END, "error": None}
    inputs, outputs = {"messages": ASKED}, {"choices": [{"message": ANSWERED, "finish_reason": "stop"}]}
    return [
        shared | {"id": root, "name": "agent", "run_type": "chain", "inputs": {}, "outputs": {}, **fields},
        shared | {"id": call, "name": "gpt", "run_type": "llm", "parent_run_id": root, "inputs": inputs}
        | {"outputs": outputs, "extra": {"metadata": {"ls_model_name": "gpt"}}},
    ]  # fmt: skip


def feedback(**fields) -> dict:
    return {"key": "correctness", "score": 1, "value": None, "created_at": END, "comment": "yes", **fields}


ROOT_RUN = str(uuid.UUID(int=7))
LANGSMITH = {
    "means": {"runs": langsmith_runs(feedback_stats={"correctness": {"n": 2, "avg": 1.0}})},
    "with its run": {"runs": langsmith_runs(feedback=[feedback()], feedback_stats={"correctness": {"avg": 0.1}})},
    "rows of their own": {"runs": langsmith_runs(), "feedback": [feedback(run_id=ROOT_RUN, trace_id=ROOT_RUN)]},
    "rows without the trace": {"runs": langsmith_runs(), "feedback": [feedback(run_id=ROOT_RUN, trace_id=None)]},
}


@pytest.mark.parametrize("form", LANGSMITH)
def test_langsmith(form, tmp_path):
    files = LANGSMITH[form]
    files["runs"][0] |= {"tags": ["prod"], "extra": {"metadata": {"k": 1, "ls_method": "traceable"}}}
    (trajectory,), report = converted(tmp_path, **files)
    assert judged(trajectory) == {"correctness": (1.0, None, False)}
    assert (trajectory.reward, dict(trajectory.metadata)) == (None, {"k": 1, "tags": ["prod"]})
    assert report.rewards.delivered == 1


def phoenix_spans(annotations: list[dict]) -> list[dict]:
    call = {"llm.input_messages.0.message.role": "user", "llm.input_messages.0.message.content": "What is 1 + 2?"}
    call |= {"llm.output_messages.0.message.role": "assistant", "llm.output_messages.0.message.content": "3"}
    shared = {"start_time": START, "end_time": END, "status_code": "OK", "status_message": "", "events": []}
    return [
        shared | {"name": "agent", "context": {"trace_id": TRACE, "span_id": ROOT}, "span_kind": "AGENT"}
        | {"parent_id": None, "attributes": {}, "annotations": annotations},
        shared | {"name": "llm", "context": {"trace_id": TRACE, "span_id": CALL}, "span_kind": "LLM"}
        | {"parent_id": ROOT, "attributes": call},
    ]  # fmt: skip


ANNOTATION = {
    "id": "a", "name": "correctness", "annotator_kind": "LLM", "updated_at": END, "metadata": {},
    "result": {"score": 0.5, "label": "half", "explanation": "so so"},
}  # fmt: skip
PHOENIX = {
    "with their span": {"spans": phoenix_spans([ANNOTATION])},
    "of a span, in a file": {"spans": phoenix_spans([]), "annotations": [ANNOTATION | {"span_id": ROOT}]},
    "an answer": {"spans": phoenix_spans([]), "annotations": [{"data": [ANNOTATION | {"span_id": ROOT}]}]},
    "of a trace, in a file": {"spans": phoenix_spans([]), "annotations": [ANNOTATION | {"trace_id": TRACE}]},
}


@pytest.mark.parametrize("form", PHOENIX)
def test_phoenix(form, tmp_path):
    (trajectory,), report = converted(tmp_path, **PHOENIX[form])
    assert judged(trajectory) == {"correctness": (0.5, "half", False)}
    assert trajectory.reward is None
    assert report.rewards.delivered == 1


def test_an_annotation_of_a_span_that_is_not_here_is_undeliverable(tmp_path):
    of_other = ANNOTATION | {"span_id": "0123456789abcdef"}
    _, report = converted(tmp_path, spans=phoenix_spans([]), annotations=[of_other])
    assert report.rewards.undeliverable == {"linked span not in the sources": 1}


def mlflow_trace() -> dict:
    feedback = {
        "assessment_name": "correctness",
        "feedback": {"value": "yes"},
        "rationale": "it is",
        "create_time": END,
    }
    assessments = [
        feedback,
        {"assessment_name": "correctness", "feedback": {"value": 0}, "valid": False},
        {"assessment_name": "style", "feedback": {"value": 0.5}, "span_id": CALL},
        {"assessment_name": "brief", "feedback": {"value": "No"}},
        {"assessment_name": "answer", "expectation": {"value": "3"}},
    ]
    info = {
        "trace_id": f"tr-{TRACE}",
        "tags": {"mlflow.traceName": "calc", "team": "a", "service.name": "app"},
        "trace_metadata": {"mlflow.trace.user": "u1", "run": "7", "mlflow.x": "y"},
        "assessments": assessments,
    }
    shared = {"trace_id": TRACE, "start_time_unix_nano": 5, "end_time_unix_nano": 9}
    call = {"mlflow.spanType": '"CHAT_MODEL"', "mlflow.spanInputs": json.dumps({"messages": ASKED})}
    call |= {"mlflow.spanOutputs": json.dumps({"choices": [{"message": ANSWERED, "finish_reason": "stop"}]})}
    spans = [
        shared | {"span_id": ROOT, "parent_span_id": None, "name": "agent", "attributes": {}},
        shared | {"span_id": CALL, "parent_span_id": ROOT, "name": "llm", "attributes": call},
    ]
    return {"info": info, "data": {"spans": spans}}


def test_mlflow(tmp_path):
    (trajectory,), report = converted(tmp_path, traces=[mlflow_trace()])
    scores = {"correctness": (1.0, "yes", False), "style": (0.5, None, True), "brief": (0.0, "No", False)}
    assert judged(trajectory) == scores
    assert (trajectory.name, trajectory.reward) == ("calc", None)
    assert dict(trajectory.metadata) == {"team": "a", "run": "7", "user_id": "u1", "expectations.answer": "3"}
    assert not report.quarantine


@pytest.mark.parametrize("name", ["reward", "correctness"])
def test_one_rule_for_every_score(name, tmp_path):
    """It is the final reward if that is its name, from wherever it came."""
    final = 1.0 if name == "reward" else None
    scores = [{"id": "1", "traceId": TRACE, "name": name, "value": 1, "dataType": "NUMERIC"}]
    forms = {
        "langfuse": {"a": [ABOUT | {"observations": langfuse_observations(), "scores": scores}]},
        "rows": {"a": langfuse_observations(), "b": scores},
        "langsmith": {"a": langsmith_runs(feedback_stats={name: {"avg": 1.0}})},
        "phoenix": {"a": phoenix_spans([ANNOTATION | {"name": name, "result": {"score": 1}}])},
        "a rewards file": {"a": langfuse_observations(), "b": [{"rollout_id": TRACE, "name": name, "value": 1}]},
    }
    for form, files in forms.items():
        (tmp_path / form).mkdir()
        (trajectory,), _ = converted(tmp_path / form, **files)
        assert (trajectory.reward, judged(trajectory)[name][0]) == (final, 1.0), form


def test_a_rewards_file_gives_groups_splits_and_metadata_by_ids_with_dashes(tmp_path):
    rows = [
        {"rollout_id": ROOT_RUN, "name": "quality", "value": 0.25, "group_id": "g", "metadata": {"k": 1, "l": [1]}},
        {"rollout_id": ROOT_RUN, "split": "val", "metadata": {"k": 2}},
        {"rollout_id": str(uuid.UUID(int=99)), "value": 1},
        {"rollout_id": ROOT_RUN},
    ]
    (trajectory,), report = converted(tmp_path, runs=langsmith_runs(), rewards=rows)
    assert trajectory.rollout_id == ROOT_RUN.replace("-", "")
    assert (trajectory.group_id, trajectory.split, trajectory.reward) == ("g", "val", None)
    assert dict(trajectory.metadata) == {"k": 2, "l": [1]}
    assert judged(trajectory) == {"quality": (0.25, None, False)}
    assert report.rewards.undeliverable == {"rollout not in the sources": 1}
    assert [one.reason for one in report.quarantine] == ["bad reward"]


def test_facts_of_a_rollout_whose_own_span_is_missing_are_named(tmp_path):
    """Its reward is delivered all the same."""
    rows = [{"rollout_id": ROOT_RUN, "group_id": "g"}, {"rollout_id": ROOT_RUN, "value": 1, "split": "val"}]
    (trajectory,), report = converted(tmp_path, runs=langsmith_runs()[1:], rewards=rows)
    assert (trajectory.reward, trajectory.group_id, trajectory.split) == (1.0, None, None)
    assert [(one.reason, one.detail) for one in report.quarantine] == [
        ("bad reward", f"has facts of rollout {trajectory.rollout_id}, whose own span is missing")
    ] * 2
