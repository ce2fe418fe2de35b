"""Logs of agents against what their model server truly received and sent, and what becomes of logs that are damaged."""

import json
import shutil
import zipfile
from collections import Counter
from pathlib import Path

import pytest

from art_otel import histories, read_trajectories
from art_otel.cli import main
from art_otel.errors import SourceError
from art_otel.sources import Limits
from art_otel.trajectories import token_histories
from tests.agents.truth import (
    CLAUDE,
    HERE,
    calls_of,
    check_answers,
    check_prompts,
    rewritten,
    said,
    true_message,
    truth_of,
)
from tests.conversions import convert_files
from tests.gaps import not_logged

CODEX = HERE / "codex.jsonl"
INSPECT = HERE / "inspect.eval"
ATIF = HERE.parent.parent / "exporters/atif/testdata"

KEY = "ghp_" + "a1B2c3D4e5F6" * 3


def test_codex_is_what_its_server_saw_but_for_what_it_does_not_log(tmp_path):
    (trajectory,), _ = convert_files(tmp_path, CODEX)
    truth = truth_of("codex")
    check_answers(trajectory.calls, truth)
    check_prompts(trajectory.calls, truth, skip=1)  # the instructions, the first message
    assert trajectory.incomplete_reasons == {"request not logged whole": 3}
    assert {not_logged(call) for call in trajectory.calls} == {("system instructions", "tools")}
    assert [(tool.name, tool.turn) for tool in trajectory.tool_calls] == [("exec_command", turn) for turn in (0, 0, 1)]
    assert [call.response_id for call in trajectory.calls] == ["resp_1", "resp_2", "resp_3"]


def test_a_compacted_history_is_the_prompt_from_then_on(tmp_path):
    item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "So far: sunny."}]}
    seen = 0

    def compacted(line: dict) -> dict:
        nonlocal seen
        seen += line["type"] == "token_usage_record"
        if seen == 2 and line["payload"].get("type") == "function_call_output":
            return {**line, "type": "compacted", "payload": {"message": "", "replacement_history": [item]}}
        return line

    (trajectory,), _ = convert_files(tmp_path / "out", rewritten(tmp_path / "a.jsonl", CODEX, compacted))
    assert [message.content for message in trajectory.calls[-1].input_messages] == ["So far: sunny."]


@pytest.mark.parametrize("kind", ["compacted", "response_item"])
def test_what_codex_had_its_server_compact_is_doubted(tmp_path, kind):
    item = {"type": "compaction", "encrypted_content": "gAAAA=="}
    seen = 0

    def compacted(line: dict) -> dict:
        nonlocal seen
        seen += line["type"] == "token_usage_record"
        if seen == 2 and line["payload"].get("type") == "function_call_output":
            return {
                **line,
                "type": kind,
                "payload": item if kind == "response_item" else {"replacement_history": [item]},
            }
        return line

    (trajectory,), _ = convert_files(tmp_path / "out", rewritten(tmp_path / "a.jsonl", CODEX, compacted))
    assert [call.has_gap("compacted") for call in trajectory.calls] == [False, False, True]
    assert [turn.text_untrained for turn in trajectory.turns] == [None, None, "content uncertain"]


def test_what_claude_codes_server_cleared_is_doubted(tmp_path):
    cleared = {"context_management": {"applied_edits": [{"type": "clear_tool_uses_20250919", "cleared_tool_uses": 1}]}}

    def edited(line: dict) -> dict:
        return {**line, "message": {**line["message"], **cleared}} if line.get("type") == "assistant" else line

    (trajectory,), _ = convert_files(tmp_path / "out", rewritten(tmp_path / "a.jsonl", CLAUDE[0], edited))
    assert all(call.has_gap("compacted") for call in trajectory.calls if call.choices)


def test_inspect_is_what_its_server_saw(tmp_path):
    trajectories, _ = convert_files(tmp_path, INSPECT)
    calls, truth = calls_of(trajectories), truth_of("inspect")
    check_answers(calls, truth)
    check_prompts(calls, truth)
    assert all(one.complete for one in trajectories)
    by_sample = {one.metadata["sample_id"]: one for one in trajectories}
    assert {r.name: (r.value, r.label) for r in by_sample["a"].rewards} == {
        "includes": (1.0, "C"),
        "match": (0.0, "I"),
    }
    assert by_sample["a"].group_id == f"{by_sample['a'].metadata['eval_id']}/a" != by_sample["b"].group_id
    assert [(tool.name, tool.result, tool.turn) for tool in by_sample["a"].tool_calls] == [
        ("weather", "sunny", 0),
        ("weather", "rainy", 0),
    ]


