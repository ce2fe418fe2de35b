"""Tracing in memory: for who gathers where nothing is set up."""

import asyncio
import gc
import os
import string
from pathlib import Path

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from art_otel import RolloutSpanProcessor, convert, gather_trajectory, read_trajectories, rollout, workflows
from art_otel.errors import UsageError
from art_otel.live import RolloutBuffer
from art_otel.spool import MemorySpool
from art_otel.spool.line import HeldText
from art_otel.tracing import internal_errors
from art_otel.tracing.api.context import recorder, use_recorder
from art_otel.tracing.sdk.processor import RecordingSpanProcessor
from art_otel.tracing.sdk.rollout_registry import ProcessRollout
from tests.tracing.api.app import messages
from tests.tracing.setup.test_setup import CHAT, call


def test_nothing_of_it_stays(tracing, otel, tmp_path):
    before = dict(os.environ)
    for _ in range(3):
        with tracing.in_memory():
            with tracing.in_memory(), rollout(name="agent") as trajectory:
                call(otel)
            assert len(trajectory.calls) == 1
            assert recorder() is not None
        assert recorder() is None
        assert not tracing.is_set_up
        assert isinstance(otel.get_tracer_provider(), otel.ProxyTracerProvider)
        assert not otel.get_tracer("app").start_span("after").is_recording()
    assert dict(os.environ) == before
    assert list(tmp_path.iterdir()) == []


def test_a_workflow_is_recorded_as_gathering_records(tracing, otel, tmp_path, monkeypatch):
    monkeypatch.setattr(workflows, "tracing", tracing)

    class Asking(workflows.StepWiseRewardWorkflow):
        max_step_num = 2

        def step(self, step_num):
            answer = {**CHAT, "gen_ai.output.messages": messages("assistant", f"{step_num}")}
            otel.get_tracer("openai.test").start_span("chat m", attributes=answer).end()
            return True

        def reward(self, exps, step_num):
            return float(exps[0].response_text == f"{step_num}")

    assert [(one.step, one.reward) for one in Asking().run()] == [(0, 1.0), (1, 1.0)]
    with rollout(name="that nothing records"):
        assert [one.step for one in Asking().run()] == [0, 1]
    assert recorder() is None
    assert list(tmp_path.iterdir()) == []


def test_it_exports_nothing_and_leaves_a_set_up_alone(tracing, monkeypatch, tmp_path):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    with tracing.in_memory():
        assert (tracing.settings.exporters, tracing.settings.spool) == ((), False)
    tracing.change({}, {"dir": tmp_path / "art"})
    chosen = tracing.settings
    with tracing.in_memory():
        assert tracing.settings is chosen
    assert tracing.settings is chosen


def test_configure_takes_its_place(tracing, otel, tmp_path):
    with tracing.in_memory():
        with rollout(name="before"):
            call(otel)
        tracing.change({}, {"dir": tmp_path / "art"})
        with rollout(name="after"):
            call(otel)
    tracing.flush()
    tracing.shutdown()
    convert(tmp_path / "art" / "spool", tmp_path / "out")
    assert [found.name for found in read_trajectories(tmp_path / "out")] == ["after"]


def test_project_and_model_change_at_any_time(tracing, otel, tmp_path):
    tracing.change({}, {"dir": tmp_path / "art"})
    call(otel)
    recording = recorder()
    tracing.change({}, {"project": "p", "model": "m"})
    assert (tracing.settings.project, tracing.settings.model, recorder()) == ("p", "m", recording)
    with pytest.raises(UsageError, match="split: spans were recorded"):
        tracing.change({}, {"split": "train"})


def test_a_mistyped_variable_is_told_once(tracing, monkeypatch, caplog):
    monkeypatch.setattr(internal_errors, "_warned", set())
    monkeypatch.setenv("ART_OTEL_REQUEST_TOKEN", "1")
    monkeypatch.setenv("ART_OTEL_RUN_PID", "1")
    for split in ("train", "val"):
        tracing.change({}, {"split": split})
    assert caplog.messages == [
        "art-otel: ART_OTEL_REQUEST_TOKEN is not a setting and is ignored: did you mean ART_OTEL_REQUEST_TOKENS?"
    ]


def test_a_processor_that_is_added_by_hand(otel, tmp_path, monkeypatch):
    use_recorder(None)
    exporter, provider = InMemorySpanExporter(), TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(RolloutSpanProcessor(dir=tmp_path / "art", split="val"))
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(otel, "_TRACER_PROVIDER", provider)
    key = "ghp_" + string.ascii_letters[5:41]

    async def agent():
        with otel.get_tracer("openai.test").start_as_current_span("chat m", attributes={**CHAT, "note": key}):
            return "done"

    found = asyncio.run(gather_trajectory(rollout(name="agent")(agent)()))
    assert (found.result, found.split, len(found.calls)) == ("done", "val", 1)
    provider.shutdown()
    assert recorder() is None
    assert not [span for span in exporter.get_finished_spans() if key in str(span.attributes)]
    convert([tmp_path / "art" / "spool"], tmp_path / "out")
    assert list(read_trajectories(tmp_path / "out")) == [found]
    with pytest.raises(UsageError, match="no such keyword"):
        RolloutSpanProcessor(folder="x")


@pytest.mark.long
@pytest.mark.usefixtures("tracing")
def test_gathering_again_and_again_leaves_nothing_open(otel):
    """Each gathering sets up and takes away: descriptors, processors and buffers are as many as before."""

    def held():
        gc.collect()
        kinds = (RecordingSpanProcessor, RolloutBuffer, MemorySpool, ProcessRollout)
        return len(list(Path("/dev/fd").iterdir())), sum(isinstance(one, kinds) for one in gc.get_objects())

    @rollout
    async def agent():
        call(otel)

    async def main(times):
        for _ in range(times):
            assert len((await gather_trajectory(agent())).calls) == 1

    asyncio.run(main(3))
    before = held()
    asyncio.run(main(30))
    assert held() == before


def test_without_a_spool_no_file_has_what_was_asked(tracing, otel, monkeypatch):
    monkeypatch.setattr("tempfile.mkstemp", None)
    monkeypatch.setattr("os.open", None)
    with tracing.in_memory():
        with rollout(name="agent") as trajectory:
            call(otel)
            recording = recorder()
            lines = recording._rollouts[trajectory.rollout_id].lines
            assert {type(line.file) for line in lines} == {HeldText}
        assert len(recording.trajectory(trajectory.rollout_id).calls) == 1
