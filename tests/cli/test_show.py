"""`art-otel show` and `art-otel demo --recordings` as a person reads them."""

import fcntl
import json
import os
import pty
import shutil
import struct
import subprocess
import sys
import termios
from dataclasses import replace
from io import StringIO

import pytest
from hypothesis import given as for_any
from hypothesis import settings
from rich.console import Console

from art_otel.cli import main
from art_otel.cli.show import print_conversation
from art_otel.cli.terminal import printable, table_lines
from art_otel.store import write_trajectories
from art_otel.testing import trajectories as any_trajectories
from tests.conversions import RECORDINGS, convert_files, convert_spans, with_logs
from tests.data.rollouts import assistant, call, given, rollout, user
from tests.dumps import attribute, chat_span, make_span
from tests.gaps import CONTRADICTED, SCRUBBED


def show(capsys, *arguments) -> str:
    assert main(["show", *(str(argument) for argument in arguments)]) == 0
    return capsys.readouterr().out


@pytest.fixture
def dataset(tmp_path):
    convert_files(tmp_path, *(RECORDINGS / "genai_span").glob("*.jsonl"))
    return tmp_path


def test_the_list_has_a_line_a_trajectory(dataset, capsys):
    out = show(capsys, dataset)
    assert "r-sync_tools" in out
    assert "r-error_retry" in out


def test_the_list_tells_attempts_and_named_rewards_apart(tmp_path, capsys):
    """A rollout without a final reward may have others; two attempts have one id."""
    scored = (given("correct", 1.0), given("style", 0.25), given("of a call", 9.0, target="1" * 16))
    rollouts = [rollout([], "again", attempt=attempt, rewards=scored) for attempt in (None, 2)]
    write_trajectories([*rollouts, rollout([], "final", reward=0.5, rewards=scored)], tmp_path / "dataset")
    again, second, final = show(capsys, tmp_path / "dataset").splitlines()[1:]
    assert again.startswith("again  ")
    assert "correct 1, style 0.25  0" in again
    assert second.startswith("again (attempt 2)  ")
    assert "correct" not in final


def test_the_list_as_json(dataset, capsys):
    rows = json.loads(show(capsys, dataset, "--json"))
    assert len(rows) == 10
    row = next(row for row in rows if row["rollout_id"] == "r-error_retry")
    assert (row["calls"], row["failed_calls"], row["turns"], row["complete"]) == (6, 5, 1, True)
    assert row["incomplete_reasons"] == {}


def test_a_marked_call_says_what_it_is_for(tmp_path, capsys):
    root = make_span(1, name="rollout x", attributes={"art.rollout.id": "r", "art.untrained": "judge"})
    convert_spans(tmp_path, root, chat_span(2, 1, ["hi"], "hello"))
    out = show(capsys, tmp_path / "dataset", "--rollout", "r")
    assert "! marked untrained: judge" in out
    assert "● trains" not in out


def test_a_rollout_as_a_conversation(dataset, capsys):
    out = show(capsys, dataset, "--rollout", "r-sync_tools")
    assert out.count("● trains as text") == 2
    for expected in ("reward 1", "You are a weather agent.", 'get_weather({"city": "Paris"})', "Paris: sunny", "alice"):
        assert expected in out
    assert "re-serialized" in out


def test_failures_and_warnings_are_marked(dataset, capsys):
    out = show(capsys, dataset, "--rollout", "r-error_retry")
    assert "incomplete:" not in out
    assert out.count("failed: openai.") == 5


def test_a_rollout_as_json_is_whole(dataset, capsys):
    trajectory = json.loads(show(capsys, dataset, "--rollout", "r-sync_tools", "--json"))
    assert trajectory["complete"] is True
    assert [message["role"] for message in trajectory["calls"][0]["input_messages"]] == ["system", "user"]


