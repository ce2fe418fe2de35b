"""RunReports: where logged metrics go beside the disk: W&B, MLflow, TensorBoard, and the gauges of OpenTelemetry.

Invariant: what a backend refuses is logged as a warning and costs the run nothing; history.jsonl has it already.
Each is its own standard client, told where to write by that client's own settings. A process that goes on with a run
goes on with its run there. W&B runs are set up as `Model._get_wandb_run` of openpipe-art 0.5.18 does it.
"""

import atexit
import logging
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib import import_module
from threading import Lock
from types import ModuleType
from typing import Any, Final, TypeAlias

from art_otel import attributes
from art_otel.errors import UsageError
from art_otel.runlog.folder import RunFolder

Metrics: TypeAlias = Mapping[str, float]
Report: TypeAlias = Callable[[Metrics], None]
"""Takes the metrics of one row, `training_step` and `time/wall_clock_sec` among them."""

_X_AXIS: Final = "training_step"
_MLFLOW_BATCH: Final = 1000
"""Metrics of one request: MLflow's REST API refuses more (Log Batch)."""
_SECTIONS: Final = ("reward", "loss", "throughput", "costs", "time", "data", "train", "val", "test", "discarded")

logger = logging.getLogger(__name__)


def make_reports(folder: RunFolder, report_metrics: Sequence[str] | None) -> tuple[Report, ...]:
    """The reports of a run: those that are named, W&B where None is given and WANDB_API_KEY is set; gauges always.

    Raises UsageError for another name, and for one whose client is not installed.
    """
    if isinstance(report_metrics, str) or set(report_metrics or ()) - _CLIENTS.keys():
        raise UsageError(f"report_metrics: {report_metrics!r}; give some of {[*_CLIENTS]}, [] for none, or None")
    by_key = ["wandb"] if os.environ.get("WANDB_API_KEY") else []
    reports: list[Report] = []
    for name in dict.fromkeys(by_key if report_metrics is None else report_metrics):
        module, make = _CLIENTS[name]
        try:
            reports.append(make(import_module(module), folder))
        except ImportError as error:
            cure = f"{module} is not installed ({error}): pip install 'art-otel[{name}]'"
            if report_metrics is not None:
                raise UsageError(f"report_metrics: {cure}") from error
            logger.warning("WANDB_API_KEY is set and %s", cure)
    return (*reports, _Gauges(folder))


def send(reports: Sequence[Report], metrics: Metrics) -> None:
    """Give the metrics to each report."""
    for report in reports:
        try:
            report(metrics)
        except Exception as error:  # noqa: BLE001 # any backend's own errors, and training is worth more than its picture
            step, why = int(metrics[_X_AXIS]), str(error).partition("\n")[0] or type(error).__name__
            logger.warning(
                "the metrics of step %s did not reach %s; history.jsonl has them: %.500s", step, _named(report), why
            )


def _named(report: Report) -> str:
    return type(report).__name__.lstrip("_").lower()


class _ClientRun:
    """A run of a client, begun with the first row. One thread at a time writes to it."""

    def __init__(self, client: ModuleType, folder: RunFolder) -> None:
        self._client: Any = client  # none of these clients is installed where the types are checked
        self._folder = folder
        self._log: Callable[[Metrics], object] | None = None
        self._lock = Lock()

    def __call__(self, metrics: Metrics) -> None:
        with self._lock:
            if self._log is None:
                self._log = self._begin()
            self._log(metrics)

    def _begin(self) -> Callable[[Metrics], object]:
        raise NotImplementedError