def members(path: Path, name: str) -> dict:
    with zipfile.ZipFile(path) as archive:
        return json.loads(archive.read(name))


@pytest.mark.parametrize("name", ["inspect_first_bodies", "inspect_pool"])
def test_prompts_that_inspect_kept_no_body_of_are_spelled_as_it_sends_them(name, tmp_path):
    """The bodies of the first five calls, or of none, are in these logs."""
    (trajectory,), _ = convert_files(tmp_path, HERE / f"{name}.eval")
    truth = truth_of(name)
    check_answers(trajectory.calls, truth)
    check_prompts(trajectory.calls, truth)
    for call, entry in zip(trajectory.calls, truth, strict=True):
        sent = [text for message in entry["messages"] for _, _, text in message.get("tool_calls", ())]
        assert [tool.arguments for message in call.input_messages for tool in message.tool_calls] == sent
    assert trajectory.complete
    assert len(histories(trajectory)) == (1 if name == "inspect_pool" else 8)  # it sends "\\nText" after reasoning


def test_a_message_outside_of_the_pool_of_inspect_is_missing(tmp_path):
    sample = members(HERE / "inspect_pool.eval", "samples/a_epoch_1.json")
    del sample["message_pool"][-2:]
    with zipfile.ZipFile(tmp_path / "a.eval", "w") as archive:
        archive.writestr("samples/a_epoch_1.json", json.dumps(sample))
    (trajectory,), _ = convert_files(tmp_path / "out", tmp_path / "a.eval")
    last = trajectory.calls[-1]
    assert last.input_messages is None
    assert not_logged(last) == ("messages",)
    assert [turn.text_untrained for turn in trajectory.turns] == [None] * 7 + ["content uncertain"]
    assert not trajectory.complete
    assert not any(call.gaps for call in trajectory.calls[:-1])


def test_the_error_of_a_tool_is_known_as_it_was_sent_where_the_api_is(tmp_path):
    sample = members(HERE / "inspect_pool.eval", "samples/a_epoch_1.json")
    for event in sample["events"]:
        event["model"] = "hf/tiny"
    with zipfile.ZipFile(tmp_path / "a.eval", "w") as archive:
        archive.writestr("samples/a_epoch_1.json", json.dumps(sample))
    (trajectory,), _ = convert_files(tmp_path / "out", tmp_path / "a.eval")
    assert [not_logged(call) for call in trajectory.calls] == [()] * 4 + [("messages",)] * 4


def test_the_json_log_of_inspect_is_read_as_its_archive(tmp_path):
    """As `--log-format json` writes it: indented, the evaluation before its samples."""
    name = HERE / "inspect_first_bodies.eval"
    log = {"version": 2, "status": "success", "eval": members(name, "_journal/start.json")["eval"]}
    log["samples"] = [members(name, "samples/a_epoch_1.json"), {"uuid": 1}]
    (tmp_path / "log.json").write_text(json.dumps(log, indent=2), encoding="utf-8")
    trajectories, report = convert_files(tmp_path / "json", tmp_path / "log.json")
    assert trajectories == convert_files(tmp_path / "eval", name)[0]
    assert report.spans.quarantined == {"bad field": 1}


def test_a_sample_that_is_broken_or_large_costs_itself(tmp_path):
    data = bytearray(INSPECT.read_bytes())
    with zipfile.ZipFile(INSPECT) as archive:
        info = archive.getinfo("samples/a_epoch_1.json")
    data[info.header_offset + 200] ^= 0xFF
    (tmp_path / "a.eval").write_bytes(data)
    trajectories, report = convert_files(tmp_path / "out", tmp_path / "a.eval")
    assert [one.metadata["sample_id"] for one in trajectories] == ["b"]
    assert report.spans.quarantined == {"torn": 1}
    nothing, report = convert_files(tmp_path / "small", INSPECT, limits=Limits(max_message_bytes=10_000))
    assert (nothing, report.spans.quarantined) == ([], {"over a limit": 2})


