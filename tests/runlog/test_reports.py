"""What is logged also goes to W&B where it is wanted, and to OTel's gauges; neither can stop a run."""

import subprocess
import sys
import textwrap

import pytest

from art_otel import RunLog
from art_otel.errors import UsageError
from art_otel.runlog.reports import _instrument_name

RECORDER = """
calls = []

class Run:
    def define_metric(self, name, **options):
        calls.append(("define_metric", name, options))

    def log(self, row):
        if "train/refused" in row:
            raise RuntimeError("the backend is down")
        calls.append(("log", row))

def init(**options):
    calls.append(("init", options))
    return Run()
"""
"""Stands for the package wandb and remembers how it was called."""


@pytest.fixture
def wandb(tmp_path, monkeypatch):
    (tmp_path / "wandb.py").write_text(RECORDER)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "wandb", raising=False)
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    yield __import__("wandb")
    sys.modules.pop("wandb", None)


@pytest.fixture
def no_wandb(monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)  # importing it fails as where it is not installed
    monkeypatch.delenv("WANDB_API_KEY", raising=False)


def log_once(tmp_path, report_metrics) -> None:
    RunLog("p", "m", tmp_path, report_metrics).log(metrics={"loss": 0.5}, split="train", step=3)


def test_wandb_gets_each_row_at_its_own_step(wandb, tmp_path):
    run_log = RunLog("p", "m", tmp_path, ["wandb"])
    assert wandb.calls == []
    for step in (3, 2):
        run_log.log(metrics={"loss": 0.5}, split="train", step=step)
    begun, *_ = wandb.calls
    assert begun == ("init", {"project": "p", "name": "m", "id": "m", "resume": "allow", "reinit": "create_new"})
    assert ("define_metric", "val/*", {"step_metric": "training_step"}) in wandb.calls
    rows = [call[1] for call in wandb.calls if call[0] == "log"]
    assert [row["training_step"] for row in rows] == [3, 2]
    assert set(rows[0]) == {"train/loss", "training_step", "time/wall_clock_sec"}
    assert sum(call[0] == "init" for call in wandb.calls) == 1


@pytest.mark.parametrize(
    ("report_metrics", "key", "reported"),
    [(None, "", False), (None, "k", True), ([], "k", False), (["wandb"], "", True), (("wandb",), "k", True)],
)
def test_wandb_is_asked_for_by_name_or_by_its_key(wandb, tmp_path, monkeypatch, report_metrics, key, reported):
    monkeypatch.setenv("WANDB_API_KEY", key)
    log_once(tmp_path, report_metrics)
    assert bool(wandb.calls) == reported


@pytest.mark.parametrize("wrong", ["wandb", ["wandb", "comet"], ["Wandb"]])
def test_other_reports_are_refused(tmp_path, wrong):
    with pytest.raises(UsageError, match="report_metrics: "):
        RunLog("p", "m", tmp_path, wrong)


@pytest.mark.usefixtures("no_wandb")
def test_wandb_that_is_named_has_to_be_installed(tmp_path):
    with pytest.raises(UsageError, match=r"art-otel\[wandb\]"):
        RunLog("p", "m", tmp_path, ["wandb"])


@pytest.mark.usefixtures("no_wandb")
def test_a_key_without_the_package_is_a_warning(tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("WANDB_API_KEY", "k")
    log_once(tmp_path, None)
    assert "art-otel[wandb]" in caplog.text


@pytest.mark.usefixtures("wandb")
def test_a_backend_that_fails_costs_a_warning_and_no_row(tmp_path, caplog):
    run_log = RunLog("p", "m", tmp_path, ["wandb"])
    run_log.log(metrics={"refused": 1.0}, split="train", step=0)
    (warning,) = (one.getMessage() for one in caplog.records if one.levelname == "WARNING")
    assert warning == "the metrics of step 0 did not reach wandb; history.jsonl has them: the backend is down"
    assert run_log.history()[0]["train/refused"] == 1.0


GAUGES = """
from art_otel import RunLog
from opentelemetry import metrics
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

logs = [RunLog("p", name, "{folder}") for name in ("early", "late")]
logs[0].log(metrics={{"loss": 1.0}}, split="train", step=0)
reader = InMemoryMetricReader()
metrics.set_meter_provider(MeterProvider([reader]))
for log in logs:
    log.log(metrics={{"loss": 0.5, "é 1": 2.0, "nan": float("nan")}}, split="train", step=1)
(resource,) = reader.get_metrics_data().resource_metrics
(scope,) = resource.scope_metrics
assert scope.scope.name == "art_otel"
for metric in scope.metrics:
    if metric.name != "time/wall_clock_sec":
        print(metric.name, sorted((point.attributes["art.model"], point.value) for point in metric.data.data_points))
"""


def test_metrics_are_gauges_of_whatever_meter_the_app_has(tmp_path):
    code = textwrap.dedent(GAUGES).format(folder=tmp_path)
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "train/loss [('early', 0.5), ('late', 0.5)]",
        "train/__1 [('early', 2.0), ('late', 2.0)]",
        "training_step [('early', 1), ('late', 1)]",
    ]


@pytest.mark.parametrize(
    ("name", "allowed"), [("val/reward", "val/reward"), ("1/ü b", "m_1/__b"), ("x" * 300, "x" * 255)]
)
def test_gauges_have_names_that_otel_allows(name, allowed):
    assert _instrument_name(name) == allowed