class _Wandb(_ClientRun):
    """The W&B run named after the model; W&B ends it when the process ends."""

    def _begin(self) -> Callable[[Metrics], object]:
        project, name = re.sub(r"[#?%:]", "_", self._folder.project), self._folder.model
        run_id = re.sub(r"[:;,#?']", "_", name).strip()  # W&B allows these in a run's name, and not in its id
        run = self._client.init(project=project, name=name, id=run_id, resume="allow", reinit="create_new")
        run.define_metric(_X_AXIS)
        run.define_metric("time/wall_clock_sec")
        for section in _SECTIONS:  # so that a validation that ends late stands at its own step
            run.define_metric(f"{section}/*", step_metric=_X_AXIS)
        return lambda metrics: run.log(dict(metrics))


class _Mlflow(_ClientRun):
    """The newest MLflow run named after the model in the experiment named after the project, else a new one.

    The app's own active run is left alone. The run is finished when the process ends.
    """

    def _begin(self) -> Callable[[Metrics], object]:
        client, name = self._client.MlflowClient(), self._folder.model
        known = client.get_experiment_by_name(self._folder.project)
        experiment = client.create_experiment(self._folder.project) if known is None else known.experiment_id
        if known is not None and known.lifecycle_stage == "deleted":  # its name is taken, and it takes no runs
            client.restore_experiment(experiment)
        # Newest first, a thousand at most. A filter by name would have to quote it, which MLflow does not do for all.
        earlier = (run for run in client.search_runs([experiment]) if run.info.run_name == name)
        run_id = (next(earlier, None) or client.create_run(experiment, run_name=name)).info.run_id
        client.update_run(run_id, status="RUNNING")
        atexit.register(client.set_terminated, run_id)
        metric = self._client.entities.Metric

        def log(metrics: Metrics) -> None:
            now, step = int(1000 * time.time()), int(metrics[_X_AXIS])
            rest = {_allowed(name): value for name, value in metrics.items() if name != _X_AXIS}
            row = [metric(name, value, now, step) for name, value in rest.items()]
            for start in range(0, len(row), _MLFLOW_BATCH):
                client.log_batch(run_id, row[start : start + _MLFLOW_BATCH])

        return log


class _Tensorboard(_ClientRun):
    """Event files in the run's folder `tensorboard/`, each row on the disk when it was logged."""

    def _begin(self) -> Callable[[Metrics], object]:
        writer = self._client.SummaryWriter(str(self._folder.path / "tensorboard"))

        def log(metrics: Metrics) -> None:
            for name, value in metrics.items():
                if name != _X_AXIS:
                    writer.add_scalar(name, value, int(metrics[_X_AXIS]))
            writer.flush()

        return log


_CLIENTS: Final[Mapping[str, tuple[str, Callable[[ModuleType, RunFolder], Report]]]] = {
    "wandb": ("wandb", _Wandb),
    "mlflow": ("mlflow", _Mlflow),
    "tensorboard": ("tensorboardX", _Tensorboard),
}
"""The module of each client, and the report that is made with it. The extra that brings it has the same name."""


class _Gauges:
    """A gauge for each metric, under its name, on the meter `art_otel` of whatever provider the app has set."""

    def __init__(self, folder: RunFolder) -> None:
        self._attributes = {attributes.PROJECT: folder.project, attributes.MODEL: folder.model}

    def __call__(self, metrics: Metrics) -> None:
        for name, value in metrics.items():
            _gauge(name).set(value, self._attributes)


@cache
def _gauge(name: str) -> Any:  # noqa: ANN401 # the API's class has a private name in some of its versions
    from opentelemetry.metrics import get_meter  # noqa: PLC0415 # readers of datasets need not wait for it

    return get_meter("art_otel").create_gauge(_instrument_name(name))


def _instrument_name(name: str) -> str:
    """The name with what OTel allows in one: a letter, then at most 254 of letters, digits and `_ . - /`."""
    allowed = _allowed(name)
    return (allowed if allowed[:1].isalpha() else f"m_{allowed}")[:255]


def _allowed(name: str) -> str:
    """The name with `_` for all but letters, digits and `_ . - /`, which MLflow refuses as well."""
    return re.sub(r"[^-_./a-zA-Z0-9]", "_", name)
