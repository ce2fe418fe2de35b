"""Workers: results in the order of the tasks, progress, and what happens when one fails or is gone."""

import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest

from art_otel.engines.workers import Workers, advance
from art_otel.errors import UsageError, WorkerError


def after(task: tuple[int, float]) -> int:
    number, seconds = task
    time.sleep(seconds)
    return number


def count(size: int) -> int:
    advance(size)
    return os.getpid()


def fail(what: str) -> None:
    raise UsageError(what)


def end(how: int) -> None:
    os.kill(os.getpid(), how)


@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("slow", [0, 5, 19])
def test_results_come_in_order_however_long_a_task_takes(workers, slow):
    tasks = [(number, 0.2 if number == slow else 0.0) for number in range(40)]
    with Workers(workers) as running:
        for run in (running.run, running.run_few):
            assert list(run(after, tasks)) == list(range(40))
            assert list(run(after, tasks[:3])) == [0, 1, 2]
            assert list(run(after, [])) == []


def test_of_large_results_few_are_begun_before_they_are_asked_for():
    begun: list[int] = []
    tasks = (begun.append(number) or (number, 0.0) for number in range(40))
    with Workers(2) as running:
        results = running.run_few(after, tasks)
        assert next(results) == 0
        assert len(begun) <= 8
        assert list(results) == list(range(1, 40))


def test_all_progress_is_told_and_other_processes_do_the_work():
    told: list[int] = []
    with Workers(2, told.append) as running:
        processes = set(running.run(count, range(1, 50)))
    assert sum(told) == sum(range(1, 50))
    assert os.getpid() not in processes
    assert 1 <= len(processes) <= 2


def test_a_failure_is_raised_here():
    with pytest.raises(UsageError, match="no"), Workers(2) as running:
        list(running.run(fail, ["no", "no"]))


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_worker_that_is_ended_is_an_error_that_says_what_to_do(how):
    with pytest.raises(WorkerError, match="fewer --workers"), Workers(2) as running:
        list(running.run(end, [how, 0]))


def test_tasks_behind_a_worker_that_is_gone_say_so_too():
    with Workers(2) as running:
        with pytest.raises(WorkerError):
            list(running.run(end, [signal.SIGKILL]))
        for run in (running.run, running.run_few):
            with pytest.raises(WorkerError, match="fewer --workers"):
                list(run(after, [(0, 0.0)]))


def squeezed(limit: str, allowed: int) -> subprocess.CompletedProcess[str]:
    """Workers in a process whose user may have `allowed` more processes and threads, or that may open so many files."""
    program = f"""
        import os, resource, sys
        from art_otel.engines.workers import Workers
        from art_otel.errors import WorkerError

        def task(number): return number

        with Workers(2) as running:  # loads what an ordinary user may not read here
            list(running.run(task, range(2)))
        if os.geteuid() == 0 and {limit!r} == "NPROC":
            os.setresuid(*[54_000 + os.getpid() % 10_000] * 3)  # root is not limited, and others count for nobody
        resource.setrlimit(resource.RLIMIT_{limit}, ({allowed}, {allowed}))
        try:
            with Workers(6) as running:
                print(list(running.run(task, range(3))))
        except WorkerError as error:
            print(error)
    """
    command = [sys.executable, "-c", textwrap.dedent(program)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="counts what a user has that has nothing else")
@pytest.mark.parametrize("allowed", [2, 9, 12, 14, 15, 17])
def test_too_few_processes_or_threads_are_an_error_and_nothing_hangs(allowed):
    done = squeezed("NPROC", allowed)
    assert done.returncode == 0
    assert done.stdout == "[0, 1, 2]\n" or "use fewer --workers" in done.stdout
    assert allowed > 6 or "could not start 6 workers" in done.stdout


@pytest.mark.skipif(sys.platform != "linux", reason="other systems start workers that need a program in a file")
@pytest.mark.parametrize("allowed", [6, 9, 12, 16, 20])
def test_too_few_open_files_are_an_error_and_nothing_hangs(allowed):
    done = squeezed("NOFILE", allowed)
    assert "could not start 6 workers" in done.stdout
    assert "use fewer --workers" in done.stdout
    assert (done.returncode, done.stderr) == (0, "")
