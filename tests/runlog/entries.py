"""Trajectories to log, and what an entry counts of them."""

from art_otel import Trajectory
from art_otel.runlog import LogEntry


def one(name: str, reward: float | None = None, group: str | None = None, **fields) -> Trajectory:
    return Trajectory(rollout_id=name, trace_id=f"{len(name):032x}", reward=reward, group_id=group, **fields)


GROUPED = [one("a", 1.0, "g"), one("b", 0.0, "g"), one("c", 0.5, "h"), one("d", 0.5, "h"), one("e", None, "h")]


def counts(entry: LogEntry) -> dict[str, float]:
    start = "data/step_num_"
    return {name.removeprefix(start): value for name, value in entry.metrics.items() if name.startswith(start)}


def metrics(entry: LogEntry) -> dict[str, float]:
    return {name: value for name, value in entry.metrics.items() if not name.startswith("data/")}
