"""Logs rows with the real clients, or prints as JSON what their own readers find.

report_to_clients.py log FOLDER STEP…
report_to_clients.py read FOLDER
"""

import json
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

import mlflow
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from wandb.proto.wandb_internal_pb2 import Record

from art_otel import RunLog

BLOCK, FULL, LAST = 32 * 1024, 1, 4
RUBRIC = {f"rubric/{number}": number / 2 for number in range(2500)}
"""More metrics than MLflow takes in one call."""


def log(folder: Path, steps: list[int]) -> None:
    """As an app that has a run of its own in MLflow."""
    mlflow.set_experiment("of the app")
    with mlflow.start_run(run_name="its own"):
        run_log = RunLog("p:1", "m's", folder / "runs", ["wandb", "mlflow", "tensorboard"])
        for step in steps:
            run_log.log(metrics={"loss": step / 4, "é 1": 2.0, "nan": float("nan")}, split="train", step=step)
        run_log.log(metrics={"reward": 0.5}, step=steps[0])
        run_log.log(metrics=RUBRIC, split="test", step=steps[0])
        mlflow.log_metric("app", 1.0)


def read(folder: Path) -> dict:
    return {
        "wandb": [wandb_rows(file) for file in sorted(folder.glob("wandb/offline-run-*/run-*.wandb"))],
        "mlflow of many": mlflow_rubric(),
        "mlflow": mlflow_runs(),
        "tensorboard": tensorboard_scalars(folder / "runs" / "p:1" / "models" / "m's" / "tensorboard"),
    }


def wandb_rows(file: Path) -> dict:
    found = {"rows": [], "axes": {}}
    for data in wandb_records(file.read_bytes()):
        record = Record()
        record.ParseFromString(data)
        if record.HasField("run"):
            found["run"] = [record.run.project, record.run.display_name, record.run.run_id]
        elif record.HasField("history"):
            row = {item.key or ".".join(item.nested_key): json.loads(item.value_json) for item in record.history.item}
            shown = {name: value for name, value in row.items() if not name.startswith(("_", "time/", "test/"))}
            found["rows"] += [shown] if shown.keys() != {"training_step"} else []
        elif record.HasField("metric") and record.metric.step_metric:
            found["axes"][record.metric.glob_name or record.metric.name] = record.metric.step_metric
    return found


def wandb_records(file: bytes) -> Iterator[bytes]:
    """The records of a LevelDB log, behind 7 bytes of W&B's own: no reader of it is in the client any more."""
    record = b""
    for start in range(0, len(file), BLOCK):
        block, at = file[start : start + BLOCK], 0 if start else 7
        while at + 7 <= len(block):
            _, size, kind = struct.unpack_from("<IHB", block, at)
            record += block[at + 7 : at + 7 + size]
            at += 7 + size
            if kind in (FULL, LAST):
                yield record
                record = b""


def mlflow_runs() -> dict:
    client, found = mlflow.MlflowClient(), {}
    for experiment in client.search_experiments():
        for run in client.search_runs([experiment.experiment_id], order_by=["attributes.start_time"]):
            history = {
                name: [[one.step, one.value] for one in client.get_metric_history(run.info.run_id, name)]
                for name in run.data.metrics
                if not name.startswith(("time/", "test/"))
            }
            found.setdefault(experiment.name, []).append([run.info.run_name, run.info.status, history])
    return found


def mlflow_rubric() -> dict:
    client = mlflow.MlflowClient()
    (run,) = client.search_runs([client.get_experiment_by_name("p:1").experiment_id])
    return {name.removeprefix("test/"): value for name, value in run.data.metrics.items() if name.startswith("test/")}


def tensorboard_scalars(folder: Path) -> dict:
    events = EventAccumulator(str(folder))
    events.Reload()
    names = [name for name in events.Tags()["scalars"] if not name.startswith(("time/", "test/"))]
    return {name: [[one.step, one.value] for one in events.Scalars(name)] for name in names}


if __name__ == "__main__":
    verb, folder, *steps = sys.argv[1:]
    if verb == "log":
        log(Path(folder), list(map(int, steps)))
    else:
        print(json.dumps(read(Path(folder))))