def test_verifiers_traces_keep_their_tokens_and_rewards(tmp_path):
    (trajectory,), _ = convert_files(tmp_path, HERE / "verifiers.jsonl")
    assert (trajectory.reward, {r.name: r.value for r in trajectory.rewards}) == (
        0.9,
        {"correct": 1.0, "format": 0.5, "reward": 0.9},
    )
    assert (trajectory.group_id, trajectory.training_step, trajectory.split) == ("g1", 7, "train")
    assert trajectory.metrics == {"turns": 3.0}
    assert sorted((list(one.token_ids), list(one.loss_mask)) for one in token_histories(trajectory)) == [
        ([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14], [*map(bool, [0] * 6 + [1] * 3 + [0] * 3 + [1] * 2)]),
        ([1, 2, 3, 4, 5, 6, 20, 21], [*map(bool, [0] * 6 + [1] * 2)]),
    ]
    assert [call.error for call in trajectory.calls] == [None, None, None, "overloaded"]
    assert trajectory.incomplete_reasons == {"no content": 1}  # what the failed call asked


def test_an_evaluation_by_verifiers_groups_the_episodes_of_each_task(tmp_path):
    trajectories, _ = convert_files(tmp_path, HERE / "verifiers_eval.jsonl")
    tasks = [(one.calls[0].input_messages[0].content, one.group_id) for one in trajectories]
    assert sorted(Counter(tasks).values()) == [2, 2]
    assert len({group for _, group in tasks}) == 2
    assert all(
        group == f"disabled-42cc23198fbc496a/{one.metadata['task']}"
        for one, (_, group) in zip(trajectories, tasks, strict=True)
    )
    assert {(one.complete, one.split, len(one.turns)) for one in trajectories} == {(True, "val", 3)}


def test_mini_swe_agent_is_what_its_server_saw(tmp_path):
    (trajectory,), _ = convert_files(tmp_path, HERE / "mini_swe_agent.json")
    truth = truth_of("mini_swe_agent")
    check_answers(trajectory.calls, truth)
    check_prompts(trajectory.calls, truth)
    assert {not_logged(call) for call in trajectory.calls} == {("tools",)}
    assert trajectory.metadata["exit_status"] == "Submitted"


@pytest.mark.parametrize("is_list", [False, True])
def test_mini_swe_agent_1_has_answers_without_their_bodies(is_list, tmp_path):
    """A command that a person typed is no answer. A trajectory may be the list of its messages."""
    recorded = json.loads((HERE / "mini_swe_agent_1.json").read_text(encoding="utf-8"))
    typed = {"role": "assistant", "content": "\n```bash\nls\n```"}
    recorded["messages"] += [typed, {"role": "user", "content": "a.txt"}]
    dump = recorded["messages"] if is_list else recorded
    (tmp_path / "a.traj.json").write_text(json.dumps(dump, indent=2), encoding="utf-8")
    (trajectory,), _ = convert_files(tmp_path, tmp_path / "a.traj.json")
    truth = truth_of("mini_swe_agent_1")
    check_prompts(trajectory.calls, truth)
    assert [call.choices[0].message.content for call in trajectory.calls] == [e["answer"]["content"] for e in truth]
    assert (trajectory.complete, trajectory.group_id) == (True, None if is_list else "weather-1")
    assert [len(history.messages) for history in histories(trajectory)] == [7]


def test_a_chat_that_is_a_list_is_no_trajectory_of_mini_swe_agent(tmp_path):
    (tmp_path / "a.json").write_text(json.dumps([{"role": "user", "content": "hello"}]), encoding="utf-8")
    with pytest.raises(SourceError):
        convert_files(tmp_path, tmp_path / "a.json")


