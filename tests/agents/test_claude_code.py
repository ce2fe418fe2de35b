"""Sessions of Claude Code against what its model server truly received and sent."""

from art_otel import histories
from tests.agents.truth import CLAUDE, HERE, check_answers, check_prompts, rewritten, said, true_message, truth_of
from tests.conversions import convert_files
from tests.gaps import not_logged


def test_claude_code_is_what_its_server_saw(tmp_path):
    (trajectory,), report = convert_files(tmp_path, *CLAUDE)
    truth = truth_of("claude_code")
    check_answers(trajectory.calls, truth)
    check_prompts(trajectory.calls, truth)
    assert [[tool["function"]["name"] for tool in call.tools] for call in trajectory.calls] == [
        entry["tools"] for entry in truth
    ]
    assert trajectory.complete
    assert not report.spans.quarantined
    assert [call.agent for call in trajectory.calls] == [None] * 3 + ["general-purpose"] * 2 + [None] * 3
    tools = sorted((tool.turn, tool.name) for tool in trajectory.tool_calls)
    assert tools == [(0, "Bash"), (0, "Bash"), (1, "Write"), (2, "Agent"), (2, "Read"), (3, "Bash"), (6, "Bash")]
    assert [tool.error is not None for tool in trajectory.tool_calls] == [False] * 6 + [True]
    assert len(histories(trajectory)) == 2


def test_the_telemetry_of_claude_code_has_the_bodies(tmp_path):
    (trajectory,), _ = convert_files(tmp_path, HERE / "claude_code_otel.jsonl")
    truth = truth_of("claude_code_otel")
    check_answers(trajectory.calls, truth)
    check_prompts(trajectory.calls, truth)
    assert trajectory.complete
    assert len(trajectory.tool_calls) == 6


def test_the_telemetry_of_an_older_version_pairs_bodies_without_an_id(tmp_path):
    (trajectory,), _ = convert_files(tmp_path, HERE / "claude_code_otel_older.jsonl")
    truth = truth_of("claude_code_otel_older")
    check_answers(trajectory.calls, truth)
    check_prompts(trajectory.calls, truth)
    assert trajectory.complete


def test_older_sessions_of_claude_code_say_what_they_lack(tmp_path):
    sources = [HERE / "claude_code_older.jsonl", HERE / "claude_code_older_subagent.jsonl"]
    (trajectory,), _ = convert_files(tmp_path, *sources)
    truth = truth_of("claude_code_older")
    check_answers(trajectory.calls, truth)
    assert trajectory.incomplete_reasons == {"request not logged whole": 6}
    assert [call.agent for call in trajectory.calls] == [None] * 3 + ["general-purpose"] * 2 + [None]
    for call, entry in zip(trajectory.calls, truth, strict=True):
        assert list(not_logged(call)) == ["system instructions", "tools", "messages"]
        conversation = [true_message(message) for message in entry["messages"] if message["role"] != "system"]
        assert list(map(said, call.input_messages))[1:] == conversation[1:]  # reminders stand in the first only


def test_a_message_that_was_altered_is_no_message_of_the_request(tmp_path):
    def altered(line: dict) -> dict:
        if line["type"] == "api-request-blob":
            line["message"]["content"][0]["text"] += "!"
        return line

    (trajectory,), _ = convert_files(tmp_path / "out", rewritten(tmp_path / "a.jsonl", CLAUDE[0], altered))
    assert trajectory.incomplete_reasons["request not logged whole"] == 6
    assert {not_logged(call) for call in trajectory.calls} == {("messages",)}


def test_a_request_without_an_answer_has_not_ended(tmp_path):
    lines = CLAUDE[0].read_text(encoding="utf-8").splitlines(keepends=True)
    last = max(number for number, line in enumerate(lines) if '"type":"api-request"' in line)
    (tmp_path / "a.jsonl").write_text("".join(lines[: last + 1]), encoding="utf-8")
    (trajectory,), _ = convert_files(tmp_path / "out", tmp_path / "a.jsonl")
    check_prompts(trajectory.calls[-1:], truth_of("claude_code")[-1:])
    assert trajectory.calls[-1].choices is None
    assert trajectory.incomplete_reasons["not ended"] == 1


def test_a_request_that_failed_is_a_fact(tmp_path):
    def failed(line: dict) -> dict:
        message = line.get("message", {})
        if line["type"] == "assistant" and message["id"] == "msg_8":
            content = [{"type": "text", "text": "API Error: 529 overloaded"}]
            line |= {"isApiErrorMessage": True, "error": "overloaded"}
            line["message"] = {**message, "model": "<synthetic>", "content": content}
        return line

    source = rewritten(tmp_path / "a.jsonl", CLAUDE[0], failed)
    (trajectory,), _ = convert_files(tmp_path / "out", source, CLAUDE[1])
    assert trajectory.complete
    assert (trajectory.calls[-1].error_type, trajectory.calls[-1].error) == ("overloaded", "API Error: 529 overloaded")


def test_a_torn_line_costs_itself_and_is_told(tmp_path):
    data = CLAUDE[0].read_bytes()
    (tmp_path / "a.jsonl").write_bytes(data[:-40])
    (trajectory,), report = convert_files(tmp_path / "out", tmp_path / "a.jsonl")
    assert report.spans.quarantined == {"torn": 1}
    assert trajectory.incomplete_reasons == {"span quarantined": 1}
    assert len(trajectory.calls) == 6
