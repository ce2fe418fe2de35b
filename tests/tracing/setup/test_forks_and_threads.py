"""Where a span starts matters to nobody: in a forked child, or in a thread that outlives the main one."""

import pytest

from tests.conversions import convert_files
from tests.tracing.setup.programs import ASK, CALL, asking, run_code

ON = {"ART_OTEL_ENABLED": "1"}

JUDGED_IN_A_CHILD = f"""
import multiprocessing
import art_otel
{CALL}
def judge(number):
    running = art_otel.get_current_trajectory()
    art_otel.reward(1.0)
    art_otel.reward(0.5, "named", rollout_id=running.rollout_id)
    art_otel.reward(0.25, "of the step", step=0)
    art_otel.reward(0.75, "of the span", target=inner)
    running.log("not heard")
    running.metrics["not"] = 1
    running.metadata["not"] = 1
    running.reward = 0.0
    with art_otel.rollout(name="of the child") as own:
        own.metrics["is"] = 1
        own.reward = 0.1

with art_otel.rollout(name="agent", metadata={{"kept": 1}}):
    with art_otel.step():
        with tracer.start_as_current_span("inner") as inner:
            pass
        inner = tracer.start_span("still runs")
    with multiprocessing.get_context("fork").Pool(1) as pool:
        pool.map(judge, [0])
    inner.end()
"""


def test_a_forked_child_judges_the_rollout_that_runs_in_its_parent(tmp_path):
    found = run_code(tmp_path, JUDGED_IN_A_CHILD, **ON)
    assert found.code == 0
    by_name = {one.name: one for one in convert_files(tmp_path / "out", tmp_path / ".art" / "spool")[0]}
    agent, own = by_name["agent"], by_name["of the child"]
    assert (own.reward, own.metrics) == (0.1, {"is": 1.0})
    assert {given.name: (given.value, given.step) for given in agent.rewards} == {
        "reward": (1.0, None),
        "named": (0.5, None),
        "of the step": (0.25, 0),
        "of the span": (0.75, 0),
    }
    assert (agent.complete, agent.metrics, agent.metadata, agent.logs) == (True, {}, {"kept": 1}, ())
    for what in ("log", "metrics", "metadata"):
        assert found.errors.count(f"its {what} cannot be set here") == 1
    assert found.errors.count("give its reward with art_otel.reward(") == 1


WHILE_IT_IS_MADE = """
import threading
import time
import art_otel
from opentelemetry import trace

tracer = trace.get_tracer("app")

@art_otel.rollout
def ask():
    with tracer.start_as_current_span("chat m", attributes={"gen_ai.operation.name": "chat"}):
        pass

def run(number):
    time.sleep(number / 100)
    ask()

threads = [threading.Thread(target=run, args=(number,)) for number in range(60)]
for thread in threads:
    thread.start()
"""


def test_threads_that_begin_while_tracing_is_made_are_recorded(tmp_path):
    assert run_code(tmp_path, WHILE_IT_IS_MADE, **ON).code == 0
    trajectories, _ = convert_files(tmp_path / "out", tmp_path / ".art" / "spool")
    assert [(one.name, len(one.calls)) for one in trajectories] == [("ask", 1)] * 60


THREAD = "import threading\n{imported}\ndef run():\n    {body}\nthreading.Thread(target=run).start()\n"


@pytest.mark.parametrize(
    ("imported", "exporter"),
    [("import art_otel", "console"), pytest.param("import art_otel, openai", "none", marks=pytest.mark.program)],
)
def test_the_first_span_may_start_after_the_main_thread_has_ended(tmp_path, server, imported, exporter):
    ask = "import time, art_otel; time.sleep(0.3)" + (ASK if "openai" in imported else CALL)
    code = THREAD.format(imported=imported, body=ask.replace("\n", "\n    "))
    variables = {"OTEL_SERVICE_NAME": "late", "OTEL_TRACES_EXPORTER": exporter} | asking(server)
    found = run_code(tmp_path, code, **ON, **variables)
    assert (found.code, found.errors) == (0, "")
    ((own,), _) = convert_files(tmp_path / "out", tmp_path / ".art" / "spool")
    assert (own.name, len(own.calls), own.incomplete_reasons.get("not ended")) == ("app.py", 1, None)
    assert ('"service.name": "late"' in found.output) is (exporter == "console")