def test_runs_of_langsmith_are_what_the_server_saw_in_any_envelope(tmp_path):
    (trajectory,), _ = convert_files(tmp_path / "lines", HERE / "langsmith.jsonl")
    truth = truth_of("langsmith")
    check_answers(trajectory.calls, truth)
    check_prompts(trajectory.calls, truth)
    assert [[tool["function"]["name"] for tool in call.tools] for call in trajectory.calls] == [
        entry["tools"] for entry in truth
    ]
    assert trajectory.complete
    assert [(reward.name, reward.value) for reward in trajectory.rewards] == [("correctness", 1.0)]
    assert [(one.name, one.result, one.turn) for one in trajectory.tool_calls] == [("weather", "sunny", 0)]
    runs = [json.loads(line) for line in (HERE / "langsmith.jsonl").read_text(encoding="utf-8").splitlines()]
    for name, dump in (("list", runs), ("answer", {"runs": runs, "cursors": {"next": None}})):
        (tmp_path / f"{name}.json").write_text(json.dumps(dump), encoding="utf-8")
        assert convert_files(tmp_path / name, tmp_path / f"{name}.json")[0] == [trajectory]


def test_a_run_that_failed_is_a_failed_call(tmp_path):
    def failing(run: dict) -> dict:
        is_last = run["run_type"] == "llm" and len(run["inputs"]["messages"][0]) > 2
        return run | {"outputs": None, "error": "APIError('no')"} if is_last else run

    path = rewritten(tmp_path / "runs.jsonl", HERE / "langsmith.jsonl", failing)
    (trajectory,), _ = convert_files(tmp_path, path)
    assert [call.failed for call in trajectory.calls] == [False, True]


def test_opencode_is_what_its_server_saw_but_for_the_system_prompt(tmp_path):
    (trajectory,), _ = convert_files(tmp_path, HERE / "opencode.json")
    truth = truth_of("opencode")
    check_answers(trajectory.calls, truth)
    for call, entry in zip(trajectory.calls, truth, strict=True):
        assert list(map(said, call.input_messages)) == list(map(true_message, entry["messages"][1:]))
        assert list(not_logged(call)) == ["system instructions", "tools", "messages"]
    executions = sorted((one.name, one.turn, one.error is not None) for one in trajectory.tool_calls)
    assert executions == [("bash", 0, False), ("read", 0, True)]
    assert [history.turns for history in histories(trajectory)] == [(0, 1, 2)]


def test_after_a_compaction_opencode_sends_the_summary(tmp_path):
    session = json.loads((HERE / "opencode.json").read_text(encoding="utf-8"))
    question, *_, summary = session["messages"][:3]
    compacting = {"info": {**question["info"], "id": "msg_c"}, "parts": [{"type": "compaction"}]}
    summary["info"]["summary"] = True
    session["messages"][2:2] = [compacting]
    (tmp_path / "session.json").write_text(json.dumps(session), encoding="utf-8")
    (trajectory,), _ = convert_files(tmp_path, tmp_path / "session.json")
    last = trajectory.calls[-1].input_messages
    assert [message.content for message in last] == ["What did we do so far?", "It is sunny.", "Thanks."]


def test_gemini_cli_is_what_its_server_saw_but_for_what_it_does_not_log(tmp_path):
    (trajectory,), _ = convert_files(tmp_path, HERE / "gemini_cli.jsonl")
    truth = truth_of("gemini_cli")
    check_prompts(trajectory.calls, truth)
    for call, entry in zip(trajectory.calls, truth, strict=True):
        answer = {"role": "assistant", **entry["answer"]}
        assert said(call.choices[0].message) == true_message(answer)
        assert call.choices[0].message.reasoning == answer["reasoning"]
        assert not_logged(call) == ("system instructions", "tools", "messages")
    assert [(tool.name, tool.turn) for tool in trajectory.tool_calls] == [("run_shell_command", 0)]
    assert [history.turns for history in histories(trajectory)] == [(0, 1)]


@pytest.mark.parametrize("is_compressed", [False, True])
def test_what_gemini_cli_takes_back_is_in_no_later_prompt(is_compressed, tmp_path):
    lines = [json.loads(line) for line in (HERE / "gemini_cli.jsonl").read_text(encoding="utf-8").splitlines()]
    question = next(line for line in lines if line.get("type") == "user")
    summary = {**question, "id": "s", "content": "So far: sunny."}
    change = {"$set": {"messages": [summary]}} if is_compressed else {"$rewindTo": question["id"]}
    again = json.dumps([{**line, "id": f"{line['id']} again"} for line in lines if "type" in line])
    lines += [change, *json.loads(again.replace("T03:", "T04:"))]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    (trajectory,), _ = convert_files(tmp_path, tmp_path / "a.jsonl")
    before, after = trajectory.calls[0].input_messages, trajectory.calls[2].input_messages
    assert len(trajectory.calls) == 4
    assert ("So far: sunny." in str(after)) == is_compressed
    assert is_compressed or list(map(said, after)) == list(map(said, before))


