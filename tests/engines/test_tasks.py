"""Tasks are pure: each runs in a fresh interpreter, from a pickle, on a store, is killed and runs again."""

import pickle
import random
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from art_otel import read_trajectories
from art_otel.engines import Conversion, convert
from tests.conversions import RECORDINGS, SMALL, check_sums, convert_files
from tests.dumps import chat_span, make_span, request_of, write_lines
from tests.engines.test_linked_traces import spans
from tests.s3_server import credentials, running  # noqa: F401 # a fixture of every test here
from tests.trajectories.reward_spans import evaluation

PROGRAM = """
import pickle, sys
with open(sys.argv[1], "rb") as file:
    function, task = pickle.load(file)
with open(sys.argv[2], "wb") as file:
    pickle.dump(function(task), file)
"""


class FreshInterpreters:
    """An engine: each task runs in a Python of its own, some of them only after they were killed at a random moment."""

    def __init__(self, folder: Path, kills: int) -> None:
        self.names: list[str] = []
        self._folder = folder
        self._kills = kills
        self._random = random.Random(0)

    def run(self, function: Callable, tasks: Sequence) -> Iterator:
        for task in tasks:
            self.names.append(function.__name__)
            asked, answered = self._folder / "task", self._folder / "summary"
            asked.write_bytes(pickle.dumps((function, task)))
            command = [sys.executable, "-c", PROGRAM, str(asked), str(answered)]
            while self._kills > 0 and self._random.random() < 0.7:
                self._kills -= 1
                self._kill(command)
            subprocess.run(command, check=True)
            subprocess.run(command, check=True)  # twice, as an engine may do
            yield pickle.loads(answered.read_bytes())

    def _kill(self, command: list[str]) -> None:
        with subprocess.Popen(command) as process:
            try:
                process.wait(self._random.uniform(0.1, 1.0))
            except subprocess.TimeoutExpired:
                process.kill()


def every_kind_of_record():
    """Linked traces, rewards by span, by rollout, and by nothing but a response."""
    yield from spans()
    answered = {"gen_ai.response.id": "response-of-one"}
    yield make_span(1, name="rollout", trace=5_000, attributes={"art.rollout.id": "judged"})
    yield chat_span(2, 1, ["q"], "a", trace=5_000, attributes=answered)
    yield make_span(1, name="reward one", trace=5_001, attributes={"art.rollout.id": "judged", "art.reward": 0.5})
    yield make_span(1, name="grade", trace=5_002, events=[evaluation("late", 0.25, **answered)])
    yield make_span(1, name="grade", trace=5_003, events=[evaluation("lost", 1.0, **{"gen_ai.response.id": "none"})])


@pytest.mark.store
def test_every_task_runs_anywhere_twice_and_after_it_was_killed(tmp_path):
    dump = write_lines(tmp_path / "in.jsonl", map(request_of, every_kind_of_record()))
    expected, alone = convert_files(tmp_path / "alone", dump, RECORDINGS / "traceloop")
    with running(tmp_path / "log") as server:
        server.put("work")
        server.put("work/in/made.jsonl", dump.read_bytes())
        for path in (RECORDINGS / "traceloop").glob("*.jsonl"):
            server.put(f"work/in/{path.name}", path.read_bytes())
        engine = FreshInterpreters(tmp_path, kills=20)
        out = server.url("work/out")
        report = convert(Conversion(sources=[server.url("work/in/")], out=out, sizes=SMALL), engine)
        check_sums(report)
        found = list(read_trajectories(out))
    assert sorted(found, key=lambda one: one.order) == sorted(expected, key=lambda one: one.order)
    assert (report.spans, report.rewards) == (alone.spans, alone.rewards)
    assert set(engine.names) == {"read_split", "route", "probe", "reroute", "assemble"}