def test_a_reward_of_some_tokens_says_of_which(tmp_path, capsys):
    told = {"art.reward": -0.25, "art.reward.choice": 0, "art.reward.token_start": 2, "art.reward.token_end": 5}
    convert_spans(tmp_path, chat_span(2, None, ["q"], "a", attributes=told))
    out = show(capsys, tmp_path / "dataset", "--rollout", f"{1:032x}")
    assert "reward = -0.25 for tokens 2 to 5 of choice 0" in out


def test_token_ids_are_in_the_json(tmp_path, capsys):
    convert_files(tmp_path, RECORDINGS / "openinference" / "sync_tools.jsonl")
    trajectory = json.loads(show(capsys, tmp_path, "--rollout", "r-sync_tools", "--json"))
    assert trajectory["turns"][0]["token_ids"][:2] == [21576, 2123]


def test_several_histories_are_numbered(tmp_path, capsys):
    convert_files(tmp_path, *with_logs(RECORDINGS / "genai_event" / "n2.jsonl"))
    assert "history 6 of 6" in show(capsys, tmp_path, "--rollout", "r-n2")


def test_a_prompt_that_was_tokenized_anew_says_so(tmp_path, capsys):
    convert_files(tmp_path, RECORDINGS / "openinference" / "sync_tools.jsonl")
    out = show(capsys, tmp_path, "--rollout", "r-sync_tools")
    assert out.count("the prompt was tokenized differently after its first 41 ids") == 1


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"gaps": (SCRUBBED,)}, "scrubbed"),
        ({"gaps": (CONTRADICTED,)}, "contradicting recordings"),
        ({"error": "x"}, "failed"),
    ],
)
def test_a_completion_that_is_not_trained_says_why(tmp_path, capsys, fields, reason):
    write_trajectories([rollout([call(0, [user("q")], assistant("a"), **fields)])], tmp_path)
    out = show(capsys, tmp_path, "--rollout", "r")
    assert f"not trained: {reason}" in out
    assert "● trains" not in out


def test_a_message_with_more_than_a_text_says_so(tmp_path, capsys):
    parts = [{"type": "text", "content": "look"}, {"type": "uri", "modality": "image", "uri": "https://x.test/cat.png"}]
    seen = {"gen_ai.input.messages": json.dumps([{"role": "user", "parts": parts}])}
    convert_spans(tmp_path, chat_span(1, None, [], "a cat", attributes=seen))
    out = show(capsys, tmp_path / "dataset", "--rollout", f"{1:032x}")
    assert "look" in out
    assert "with images, files or several texts" in out


def test_another_program_gets_a_line_a_trajectory(tmp_path, capsys):
    long = "r" * 300
    convert_spans(
        tmp_path, make_span(1, name="rollout x", attributes={"art.rollout.id": long}), chat_span(2, 1, ["a"], "b")
    )
    _, line = show(capsys, tmp_path / "dataset").splitlines()
    assert line.split() == [long, "x", "-", "ok", "-", "1", "1", "yes"]


