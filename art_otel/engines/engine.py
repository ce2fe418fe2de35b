"""Engine: whatever runs the tasks of a conversion.

Invariant: an engine decides where and when a task runs and nothing else, so each gives the same dataset.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, TypeVar

from art_otel.errors import WorkerError

TaskT = TypeVar("TaskT")
SummaryT = TypeVar("SummaryT")


class Engine(Protocol):
    """Runs pure functions of plain records."""

    def run(self, function: Callable[[TaskT], SummaryT], tasks: Sequence[TaskT]) -> Iterator[SummaryT | WorkerError]:
        """The summaries in the order of the tasks, each as soon as it is there. Raises what the function raises.

        The WorkerError of a task that ends its workers stands in the place of its summary.
        """
        ...
