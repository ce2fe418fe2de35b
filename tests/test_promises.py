"""What README.md promises, each as a test that is called so: real apps in processes of their own, and a real server."""

import collections
import hashlib
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import art_otel
from tests.conversions import RECORDINGS, check_sums, convert_files, with_logs
from tests.tracing.server import ModelServer

pytestmark = pytest.mark.long

SECRET = "sk-" + "a1B2c3D4e5F6g7H8i9J0" + "T3BlbkFJ" + "k1L2m3N4o5P6q7R8s9T0"

APP = """
import os, sys
import art_otel
from openai import OpenAI

client = OpenAI(max_retries=0)

def ask(messages):
    answer = client.chat.completions.create(model="m", messages=messages).choices[0].message.content
    print(answer, flush=True)
    return answer

@art_otel.rollout
def agent(task):
    messages = [{"role": "user", "content": task}]
    for turn in range(3):
        with art_otel.step():
            messages.append({"role": "assistant", "content": ask(messages)})
        messages.append({"role": "user", "content": f"go on {turn}"})
    ask(messages[:1])                                  # asks again, from the beginning
    ask(messages[:2] + messages[3:4])                  # and goes on as if one word had not been said
    try:
        client.chat.completions.create(model="m", messages=[{"role": "user", "content": "#fail=500"}])
    except Exception as error:
        print(type(error).__name__, flush=True)
    art_otel.reward(float(len(messages)))

for number in range(int(sys.argv[1])):
    agent(f"#words=6 task {number}")
"""


@pytest.fixture
def server(tmp_path):
    with ModelServer(tmp_path) as server:
        yield server


def run(server: ModelServer, folder: Path, app: str = APP, *arguments: str, code: int = 0, **settings: str) -> str:
    """Run an app that is traced into `folder` unless settings say otherwise; return what it printed."""
    folder.mkdir(exist_ok=True)
    (folder / "app.py").write_text(app)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("ART_OTEL_", "OTEL_", "OPENAI_"))}
    own = {"OPENAI_BASE_URL": server.url, "OPENAI_API_KEY": "none", "TMPDIR": str(folder), "HOME": str(folder)}
    traced = {"ART_OTEL_ENABLED": "1", "ART_OTEL_REQUEST_TOKENS": "1", "ART_OTEL_DIR": str(folder / "art")}
    command = [sys.executable, "app.py", *(arguments or ("3",))]
    environment = {**kept, **own, **traced, **settings}
    ran = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == code, ran.stderr
    return ran.stdout


def test_nothing_is_lost_silently(server, tmp_path):
    run(server, tmp_path / "app")
    traces = [file for file in sorted(RECORDINGS.glob("*.jsonl")) if ".logs" not in file.name]
    recorded = [file for each in traces for file in with_logs(each)]
    trajectories, report = convert_files(tmp_path / "out", tmp_path / "app" / "art" / "spool", *recorded)
    check_sums(report)
    assert all(bool(each.incomplete_reasons) is not each.complete for each in trajectories)
    ours = [each for each in trajectories if each.name == "agent"]
    assert sum(len(each.calls) for each in ours) == len(server.exchanges())
    assert sum(call.failed for each in ours for call in each.calls) == 3


def test_each_sampled_token_is_trained_exactly_once_after_the_tokens_that_the_server_saw(server, tmp_path):
    run(server, tmp_path)
    trajectories, _ = convert_files(tmp_path / "out", tmp_path / "art" / "spool")
    sampled = collections.Counter(
        (tuple(exchange.answer["prompt_token_ids"]), tuple(choice["token_ids"]))
        for exchange in server.answered()
        for choice in exchange.answer["choices"]
    )
    trained: collections.Counter = collections.Counter()
    for trajectory in trajectories:
        for history in art_otel.token_histories(trajectory):
            begin = None
            for position, is_trained in enumerate([*history.loss_mask, 0]):
                if is_trained and begin is None:
                    begin = position
                elif not is_trained and begin is not None:
                    trained[(tuple(history.token_ids[:begin]), tuple(history.token_ids[begin:position]))] += 1
                    begin = None
    assert trained == sampled