def test_older_sessions_of_gemini_cli_are_one_object_with_results_on_their_calls(tmp_path):
    lines = [json.loads(line) for line in (HERE / "gemini_cli.jsonl").read_text(encoding="utf-8").splitlines()]
    messages = {line["id"]: line for line in lines if "type" in line and "functionResponse" not in str(line["content"])}
    session = {**lines[0], "messages": [*lines[1]["$set"]["messages"], *messages.values()]}
    (tmp_path / "session.json").write_text(json.dumps(session, indent=2), encoding="utf-8")
    (trajectory,), _ = convert_files(tmp_path / "old", tmp_path / "session.json")
    check_prompts(trajectory.calls, truth_of("gemini_cli"))


def test_swe_agent_is_what_its_server_saw_but_for_an_answer_it_did_not_accept(tmp_path):
    (trajectory,), _ = convert_files(tmp_path, HERE / "swe_agent.json")
    truth = truth_of("swe_agent")
    check_prompts(trajectory.calls, truth)
    answers = [said(call.choices[0].message) for call in trajectory.calls]
    assert answers == [true_message({"role": "assistant", **entry["answer"]}) for entry in truth]
    assert [list(not_logged(call)) for call in trajectory.calls] == [["tools"], ["tools", "answer"]] + [["tools"]] * 2
    assert trajectory.group_id == "weather-1"
    assert trajectory.metadata["exit_status"] == "exit_command"


def test_before_1_1_the_prompts_of_swe_agent_are_its_history(tmp_path):
    """An answer that was not accepted is in no history, nor is what was said of it when the agent asked again."""
    run = json.loads((HERE / "swe_agent.json").read_text(encoding="utf-8"))
    for step in run["trajectory"]:
        del step["query"]
    run["replay_config"] = json.loads(run["replay_config"])
    (tmp_path / "a.traj").write_text(json.dumps(run), encoding="utf-8")
    (trajectory,), report = convert_files(tmp_path, tmp_path / "a.traj")
    truth = truth_of("swe_agent")
    assert (len(trajectory.calls), report.spans.quarantined) == (4, {})
    assert [not_logged(call) for call in trajectory.calls] == [
        ("tools", "messages"),
        ("tools", "answer", "messages"),
        *[("tools", "messages")] * 2,
    ]
    for number, is_asked_again in ((0, False), (2, True), (3, False)):
        call, entry = trajectory.calls[number], truth[number]
        assert said(call.choices[0].message) == true_message({"role": "assistant", **entry["answer"]})
        prompt, sent = list(map(said, call.input_messages)), list(map(true_message, entry["messages"]))
        assert prompt == (sent[:-2] if is_asked_again else sent)


def test_each_attempt_of_swe_agent_is_a_rollout_of_one_group(tmp_path):
    run = json.loads((HERE / "swe_agent.json").read_text(encoding="utf-8"))
    last = {**run["trajectory"][0], "query": [{}], "response": "Exit due to cost limit"}
    other = {**run, "trajectory": [*run["trajectory"], last], "history": [*run["history"], run["history"][2]]}
    (tmp_path / "a.traj").write_text(json.dumps({"attempts": [run, other], **run}), encoding="utf-8")
    trajectories, _ = convert_files(tmp_path, tmp_path / "a.traj")
    assert [len(one.calls) for one in trajectories] == [4, 4]
    assert {one.group_id for one in trajectories} == {"weather-1"}