def test_steps_agents_and_rewards_stand_beside_their_call(tmp_path, capsys):
    event = {
        "timeUnixNano": "5",
        "name": "gen_ai.evaluation.result",
        "attributes": [
            {"key": "gen_ai.evaluation.name", "value": attribute("progress")},
            {"key": "gen_ai.evaluation.score.label", "value": attribute("good")},
        ],
    }
    spans = [
        make_span(1, name="rollout x", attributes={"art.rollout.id": "r"}, status={"code": 2, "message": "boom"}),
        make_span(2, 1, name="step 3", attributes={"art.step.index": 3}, events=[event]),
        make_span(3, 2, attributes={"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "solver"}),
        chat_span(4, 3, ["a"], "b"),
        make_span(5, 1, attributes={"gen_ai.operation.name": "chat", "gen_ai.output.messages": "[]"}, kind=3),
    ]
    convert_spans(tmp_path, *spans)
    out = show(capsys, tmp_path / "dataset", "--rollout", "r")
    for expected in ("agent solver", "step 3", "progress = good for step 3", "error: boom", "reward unknown"):
        assert expected in out


def test_messages_nobody_captured_are_said_to_be_unknown(tmp_path, capsys):
    call = chat_span(2, 1, ["a"], "b", attributes={"art.reward": 0.5})
    call["attributes"] = [pair for pair in call["attributes"] if pair["key"] != "gen_ai.input.messages"]
    convert_spans(tmp_path, make_span(1, name="rollout x", attributes={"art.rollout.id": "r"}), call)
    out = show(capsys, tmp_path / "dataset", "--rollout", "r")
    assert "messages unknown\n" in out
    assert "no content (1): LLM calls without a recorded prompt or completion" in out
    assert "was off" not in out
    assert f"★ reward = 0.5 for call {2:016x}\n" in out


def test_rewards_of_what_has_no_message_are_at_the_end(tmp_path, capsys):
    tool = {"gen_ai.operation.name": "execute_tool", "art.reward": 0.25}
    spans = [
        make_span(1, name="rollout x", attributes={"art.rollout.id": "r", "art.reward": 1.0}),
        make_span(2, 1, name="step 0", attributes={"art.step.index": 0, "art.reward": 0.125}),
        chat_span(3, 2, ["a"], "b", attributes={"art.reward": 0.75}),
        make_span(4, 2, name="execute_tool x", attributes=tool),
        make_span(5, 1, name="step 1", attributes={"art.step.index": 1, "art.reward": -0.5}),
        make_span(6, 1, name="execute_tool y", attributes=tool),
    ]
    convert_spans(tmp_path, *spans)
    out = show(capsys, tmp_path / "dataset", "--rollout", "r")
    before, after = out.split("── rewards for parts without a message above\n")
    assert [line for line in before.splitlines() if "★" in line] == [
        "★ reward = 1",
        "★ reward = 0.75",
        "★ reward = 0.125 for step 0",
    ]
    assert after.splitlines() == [
        f"★ reward = 0.25 for tool {4:016x} in step 0",
        "★ reward = -0.5 for step 1",
        f"★ reward = 0.25 for tool {6:016x}",
    ]


@settings(deadline=None)
@for_any(any_trajectories())
def test_every_reward_is_told(trajectory):
    console = Console(file=StringIO(), width=200)
    print_conversation(trajectory, console)
    told = console.file.getvalue()
    for reward in trajectory.rewards:
        value = reward.label or "unknown" if reward.value is None else f"{reward.value:g}"
        assert printable(f"★ {reward.name} = {value}") in told


def test_an_unknown_rollout_is_exit_2(dataset, capsys):
    assert main(["show", str(dataset), "--rollout", "nobody"]) == 2
    assert "nobody" in capsys.readouterr().err


def test_what_is_no_dataset_is_exit_1(tmp_path, capsys):
    (tmp_path / "x.parquet").write_bytes(b"PAR1 not really")
    assert main(["show", str(tmp_path / "x.parquet")]) == 1
    assert "x.parquet" in capsys.readouterr().err


def test_a_reader_that_leaves_early_is_no_error(dataset):
    command = f"{sys.executable} -m art_otel show {dataset} --rollout r-long100 --json | head -n 1"
    result = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, check=False)
    assert result.stderr == ""


def test_the_demo_writes_recordings_and_their_dataset_where_one_stands(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for _ in range(2):  # a page may begin with it where another page did
        assert main(["demo", "--recordings"]) == 0
        out = capsys.readouterr().out
        assert "$ art-otel convert dumps --out out" in out
        assert "6 trajectories" in out
        assert "● trains" in out
    assert sorted(path.name for path in tmp_path.iterdir()) == ["dumps", "out"]
    assert (tmp_path / "out" / "_report.json").exists()


def test_the_demo_of_recordings_replaces_nothing_that_is_not_its_own(tmp_path, capsys):
    assert main(["demo", "--recordings", str(tmp_path / "new")]) == 0
    (tmp_path / "new" / "dumps" / "mine.jsonl").touch()
    (tmp_path / "out").mkdir()
    for folder, what in ((tmp_path / "new", "mine.jsonl"), (tmp_path, "out")):
        before = sorted(tmp_path.rglob("*"))
        assert main(["demo", "--recordings", str(folder)]) == 2
        assert f"{what}: is not one of the recordings' files; choose another folder" in capsys.readouterr().err
        assert sorted(tmp_path.rglob("*")) == before
    assert main(["demo", "--recordings", "--out", str(tmp_path / "x")]) == 2


def test_rows_come_before_all_are_read_and_columns_are_as_wide_as_the_first():
    asked = 0

    def rows():
        nonlocal asked
        for asked in range(10_000):
            yield (f"rollout {'東' * (asked % 3)}", "x" * (300 if asked == 250 else 2), "ok")

    lines = table_lines(rows())
    assert next(lines) == f"rollout {'':4}  xx  ok\n"
    assert asked < 1_000
    assert next(lines) == f"rollout 東{'':2}  xx  ok\n"
    rest = list(lines)
    assert rest[248] == f"rollout 東{'':2}  {'x' * 300}  ok\n"
    assert len(rest) == 9_998


def test_a_dataset_without_rollouts_says_so_in_one_line(tmp_path, capsys):
    for path in (tmp_path / "dataset", tmp_path / "one.parquet"):
        write_trajectories([], path)
        assert json.loads(show(capsys, path, "--json")) == []
        assert show(capsys, path) == f"{path}: no rollouts\n"
    assert show(capsys, f"{tmp_path}/data*") == f"{tmp_path}/data*: no rollouts\n"


def test_a_dataset_without_rollouts_says_why_as_its_conversion_did(tmp_path, capsys):
    convert_spans(tmp_path, make_span(1, name="GET /"))
    assert json.loads(show(capsys, tmp_path / "dataset", "--json")) == []
    (line,) = show(capsys, tmp_path / "dataset").splitlines()
    report = json.loads((tmp_path / "dataset" / "_report.json").read_text())
    assert line.startswith(f"{tmp_path / 'dataset'}: no rollouts: 1 span, no LLM call: its spans were made by ")
    assert line.endswith(report["hints"][0])


def test_a_narrow_terminal_shows_whole_ids(dataset):
    command = [sys.executable, "-m", "art_otel", "show", str(dataset)]
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 20, 0, 0))
    try:
        subprocess.run(command, stdout=theirs, env={**os.environ, "COLUMNS": "20"}, check=True)
        assert b"r-sync_tools" in os.read(ours, 1 << 16)
    finally:
        os.close(ours)
        os.close(theirs)


