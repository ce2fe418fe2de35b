"""RayEngine: run the tasks of a conversion on Ray, on a cluster or on a local Ray that ends with the conversion.

Invariant: Ray transports tasks and summaries only. An exception of a task is raised here without another attempt. A
task whose worker or node dies runs at most `ATTEMPTS` times; then a WorkerError is given in place of its summary.

Ray's own retries are off: they are silent, and without end for tasks that were killed because memory ran out.
"""

# Ray is not installed where the types are checked.
# pyright: reportMissingImports=false, reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

import logging
import os
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from art_otel.engines.run import Engine, SummaryT, TaskT, prepare_worker
from art_otel.errors import UsageError, WorkerError

ATTEMPTS: Final = 3
TASK_MEMORY: Final = 400 << 20
"""The most bytes of memory that a task needs; docs/how-to/convert-at-scale.md has the measurements."""

_OBJECT_STORE: Final = 80 << 20
"""Bytes of the object store of a local Ray: only summaries pass through it, and Ray demands at least 75 MiB."""

_TASKS_A_PROCESSOR: Final = 4
"""Submitted tasks per processor: more than one, so that an autoscaling cluster sees the waiting work."""

_NO_CLIENT: Final = (
    "is Ray Client, whose tasks end with its connection. Submit the command as a job instead (`ray job submit --"
    " art-otel convert …`), or start it on a node of the cluster with --ray-address auto"
)


@contextmanager
def ray_engine(workers: int | None, address: str | None) -> Generator[Engine]:
    """An engine on the Ray at `address`, with at most `workers` tasks at once (None: by the number of processors).

    Without an address it uses `RAY_ADDRESS`, else a local Ray that starts and ends with the engine. If the process is
    connected to a Ray already, the engine uses this connection and leaves it open.
    """
    address = _checked(address or os.environ.get("RAY_ADDRESS") or "local")
    # Ray reads both when it is loaded.
    os.environ.setdefault("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")  # it would copy the folder of `uv run` to every worker
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # a conversion sends no usage statistics to Ray's vendor
    try:
        import ray  # noqa: PLC0415 # an extra, and slow to load
    except ImportError:
        raise UsageError('--engine ray: needs Ray: pip install "art-otel[ray]"') from None
    if ray.is_initialized():
        yield _RayEngine(ray, workers)
        return
    _connect(ray, address, workers)
    try:
        yield _RayEngine(ray, workers)
    finally:
        ray.shutdown()


def _checked(address: str) -> str:
    if address.startswith("ray://"):
        raise UsageError(f"--ray-address {address}: {_NO_CLIENT}")
    return address


def _connect(ray: Any, address: str, workers: int | None) -> None:  # noqa: ANN401 # a module
    options: dict[str, Any] = {"address": address, "log_to_driver": False, "configure_logging": False}
    if address == "local":
        options |= {"num_cpus": workers, "include_dashboard": False, "object_store_memory": _OBJECT_STORE}
    try:
        with _without_advice():
            ray.init(**options)
    except (OSError, RuntimeError, ValueError) as error:
        problem = "Ray cannot start" if address == "local" else "no Ray answers there"
        raise UsageError(f"--ray-address {address}: {problem}: {_line(error)}") from error


@contextmanager
def _without_advice() -> Generator[None]:
    """Keep Ray's advice about cluster tokens, which it logs at each start, out of the app's log; but not its errors."""
    logger = logging.getLogger("ray._private.authentication")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)


class _RayEngine:
    def __init__(self, ray: Any, workers: int | None) -> None:  # noqa: ANN401 # a module
        self._ray = ray
        self._workers = workers
        died = ray.exceptions
        self._deaths = (
            died.WorkerCrashedError,
            died.OutOfMemoryError,
            died.NodeDiedError,
            died.LocalRayletDiedError,
            died.ObjectLostError,  # the node died after the task, but before its summary was fetched
        )
        options = {"num_cpus": 1, "memory": TASK_MEMORY, "max_retries": 0, "retry_exceptions": False}
        self._remote = ray.remote(**options)(_run)

    def run(self, function: Callable[[TaskT], SummaryT], tasks: Sequence[TaskT]) -> Iterator[SummaryT | WorkerError]:
        submit = self._remote.options(name=function.__name__).remote
        waiting = deque(range(len(tasks)))
        running: dict[Any, int] = {}
        deaths = Counter[int]()
        outcomes: dict[int, SummaryT | WorkerError] = {}
        try:
            for number in range(len(tasks)):
                while number not in outcomes:
                    while waiting and len(running) < self._most():
                        index = waiting.popleft()
                        running[submit(function, tasks[index])] = index
                    (done,), _ = self._ray.wait(list(running), num_returns=1)
                    index = running.pop(done)
                    try:
                        outcomes[index] = self._summary(done)
                    except self._deaths as death:
                        deaths[index] += 1
                        if deaths[index] < ATTEMPTS:  # first again, because summaries are given in order
                            waiting.appendleft(index)
                        else:
                            outcomes[index] = WorkerError(_dead(death))
                yield outcomes.pop(number)
        finally:
            for left in running:
                self._ray.cancel(left, force=True)

    def _most(self) -> int:
        """How many tasks are submitted at once. Asked each time, because a cluster may grow."""
        return self._workers or max(1, int(self._ray.cluster_resources().get("CPU", 1))) * _TASKS_A_PROCESSOR

    def _summary(self, done: Any) -> Any:  # noqa: ANN401 # Ray's objects have no type
        try:
            return self._ray.get(done)
        except self._ray.exceptions.RayTaskError as error:
            raise error.cause if isinstance(error.cause, Exception) else error from None
        except self._deaths:
            raise
        except self._ray.exceptions.RayError as error:
            raise WorkerError(f"Ray cannot run the tasks: {_line(error)}") from error


def _run(function: Callable[[TaskT], SummaryT], task: TaskT) -> SummaryT:
    prepare_worker()
    return function(task)


def _dead(death: Exception) -> str:
    return f"{ATTEMPTS} workers died while running it; the last one: {_line(death)}"


def _line(error: Exception) -> str:
    """The beginning of Ray's long message, on one line."""
    return " ".join(str(error).split())[:300]