def test_atif_that_was_exported_reads_back(tmp_path):
    trajectories, _ = convert_files(tmp_path, ATIF / "r-good.json", ATIF / "r-branching.json")
    branching, good = trajectories
    assert [one.rollout_id for one in trajectories] == ["r-branching", "r-good"]
    assert (good.reward, good.complete) == (1.0, True)
    assert [turn.message.content for turn in good.turns] == [None, "Rain."]
    assert good.turns[0].message.tool_calls[0].arguments == '{"city":"Zürich" }'
    assert sum(map(sum, (one.loss_mask for one in token_histories(good)))) == 28 + 6
    assert {call.agent for call in branching.calls} == {None, "helper", "weather"}


def test_counts_of_several_calls_of_an_atif_step_are_those_of_none(tmp_path):
    log = (ATIF / "r-good.json").read_text(encoding="utf-8")
    counted = log.replace('"metrics":{', '"metrics":{"prompt_tokens":9000,"completion_tokens":28,')
    several = counted.replace('"llm_call_count":1', '"llm_call_count":3')
    for number, (text, tokens) in enumerate([(counted, 9000), (several, None)]):
        (tmp_path / f"{number}.json").write_text(text, encoding="utf-8")
        (trajectory,), _ = convert_files(tmp_path / f"{number}", tmp_path / f"{number}.json")
        assert [call.usage and call.usage.input_tokens for call in trajectory.calls] == [tokens] * 2


@pytest.mark.parametrize("mode", ["on", "mark", "off"])
def test_secrets_are_scrubbed_as_in_a_live_app(mode, tmp_path, monkeypatch):
    source = tmp_path / "a.jsonl"
    source.write_text(CODEX.read_text(encoding="utf-8").replace("\\nsunny\\n", f"\\n{KEY}\\n"), encoding="utf-8")
    monkeypatch.setenv("ART_OTEL_SCRUB", mode)
    assert main(["convert", str(source), "--out", str(tmp_path / "out")]) == 0
    (trajectory,) = read_trajectories(tmp_path / "out")
    kept = any(KEY in (message.content or "") for call in trajectory.calls for message in call.input_messages)
    assert kept == (mode != "on")
    untrained = [None, "scrubbed", "scrubbed"] if mode != "off" else [None] * 3
    assert [turn.text_untrained for turn in trajectory.turns] == untrained


def test_rewards_of_a_file_are_given_to_its_rollouts(tmp_path):
    rollout_id = json.loads(CODEX.read_text(encoding="utf-8").partition("\n")[0])["payload"]["id"]
    rows = [("tests", 0.25), ("tests", 0.5), ("reward", True)]
    lines = [json.dumps({"rollout_id": rollout_id, "name": name, "value": value}) for name, value in rows]
    lines += ['{"rollout_id": "nobody", "value": 1}', '{"rollout_id": "x", "value": null}', "rubbish"]
    (tmp_path / "rewards.jsonl").write_text("\n".join([*lines, ""]), encoding="utf-8")
    (trajectory,), report = convert_files(tmp_path / "out", CODEX, tmp_path / "rewards.jsonl")
    assert trajectory.reward == 1.0
    assert [(r.name, r.value) for r in trajectory.rewards if r.name == "tests"][-1] == ("tests", 0.5)
    assert report.spans.quarantined == {"bad reward": 1, "not JSON": 1}
    assert sum(report.rewards.undeliverable.values()) == 1


def test_logs_that_are_read_twice_count_once(tmp_path):
    sources = [*CLAUDE, CODEX, INSPECT, HERE / "verifiers.jsonl", *sorted(ATIF.glob("*.json"))]
    copies = [shutil.copy(source, tmp_path / f"copy-{source.name}") for source in sources]
    once, _ = convert_files(tmp_path / "once", *sources)
    twice, report = convert_files(tmp_path / "twice", *copies, *sources)
    assert twice == once
    assert report.spans.duplicate == report.spans.used


def test_since_leaves_out_what_was_not_changed(tmp_path):
    assert main(["convert", str(CODEX), "--out", str(tmp_path), "--since", "2999-01-01"]) == 0
    assert json.loads((tmp_path / "_report.json").read_text())["files"] == []
    assert main(["convert", str(CODEX), "--out", str(tmp_path), "--since", "2001-01-01T12:00"]) == 0
    assert len(json.loads((tmp_path / "_report.json").read_text())["files"]) == 1
    assert main(["convert", str(CODEX), "--out", str(tmp_path), "--since", "soon"]) == 2