def test_order_files_and_repetition_change_nothing(server, tmp_path):
    run(server, tmp_path)
    spool = tmp_path / "art" / "spool"
    lines = [line for file in sorted(spool.rglob("*.jsonl")) for line in file.read_bytes().splitlines(keepends=True)]
    again = lines + lines[::3]
    random.Random(7).shuffle(again)
    for number in range(4):
        (tmp_path / f"{number}.jsonl").write_bytes(b"".join(again[number::4]))
    convert_files(tmp_path / "one", spool)
    convert_files(tmp_path / "other", *(tmp_path / f"{number}.jsonl" for number in range(4)))
    one, other = (
        [hashlib.sha256(part.read_bytes()).hexdigest() for part in sorted((tmp_path / out).glob("part-*.parquet"))]
        for out in ("one", "other")
    )
    assert one == other


@pytest.mark.parametrize(
    "settings",
    [
        {"ART_OTEL_DIR": "app.py"},
        {"ART_OTEL_CAPTURE_CONTENT": "perhaps", "ART_OTEL_SPLIT": ""},
        {"OTEL_TRACES_EXPORTER": "nobody-knows"},
        {"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"},
    ],
    ids=",".join,
)
def test_no_exception_of_ours_reaches_your_code(server, tmp_path, settings):
    expected = run(server, tmp_path, ART_OTEL_ENABLED="0")
    assert run(server, tmp_path, OTEL_EXPORTER_OTLP_TIMEOUT="1", **settings) == expected


def test_a_killed_process_loses_no_call_that_had_ended(server, tmp_path):
    killed = 'os.kill(os.getpid(), 9) if task.endswith("1") else art_otel.reward(1.0)'
    app = APP.replace("art_otel.reward(float(len(messages)))", killed)
    printed = run(server, tmp_path, app, code=-signal.SIGKILL).splitlines()
    trajectories, _ = convert_files(tmp_path / "out", tmp_path / "art" / "spool")
    assert [each.status for each in sorted(trajectories, key=lambda each: each.started_at)] == ["ok", "unfinished"]
    assert sum(len(each.calls) for each in trajectories) == len(printed)


def test_without_a_spool_nothing_is_on_the_disk(server, tmp_path):
    app = f"""
import asyncio, os, sys
import art_otel
{APP.partition("for number in")[0].partition("import art_otel")[2]}
@art_otel.rollout
async def solve():
    await asyncio.to_thread(ask, [{{"role": "user", "content": "#words=6 a task"}}])

gathered = asyncio.run(art_otel.gather_trajectory(solve()))
for each in os.listdir("/proc/self/fd"):
    try:
        assert "(deleted)" not in os.readlink(f"/proc/self/fd/{{each}}")
    except FileNotFoundError:
        pass
print(len(gathered.calls), gathered.complete)
"""
    assert run(server, tmp_path / "app", app, ART_OTEL_SPOOL="0").endswith("1 True\n")
    left = {str(path.relative_to(tmp_path / "app")) for path in (tmp_path / "app").rglob("*")}
    assert {path for path in left if "__pycache__" not in path and ".cache" not in path} == {"app.py"}


def test_secrets_are_replaced_before_anything_is_written_and_not_trained(server, tmp_path):
    run(server, tmp_path / "app", APP.replace("#words=6 task", f"#words=6 my key is {SECRET} task"))
    written = [path.read_bytes() for path in (tmp_path / "app" / "art").rglob("*") if path.is_file()]
    assert written
    assert not any(SECRET.encode() in content for content in written)
    trajectories, _ = convert_files(tmp_path / "out", tmp_path / "app" / "art" / "spool")
    assert {turn.tokens_untrained for each in trajectories for turn in each.turns} == {"scrubbed"}


def test_unknown_is_null_and_never_zero(server, tmp_path):
    app = APP.replace("art_otel.reward(float(len(messages)))", "")
    run(server, tmp_path, app, ART_OTEL_REQUEST_TOKENS="0")
    (trajectory, *_), _ = convert_files(tmp_path / "out", tmp_path / "art" / "spool")
    assert trajectory.reward is None
    choices = [choice for call in trajectory.calls if not call.failed for choice in call.choices or ()]
    assert choices
    assert all(choice.token_ids is None and choice.logprobs is None for choice in choices)
    table = pq.read_table(next((tmp_path / "out").glob("part-*.parquet")))
    assert set(table["reward"].to_pylist()) == {None}
    assert set(table["training_step"].to_pylist()) == {None}
