"""A Ray cluster of several nodes on this machine, and an engine whose workers die where a test says."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from art_otel.engines import Conversion, Sizes
from art_otel.engines.ray_engine import ray_engine
from art_otel.engines.run import Engine
from tests.dumps import chat_span, make_span, request_of, write_lines
from tests.trajectories.reward_spans import evaluation, link_to

PHASES = ["read_split", "route", "probe", "reroute", "assemble"]
FEW_PHASES = PHASES if "ART_OTEL_KILLS" in os.environ else ["read_split", "assemble"]
"""Of what takes a quarter of a minute each."""

OBJECT_STORE = 75 << 20
"""The least that Ray takes."""

SPLIT = Sizes(slots=31, least_split=20_000, most_split=20_000, partition_bytes=60_000, part_bytes=120_000)
"""Several tasks of every kind of a small dump."""


class Node:
    """A node of a cluster that can be removed and replaced."""

    def __init__(self, cluster) -> None:
        self._cluster = cluster
        self.node = cluster.add_node(num_cpus=2, memory=1 << 30, object_store_memory=OBJECT_STORE)

    @property
    def name(self) -> str:
        return self.node.node_id

    def remove(self) -> None:
        self._cluster.remove_node(self.node, allow_graceful=False)


class RayCluster:
    """A head that runs nothing, and nodes that do. This process is connected, others connect to `address`."""

    def __init__(self, cluster) -> None:
        self._cluster = cluster
        self.address: str = cluster.address
        self.nodes: list[Node] = []

    def add(self) -> Node:
        node = Node(self._cluster)
        self.nodes.append(node)
        return node


@contextmanager
def running_cluster(nodes: int) -> Iterator[RayCluster]:
    os.environ["RAY_ENABLE_UV_RUN_RUNTIME_ENV"] = "0"  # as the engine does
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    ray = pytest.importorskip("ray", reason="uv run --group ray")
    from ray.cluster_utils import Cluster  # noqa: PLC0415 # not installed everywhere

    head = {"num_cpus": 0, "memory": 1 << 30, "object_store_memory": OBJECT_STORE, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    try:
        ray.init(address=cluster.address, log_to_driver=False)
        started = RayCluster(cluster)
        for _ in range(nodes):
            started.add()
        cluster.wait_for_nodes()
        yield started
    finally:
        ray.shutdown()
        cluster.shutdown()


class Deadly:
    """The Ray engine, but in one phase the first worker that comes does not live.

    It kills itself so many `seconds` after its task began, None when it is done and nobody has heard of it yet. One
    that `waits` waits for its node to be removed.
    """

    def __init__(
        self, engine: Engine, folder: Path, phase: str, seconds: float | None = None, *, waits: bool = False
    ) -> None:
        self._engine = engine
        self._phase = phase
        self._seconds = seconds
        self._stopped = folder / "stopped"
        self._waits = waits

    @property
    def has_killed(self) -> bool:
        return self._stopped.exists()

    def node_that_waits(self) -> str:
        while not self._stopped.exists() or not self._stopped.read_text():
            time.sleep(0.01)
        return self._stopped.read_text()

    def run(self, function: Callable, tasks: Sequence) -> Iterator:
        name = function.__name__
        if name != self._phase:
            chosen = function
        else:
            chosen = Dying(name, function, self._stopped, self._seconds, waits=self._waits)
        return self._engine.run(chosen, tasks)


class Dying:
    """A function that kills its process, once."""

    def __init__(self, name: str, function: Callable, stopped: Path, seconds: float | None, *, waits: bool) -> None:
        self.__name__ = name
        self._function = function
        self._stopped = stopped
        self._seconds = seconds
        self._waits = waits

    def __call__(self, task: object) -> object:
        import ray  # noqa: PLC0415 # not installed everywhere

        try:
            descriptor = os.open(self._stopped, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
        except FileExistsError:
            return self._function(task)
        os.write(descriptor, ray.get_runtime_context().get_node_id().encode())
        if self._waits:
            self._function(task)
            time.sleep(600)
        if self._seconds is not None:
            threading.Timer(self._seconds, os.kill, (os.getpid(), signal.SIGKILL)).start()
        summary = self._function(task)
        if self._seconds is None:
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(self._seconds or 0)
        return summary


def contents(out: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(out.glob("part-*"))}


@contextmanager
def connected() -> Iterator[Engine]:
    """The engine on the Ray that this process is connected to."""
    with ray_engine(None, None) as engine:
        yield engine


def write_linked(folder: Path, rollouts: int, files: int) -> list[Path]:
    """Rollouts whose calls are traces of their own, with rewards that come late and from elsewhere, in some files."""
    requests = [request_of(span) for rollout in range(rollouts) for span in _linked(rollout)]
    return [write_lines(folder / f"{number}.jsonl", requests[number::files]) for number in range(files)]


def _linked(rollout: int):
    first = 1 + rollout * 100
    named = {"art.rollout.id": f"r{rollout}"}
    yield make_span(1, name="rollout", trace=first, attributes=named)
    for call in range(5):
        answered = named | {"gen_ai.response.id": f"response-{rollout}-{call}"}
        yield chat_span(2 + call, None, [f"q{call} " * 50], "a", trace=first + 1 + call, attributes=answered)
    yield make_span(3, trace=first + 50, name="reward linked", attributes={"art.reward": 0.25}, links=link_to(1, first))
    yield make_span(3, trace=first + 51, name="reward named", attributes=named | {"art.reward": 0.5})
    by_response = {"gen_ai.response.id": f"response-{rollout}-3"}
    yield make_span(3, trace=first + 52, name="grade", events=[evaluation("late", 0.75, **by_response)])


def conversion(sources: Sequence[Path], out: Path, sizes: Sizes = SPLIT) -> Conversion:
    return Conversion(sources=[str(source) for source in sources], out=out, sizes=sizes)
