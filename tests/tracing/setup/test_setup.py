"""Set-up happens once, late, and may change until something was recorded."""

import sys
import threading
from pathlib import Path

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from art_otel import RunLog, reward
from art_otel.errors import UsageError
from art_otel.spool import MemorySpool
from art_otel.tracing import internal_errors
from art_otel.tracing.api.context import recorder
from tests.tracing.setup.programs import spans_in

CHAT = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m"}


def call(otel, name: str = "chat m") -> None:
    with otel.get_tracer("openai.test").start_as_current_span(name, attributes=CHAT):
        pass


def ended(tmp_path, folder: str = ".art") -> list[str]:
    return [span["name"] for span in spans_in(tmp_path / folder / "spool") if "endTimeUnixNano" in span]


def test_nothing_is_made_before_the_first_span(tracing, otel, tmp_path):
    tracing.change({}, {"dir": tmp_path / "art"})
    assert isinstance(otel.get_tracer_provider(), otel.ProxyTracerProvider)
    assert recorder() is None
    assert list(tmp_path.iterdir()) == []
    call(otel)
    assert isinstance(otel.get_tracer_provider(), otel.ProxyTracerProvider), "the app may still set its own"
    assert recorder() is not None
    assert tracing.flush()
    assert ended(tmp_path, "art") == ["chat m"]


def test_the_variable_turns_configure_off(tracing, otel, tmp_path):
    tracing.change({"ART_OTEL_ENABLED": "0"}, {"project": "x"})
    call(otel)
    assert tracing.flush()
    assert (tracing.settings.enabled, tracing.is_set_up) == (False, True)
    assert not (tmp_path / ".art").exists()


def test_rewards_are_not_missed_by_who_turned_tracing_off(tracing, monkeypatch, caplog):
    monkeypatch.setattr(internal_errors, "_warned", set())
    tracing.change({}, {"enabled": False})
    reward(1.0, rollout_id="of nobody")
    assert caplog.messages == []
    tracing.shutdown()
    reward(1.0, rollout_id="of nobody")
    assert "call art_otel.configure() first" in caplog.text


def test_what_is_configured_names_the_run_log(tracing, tmp_path, monkeypatch):
    monkeypatch.setenv("ART_OTEL_PROJECT", "of-the-variable")
    monkeypatch.setenv("ART_OTEL_MODEL", "of-the-variable")
    tracing.change({}, {"project": "weather", "dir": "runs"})
    monkeypatch.chdir("/")
    assert RunLog().folder.path == tmp_path / "runs/weather/models/of-the-variable"
    tracing.change({"ART_OTEL_ENABLED": "0"}, {"model": "agent-1"})
    assert RunLog().folder.path == tmp_path / "runs/weather/models/agent-1"
    assert RunLog("x", "y", tmp_path / "z").folder.path == tmp_path / "z/x/models/y"
    tracing.shutdown()
    assert RunLog().folder.project == "of-the-variable"


def test_a_variable_that_changes_is_not_kept_for_the_run_log(tracing, tmp_path, monkeypatch):
    tracing.change({"ART_OTEL_PROJECT": "before", "ART_OTEL_DIR": str(tmp_path / "before")}, {"model": "m"})
    monkeypatch.setenv("ART_OTEL_PROJECT", "after")
    monkeypatch.setenv("ART_OTEL_DIR", str(tmp_path / "after"))
    assert RunLog().folder.path == tmp_path / "after/after/models/m"


def test_what_cannot_be_raises_and_changes_nothing(tracing, tmp_path):
    tracing.change({}, {"project": "weather", "model": "m"})
    before = tracing.settings
    with pytest.raises(UsageError, match="grace_seconds=-1: write"):
        tracing.change({}, {"project": "other", "model": "other", "grace_seconds": -1})
    assert RunLog().folder.path == tmp_path / ".art/weather/models/m"
    tracing.change({}, {})
    assert tracing.settings == before


def test_settings_may_change_until_something_was_recorded(tracing, otel, tmp_path):
    provider = TracerProvider(shutdown_on_exit=False)
    otel.set_tracer_provider(provider)
    tracing.change({}, {"dir": tmp_path / "a"})
    tracing.change({}, {"dir": tmp_path / "b", "spool_days": 1})
    assert len(provider._active_span_processor._span_processors) == 1
    call(otel)
    assert tracing.flush()
    assert ended(tmp_path, "b") == ["chat m"]
    assert not (tmp_path / "a").exists()
    with pytest.raises(UsageError, match="split: spans were recorded"):
        tracing.change({}, {"split": "x"})
    tracing.change({}, {"dir": str(tmp_path / "b")})


