"""Child processes: what one that is killed had begun is known, and one that ends by itself ends what it began."""

import os

import pytest

from tests.conversions import convert_files
from tests.examples import daily
from tests.tracing.setup.programs import CALL, run_code

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")

ON = {"ART_OTEL_ENABLED": "1"}

KILLED_IN_A_FORK = """
import os, signal
import art_otel
from opentelemetry import trace
with art_otel.rollout(name="agent"):
    pid = os.fork()
    if not pid:
        with trace.get_tracer("app").start_as_current_span("execute_tool rm"):
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(pid, 0)
"""

KILLED_IN_A_SERVICE = """
import json, os, signal, subprocess, sys
import art_otel
from opentelemetry import context, propagate, trace
if len(sys.argv) > 1:
    context.attach(propagate.extract(json.loads(sys.argv[1])))
    with trace.get_tracer("service").start_as_current_span("execute_tool rm"):
        os.kill(os.getpid(), signal.SIGKILL)
with art_otel.rollout(name="agent"):
    headers = {}
    propagate.inject(headers)
    subprocess.run([sys.executable, __file__, json.dumps(headers)])
"""


@pytest.mark.parametrize("code", daily([KILLED_IN_A_FORK, KILLED_IN_A_SERVICE], one_in=2))
def test_what_a_killed_child_had_begun_is_not_ended(tmp_path, code):
    found = run_code(tmp_path, code, **ON)
    assert (found.code, found.errors) == (0, "")
    ((agent,), _) = convert_files(tmp_path / "out", tmp_path / ".art" / "spool")
    assert (agent.status, agent.incomplete_reasons) == ("ok", {"not ended": 1})


BY_MULTIPROCESSING = f"""
import multiprocessing, sys
from concurrent.futures import ProcessPoolExecutor
import art_otel

def call(number):
{CALL.replace(chr(10), chr(10) + "    ")}

if __name__ == "__main__":
    context = multiprocessing.get_context(sys.argv[1])
    children = [context.Process(target=call, args=(number,)) for number in range(2)]
    for child in children:
        child.start()
    for child in children:
        child.join()
    with context.Pool(1) as pool:
        pool.map(call, [0])
        pool.close()
        pool.join()
    with ProcessPoolExecutor(1, mp_context=context) as executor:
        executor.submit(call, 0).result()
"""


@pytest.mark.parametrize("method", daily(["fork", "forkserver", "spawn"], one_in=3))
def test_the_own_rollout_of_a_child_that_ends_by_itself_ends(tmp_path, method):
    code = f"import sys; sys.argv.append({method!r})\n{BY_MULTIPROCESSING}"
    found = run_code(tmp_path, code, **ON)
    assert (found.code, found.errors) == (0, "")
    (run,) = (tmp_path / ".art" / "spool").iterdir()
    trajectories, _ = convert_files(tmp_path / "out", run)
    assert [(one.status, len(one.calls), one.incomplete_reasons) for one in trajectories] == [
        ("ok", 1, {"no content": 1})
    ] * 4


def test_exporters_get_what_the_last_moments_of_a_child_made(tmp_path):
    code = f"import sys; sys.argv.append('fork')\n{BY_MULTIPROCESSING}"
    found = run_code(tmp_path, code, **ON, OTEL_TRACES_EXPORTER="console")
    assert (found.code, found.errors) == (0, "")
    (tmp_path / "exported.json").write_text(found.output)
    exported, _ = convert_files(tmp_path / "exported", tmp_path / "exported.json")
    recorded, _ = convert_files(tmp_path / "out", tmp_path / ".art" / "spool")
    assert len(recorded) == 4
    of_exporter, of_spool = (
        {(one.rollout_id, one.status, len(one.calls)) for one in all_} for all_ in (exported, recorded)
    )
    assert of_exporter == of_spool


CHILD_OF_A_CHILD = f"""
import atexit, multiprocessing, multiprocessing.util, sys
import art_otel

def call():
{CALL.replace(chr(10), chr(10) + "    ")}

def child():
    multiprocessing.util.Finalize(None, call, exitpriority=-5)
    call()
    context.Process(target=call).start()

context = multiprocessing.get_context("fork")
running = context.Process(target=child)
running.start()
running.join()
"""


def test_it_ends_after_the_app_s_finalizers_and_the_child_s_own_children(tmp_path):
    found = run_code(tmp_path, CHILD_OF_A_CHILD, **ON)
    assert (found.code, found.errors) == (0, "")
    ((own,), _) = convert_files(tmp_path / "out", tmp_path / ".art" / "spool")
    assert (own.status, len(own.calls), own.incomplete_reasons) == ("ok", 3, {"no content": 3})


WORKER_OF_CELERY = f"""
import os
import art_otel
from celery.signals import worker_process_shutdown
{CALL}
worker_process_shutdown.send(sender=None, pid=os.getpid(), exitcode=0)
os._exit(0)
"""


def test_the_own_rollout_of_a_worker_of_celery_ends(tmp_path):
    pytest.importorskip("celery")
    found = run_code(tmp_path, WORKER_OF_CELERY, **ON)
    assert (found.code, found.errors) == (0, "")
    ((own,), _) = convert_files(tmp_path / "out", tmp_path / ".art" / "spool")
    assert own.status == "ok"


def test_multiprocessing_is_the_app_s_to_import(tmp_path):
    code = f"import sys\nimport art_otel{CALL}print('multiprocessing.util' in sys.modules)"
    assert run_code(tmp_path, code, **ON).output == "False\n"


ASKED_IN_A_FORK = f"""
import os, time
import art_otel

def call():
{CALL.replace(chr(10), chr(10) + "    ")}

with art_otel.rollout(name="agent") as running:
    call()
    pid = os.fork()
    if not pid:
        for _ in range(3):
            call()
            time.sleep(0.05)
        print(len(art_otel.get_current_trajectory().calls), flush=True)
        os._exit(0)
    os.waitpid(pid, 0)
"""


def test_a_forked_child_may_ask_for_what_it_did_in_its_parent_s_rollout(tmp_path):
    found = run_code(tmp_path, ASKED_IN_A_FORK, **ON, ART_OTEL_GRACE_SECONDS="0.01")
    assert (found.output, found.errors) == ("3\n", "")
