"""Rollouts: the agent tries tasks, and what it answers is scored.

Invariant: what is tried in a step, and every seed in it, follows from the seed of the training and the step.
"""

from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple

import numpy as np

import art_otel
from art_otel.demo.agent_process import AgentProcess
from art_otel.demo.task import Task, make_task

TASKS: Final = 8
ATTEMPTS: Final = 8
_AT_ONCE: Final = 4


class Attempt(NamedTuple):
    """One attempt at a task; what the policy samples in it follows from its seed."""

    task: Task
    step: int
    seed: int


def attempts(seed: int, step: int) -> list[Attempt]:
    """List the attempts of a step: several at each task, to be compared with each other."""
    step_attempts: list[Attempt] = []
    for number in range(TASKS):
        task = make_task(seed, step, number)
        seeds = np.random.SeedSequence((seed, step, number)).generate_state(ATTEMPTS)
        step_attempts += [Attempt(task, step, int(each)) for each in seeds]
    return step_attempts


def roll_out(agent: AgentProcess, seed: int, step: int) -> None:
    """Run the rollouts of a step, several at once."""

    def run(attempt: Attempt) -> None:
        task = attempt.task
        with art_otel.rollout(name=task.topic, group_id=task.name, split="train", training_step=step):
            art_otel.reward(task.score(agent.ask(task, attempt.seed)))

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        list(pool.map(run, attempts(seed, step)))
