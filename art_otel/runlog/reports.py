"""RunReports: where logged metrics go beside the disk: Weights & Biases, and the gauges of OpenTelemetry.

Invariant: what a backend refuses is logged as a warning and costs the run nothing; history.jsonl has it already.
W&B runs are set up as `Model._get_wandb_run` of openpipe-art 0.5.18 does it.
"""

import logging
import os
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib import import_module
from threading import Lock
from types import ModuleType
from typing import Any, Final, TypeAlias

from art_otel import attributes
from art_otel.errors import UsageError

Report: TypeAlias = Callable[[Mapping[str, float]], None]
"""Takes the metrics of one row, `training_step` and `time/wall_clock_sec` among them."""

_WANDB: Final = "wandb"
_X_AXIS: Final = "training_step"
_SECTIONS: Final = ("reward", "loss", "throughput", "costs", "time", "data", "train", "val", "test", "discarded")

logger = logging.getLogger(__name__)


def make_reports(project: str, model: str, report_metrics: Sequence[str] | None) -> tuple[Report, ...]:
    """The reports of a run: W&B if `report_metrics` names it, or is None and WANDB_API_KEY is set; gauges always.

    Raises UsageError for another name, and where W&B is named and not installed.
    """
    if isinstance(report_metrics, str) or set(report_metrics or ()) - {_WANDB}:
        raise UsageError(f'report_metrics: {report_metrics!r}; give ["wandb"], [] for none, or None')
    gauges = _Gauges(project, model)
    if report_metrics is None and not os.environ.get("WANDB_API_KEY"):
        return (gauges,)
    if report_metrics is not None and _WANDB not in report_metrics:
        return (gauges,)
    try:
        wandb = import_module(_WANDB)
    except ImportError as error:
        if report_metrics is not None:
            raise UsageError(
                f"report_metrics: W&B is not installed ({error}): pip install 'art-otel[wandb]'"
            ) from error
        logger.warning("WANDB_API_KEY is set and W&B is not installed: pip install 'art-otel[wandb]'")
        return (gauges,)
    return (_Wandb(wandb, project, model), gauges)


def send(reports: Sequence[Report], metrics: Mapping[str, float]) -> None:
    """Give the metrics to each report."""
    for report in reports:
        try:
            report(metrics)
        except Exception:  # any backend's own errors, and training is worth more than its picture
            logger.warning("metrics of a step were not reported; history.jsonl has them", exc_info=True)


class _Wandb:
    """The W&B run named after the model; begun with the first row, ended when the process ends."""

    def __init__(self, wandb: ModuleType, project: str, model: str) -> None:
        self._wandb = wandb
        self._project = project
        self._model = model
        self._run: Any = None  # W&B's own type, known only where it is installed
        self._lock = Lock()

    def __call__(self, metrics: Mapping[str, float]) -> None:
        with self._lock:
            if self._run is None:
                self._run = self._begin()
            self._run.log(dict(metrics))

    def _begin(self) -> Any:  # noqa: ANN401 # W&B's own type
        name = self._model
        run = self._wandb.init(project=self._project, name=name, id=name, resume="allow", reinit="create_new")
        run.define_metric(_X_AXIS)
        run.define_metric("time/wall_clock_sec")
        for section in _SECTIONS:  # so that a validation that ends late stands at its own step
            run.define_metric(f"{section}/*", step_metric=_X_AXIS)
        return run


class _Gauges:
    """A gauge for each metric, under its name, on the meter `art_otel` of whatever provider the app has set."""

    def __init__(self, project: str, model: str) -> None:
        self._attributes = {attributes.PROJECT: project, attributes.MODEL: model}

    def __call__(self, metrics: Mapping[str, float]) -> None:
        for name, value in metrics.items():
            _gauge(name).set(value, self._attributes)


@cache
def _gauge(name: str) -> Any:  # noqa: ANN401 # the API's class has a private name in some of its versions
    from opentelemetry.metrics import get_meter  # noqa: PLC0415 # readers of datasets need not wait for it

    return get_meter("art_otel").create_gauge(_instrument_name(name))


def _instrument_name(name: str) -> str:
    """The name with what OTel allows in one: a letter, then at most 254 of letters, digits and `_ . - /`."""
    allowed = re.sub(r"[^-_./a-zA-Z0-9]", "_", name)
    return (allowed if allowed[:1].isalpha() else f"m_{allowed}")[:255]