def test_a_glob_may_match_folders_of_datasets(dataset, tmp_path_factory, capsys):
    folder = tmp_path_factory.mktemp("several")
    for name in ("a", "b"):
        shutil.copytree(dataset, folder / name)
    (folder / "notes").mkdir()
    assert len(json.loads(show(capsys, f"{folder}/*", "--json"))) == 20


def test_a_terminal_that_knows_ascii_only_is_no_error(dataset):
    command = [sys.executable, "-m", "art_otel", "show", str(dataset), "--rollout", "r-sync_tools"]
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    result = subprocess.run(command, capture_output=True, env=environment, check=False)
    assert result.returncode == 0
    assert b"trains as text" in result.stdout


def test_several_attempts_are_one_json_list(tmp_path, capsys):
    (known,), _ = convert_spans(tmp_path / "in", make_span(1, name="rollout x"), chat_span(2, 1, ["a"], "b"))
    attempts = [replace(known, attempt=number, incomplete_reasons={"of tomorrow": 1}) for number in (1, 2)]
    write_trajectories(attempts, tmp_path / "x.parquet")
    told = json.loads(show(capsys, tmp_path / "x.parquet", "--rollout", known.rollout_id, "--json"))
    assert [one["attempt"] for one in told] == [1, 2]
    assert "of tomorrow (1)" in show(capsys, tmp_path / "x.parquet", "--rollout", known.rollout_id)
