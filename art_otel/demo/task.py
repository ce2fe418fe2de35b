"""Task: a question about a city, what the instruments show there, and the attempts of a step at its tasks.

Invariant: a task and its attempts follow from the seed of the training and the step. What the instruments show is new
in each task, so nothing but reading the right one answers the question.
"""

from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

CITIES: Final = ("Lima", "Oslo", "Rome")
NUMBERS: Final = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
READ_FROM: Final = {"temperature": "thermometer", "hour": "clock", "births": "register", "bridges": "atlas"}
"""What can be asked for, and the instrument that shows it."""

KINDS: Final = len(READ_FROM)
TASKS: Final = 8
ATTEMPTS: Final = 8


@dataclass(frozen=True, kw_only=True, slots=True)
class Task:
    """Asks for `topic` in `city`. `readings` is what each instrument shows in each city."""

    name: str
    topic: str
    city: str
    readings: dict[str, dict[str, str]]

    def score(self, answer: str) -> float:
        """1.0 for the right answer, else 0.0."""
        return float(answer == self.readings[READ_FROM[self.topic]][self.city])


def make_task(seed: int, step: int, number: int) -> Task:
    """Task `number` of a step; the topics take turns."""
    chance = np.random.default_rng((seed, step, number))
    return Task(
        name=f"{step:04d}-{number}",
        topic=tuple(READ_FROM)[number % KINDS],
        city=str(chance.choice(CITIES)),
        readings={
            instrument: {city: str(chance.choice(NUMBERS)) for city in CITIES} for instrument in READ_FROM.values()
        },
    )


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