def test_shutdown_leaves_the_provider_as_it_was_and_a_new_beginning_is_possible(tracing, otel, tmp_path):
    provider = TracerProvider(shutdown_on_exit=False)
    before = (provider.sampler, provider.id_generator, provider._active_span_processor._span_processors)
    otel.set_tracer_provider(provider)
    tracer = otel.get_tracer("openai.test")
    tracing.change({}, {})
    call(otel)
    tracing.shutdown()
    assert before == (provider.sampler, provider.id_generator, provider._active_span_processor._span_processors)
    assert (tracer.sampler, tracer.id_generator) == before[:2]
    assert recorder() is None
    assert ended(tmp_path) == ["chat m", f"rollout {own_name()}"]
    call(otel, "chat unseen")
    tracing.change({}, {"dir": "again"})
    call(otel)
    assert ended(tmp_path, "again") == ["chat m"]


def own_name() -> str:
    return Path(sys.argv[0]).name


def test_after_shutdown_nothing_is_made(tracing, otel, tmp_path):
    tracing.change({}, {})
    tracing.shutdown()
    call(otel)
    assert not (tmp_path / ".art").exists()
    tracing.change({}, {})
    call(otel)
    assert ended(tmp_path) == ["chat m"]


def test_many_threads_make_one_provider(tracing, otel):
    tracing.change({}, {})
    found = []
    barrier = threading.Barrier(8)

    def ask() -> None:
        barrier.wait()
        call(otel)
        found.append(otel.get_tracer_provider())

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(map(id, found))) == 1
    assert tracing.flush()


def test_a_set_up_that_fails_at_the_first_span_leaves_the_app_without(tracing, otel, caplog, monkeypatch):
    tracing.change({}, {})
    monkeypatch.setattr("art_otel.tracing.setup.providers.make_provider", lambda *_: 1 / 0)
    call(otel)
    assert "the app runs without it" in caplog.text


def test_where_otel_s_internals_are_others_only_what_is_set_before_is_recorded(tracing, otel, tmp_path, caplog):
    del otel._set_tracer_provider
    otel._TRACER_PROVIDER = TracerProvider(shutdown_on_exit=False)
    tracing.change({}, {})
    assert "opentelemetry-api has changed" in caplog.text
    call(otel)
    assert ended(tmp_path) == ["chat m"]


@pytest.mark.parametrize("keywords", [{"spool": False}, {"scrub": "off", "split": "validation"}])
def test_settings_reach_what_is_made(tracing, otel, tmp_path, keywords):
    tracing.change({}, keywords)
    call(otel)
    assert tracing.flush()
    spool = tracing._recording.processor.spool
    assert isinstance(spool, MemorySpool) == (keywords.get("spool") is False)
    tracing.shutdown()
    assert ("validation" in str(spans_in(tmp_path / ".art" / "spool"))) == ("split" in keywords)


@pytest.mark.parametrize(
    ("keywords", "kept"),
    [
        ({}, "[scrubbed:"),
        ({"scrub": "off"}, "gsk_"),
        ({"scrub": "mark"}, "gsk_"),
        ({"capture_content": False}, None),
    ],
)
def test_content_and_scrubbing_are_as_set(tracing, otel, tmp_path, keywords, kept):
    tracing.change({}, keywords)
    secret = json_message("gsk_" + "a1B2cD3e" * 6 + "wxyz")
    tracer = otel.get_tracer("openai.test")
    with tracer.start_as_current_span("chat m", attributes=CHAT, kind=otel.SpanKind.CLIENT) as span:
        span.set_attribute("gen_ai.input.messages", secret)
    found = str([span for span in spans_in(tmp_path / ".art" / "spool") if span["kind"] == 3])
    assert ("gen_ai.input.messages" in found) == (kept is not None)
    assert kept is None or kept in found
    assert ("a1B2" in found) == (kept == "gsk_")


def json_message(text: str) -> str:
    return f'[{{"role":"user","parts":[{{"type":"text","content":"{text}"}}]}}]'


def test_our_processor_stands_before_the_app_s(tracing, otel):
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(InMemorySpanExporter()))
    otel.set_tracer_provider(provider)
    tracing.change({}, {})
    first, _ = provider._active_span_processor._span_processors
    assert first is tracing._recording.processor
