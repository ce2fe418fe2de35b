"""ART's request for `@art.rollout`: its snippets, as their author would write them, run with nothing set up."""

import json
import subprocess
import sys

import pytest

from tests.requests.programs import ART, REQUEST, ROOT, SETTING, run

pytestmark = pytest.mark.long

TRAINING = """
import json

async def caller():
    summary = await get_summary(model, scenario)
    return summary

async def main():
    before = dict(os.environ)
    summary = await caller()
    trajectory = await gather_trajectory(get_summary(model, scenario))
    (call,) = trajectory.calls
    print(json.dumps([
        trajectory.result == summary, trajectory.complete, trajectory.name, call.choices[0].message.content == summary,
        call.choices[0].finish_reason, call.input_messages[0].content,
    ]))
    from opentelemetry import trace
    print(json.dumps([
        dict(os.environ) == before, [name for name in os.listdir(".") if name != "__pycache__"],
        isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider),
        await caller() == summary,
    ]))

asyncio.run(main())
"""


def test_the_request_runs_as_written(server, tmp_path):
    told, left = run(tmp_path, server.url, SETTING, REQUEST, TRAINING)
    assert told == [True, True, "get_summary", True, "stop", "Summarize: the river"]
    assert left == [True, ["art.py"], True, True]


OWN_PROVIDER = """
import json
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

exporter = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(exporter))
trace.set_tracer_provider(provider)

async def main():
    parts = lambda: (provider.sampler, provider.id_generator, provider._active_span_processor._span_processors)
    before = parts()
    trajectories = await asyncio.gather(*(gather_trajectory(get_summary(model, scenario)) for _ in range(3)))
    print(json.dumps([[len(one.calls), one.complete] for one in trajectories]))
    print(json.dumps([trace.get_tracer_provider() is provider, parts() == before]))
    seen = len(exporter.get_finished_spans())
    await client.chat.completions.create(model="m", messages=[{"role": "user", "content": "outside"}])
    print(json.dumps(len(exporter.get_finished_spans()) == seen))

asyncio.run(main())
"""


def test_a_provider_of_the_user_stays_as_it_was(server, tmp_path):
    calls, kept, silent = run(tmp_path, server.url, SETTING, REQUEST, OWN_PROVIDER)
    assert calls == [[1, True]] * 3
    assert kept == [True, True]
    assert silent


TOOLS = """
import json
import art_otel

TOOLS = [{"type": "function", "function": {"name": "lookup", "parameters": {
    "type": "object", "properties": {"place": {"type": "string"}}}}}]

@art_otel.tool
async def lookup(**asked: str) -> dict[str, str]:
    return {"sky": "clear"}

@art.rollout
async def agent(question: str) -> str:
    trajectory = art.get_current_trajectory()
    messages = [{"role": "user", "content": question}]
    completion = await client.chat.completions.create(model="m", messages=messages, tools=TOOLS)
    history = trajectory.get_history(completion.id)
    for call in history[-1].tool_calls:
        result = await lookup(**json.loads(call.arguments))
        history.append({"role": "tool", "tool_call_id": call.id, "content": json.dumps(result)})
    answer = await client.chat.completions.create(model="m", messages=history.to_openai(), tools=TOOLS)
    last = trajectory.get_history(answer.id)
    sampled = (completion.id, answer.id)
    print(json.dumps([[one.role, one.completion_id and one.completion_id in sampled] for one in last]))
    last.append({"role": "tool", "tool_call_id": "late", "content": "a result that no call follows"})
    return answer.choices[0].message.content

async def main():
    tracing = art_otel.configure()
    trajectory = await gather_trajectory(agent("weather? #calls=1"))
    tracing.shutdown()
    art_otel.convert(".art/spool", "out")
    (stored,) = art_otel.read_trajectories("out")
    for found in (trajectory, stored):
        (history,) = found.histories
        assert found.get_history(found.calls[1].response_id).to_openai() == history.to_openai()
        print(json.dumps([history.to_openai()[2:], [entry.completion_id is not None for entry in history]]))
    (run,) = trajectory.tool_calls
    print(json.dumps([run.name, run.result, run.turn, run.error, run.end_ns >= run.start_ns]))
    print(json.dumps(stored == trajectory))
    import polars
    (row,) = polars.read_parquet("out/part-*.parquet")["messages"].to_list()
    print(json.dumps([message["role"] for message in row]))

asyncio.run(main())
"""


