"""Workers: results in the order of the tasks, progress, and what happens when one fails or is gone."""

import os
import signal
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