def test_histories_are_continued_and_tools_are_recorded(server, tmp_path):
    seen, live, stored, tool_call, is_same, roles = run(tmp_path, server.url, SETTING, TOOLS)
    assert seen == [["user", None], ["assistant", True], ["tool", None], ["assistant", True]]
    assert live == stored
    (tool, answer, trailing), sampled = live
    assert json.loads(tool["content"]) == {"sky": "clear"}
    assert answer["role"] == "assistant"
    assert trailing == {"role": "tool", "tool_call_id": "late", "content": "a result that no call follows"}
    assert sampled == [False, True, False, True, False]
    assert tool_call == ["lookup", {"sky": "clear"}, 0, None, True]
    assert is_same
    assert roles == ["user", "assistant", "tool", "assistant", "tool"]


THREADS = """
import json
import logging
import threading
import art_otel
from openai import OpenAI

plain = OpenAI(base_url=os.environ["MODEL_URL"], api_key="none")
said = []

class Keep(logging.Handler):
    def emit(self, record):
        said.append(record.getMessage())

logging.getLogger("art_otel").addHandler(Keep())

def ask():
    plain.chat.completions.create(model="m", messages=[{"role": "user", "content": "hi"}])

@art.rollout
async def lost(carry):
    thread = threading.Thread(target=carry(ask))
    thread.start()
    await asyncio.to_thread(thread.join)

async def main():
    calls = [len((await gather_trajectory(lost(carry))).calls) for carry in (lambda f: f, art_otel.in_context)]
    print(json.dumps([calls, said]))

asyncio.run(main())
"""


def test_a_thread_without_the_context_is_told(server, tmp_path):
    ((calls, said),) = run(tmp_path, server.url, SETTING, THREADS)
    assert calls == [0, 1]
    assert len(said) == 1, said
    (text,) = said
    assert "rollout lost has no LLM calls, and 1 began outside of any rollout" in text
    assert "art_otel.in_context(function)" in text


TYPED_IMPORTS = """
from functools import partial
from art_otel import gather_trajectories, get_current_trajectory, rollout, tool
"""
TYPED = """
async def user() -> None:
    t = await gather_trajectory(get_summary(model, scenario))
    reveal_type(t)
    print(len(t.result), t.children[0].result)
    many = await gather_trajectories(get_summary(model, scenario) for _ in range(3))
    print([len(one.result) for one in many], many[0].result + 1)  # wrong: no number
    history = t.get_history("id")
    assert history is not None
    await client.chat.completions.create(model="m", messages=history.to_openai())
    running = get_current_trajectory()
    running.group_id = "g"
    running.training_step = 3
    running.grup_id = "g"  # wrong: no field
    open_history = running.get_history("id")
    assert open_history is not None
    open_history.append({"role": "tool", "tool_call_id": "c", "content": "r"})
    await client.chat.completions.create(model="m", messages=open_history.to_openai())
    plain = await gather_trajectory(partial(plain_rollout, "a"))
    print(plain.result + 1)

def group_of(task: str) -> str: return task

@rollout(group_id=group_of)
def plain_rollout(task: str) -> int: return len(task)

@tool
def lookup(place: str) -> dict[str, str]: return {place: ""}

lookup("a")["b"]
lookup(1)  # wrong: no text
asyncio.run(user())
"""


def test_the_program_is_typed(tmp_path):
    pytest.importorskip("pyright")
    own = REQUEST.replace("message.content\n", "message.content  # wrong: may be None, in the request too\n")
    program = TYPED_IMPORTS + SETTING + own + TYPED
    (tmp_path / "art.py").write_text(ART, encoding="utf-8")
    (tmp_path / "program.py").write_text(program, encoding="utf-8")
    (tmp_path / "pyrightconfig.json").write_text('{"typeCheckingMode": "strict", "reportMissingModuleSource": false}')
    command = [sys.executable, "-m", "pyright", "--project", str(tmp_path), "--pythonpath", sys.executable]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    wrong = {number for number, line in enumerate(program.splitlines(), 1) if "# wrong" in line}
    told = [line for line in done.stdout.splitlines() if " error: " in line]
    assert {int(line.split("program.py:")[1].split(":")[0]) for line in told} == wrong, done.stdout
    assert 'Type of "t" is "Trajectory[str]"' in done.stdout
