"""What the ways in do in their process: begin once, by the environment, and never raise."""

import pytest

from art_otel.cli import main
from art_otel.cli.run import STARTUP, traced_environment
from art_otel.tracing import autoload
from art_otel.tracing.setup import configure as setup


@pytest.fixture
def process(tracing, monkeypatch):
    """This process, as one in which nobody has asked for tracing yet."""
    monkeypatch.setattr(setup, "tracing", tracing)
    monkeypatch.setenv("ART_OTEL_INSTRUMENTOR", "none")
    return monkeypatch


def test_opentelemetry_instrument_before_and_after(process, tracing):
    autoload.pre_instrument()
    autoload.post_instrument()
    assert not tracing.is_set_up
    process.setenv("ART_OTEL_ENABLED", "1")
    autoload.pre_instrument()
    assert tracing.settings.enabled
    autoload.post_instrument()
    before = tracing.settings
    process.setenv("ART_OTEL_PROJECT", "changed")
    autoload.start()
    assert tracing.settings is before


def test_configure_comes_before_the_environment(process, tracing):
    process.setenv("ART_OTEL_ENABLED", "1")
    setup.configure(enabled=False)
    autoload.start()
    assert not tracing.settings.enabled


def test_a_bad_variable_is_logged_and_the_rest_holds(process, tracing, caplog):
    process.setenv("ART_OTEL_ENABLED", "1")
    process.setenv("ART_OTEL_SCRUB", "some")
    process.setenv("ART_OTEL_MODEL", "m")
    autoload.start()
    autoload.start()
    assert caplog.text.count("ART_OTEL_SCRUB='some': write one of on, content, mark, off") == 1
    assert (tracing.settings.model, tracing.settings.scrub) == ("m", "content")


def test_a_variable_that_is_no_switch_turns_nothing_on(process, tracing, caplog):
    process.setenv("ART_OTEL_ENABLED", "perhaps")
    autoload.start()
    assert "going on with False" in caplog.text
    assert not tracing.is_set_up


def test_nothing_raises(process, caplog):
    process.setenv("ART_OTEL_ENABLED", "1")
    process.setattr(setup, "tracing", None)
    autoload.start()
    autoload.pre_instrument()
    autoload.post_instrument()
    assert caplog.text.count("the app continues") == 3


def test_the_environment_of_a_program_that_is_traced(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    found = traced_environment({"PYTHONPATH": f":/theirs:{STARTUP}", "ART_OTEL_DIR": "here", "OTHER": "x"})
    assert found["PYTHONPATH"] == f"{STARTUP}::/theirs"
    assert (found["ART_OTEL_ENABLED"], found["ART_OTEL_DIR"], found["OTHER"]) == ("1", str(tmp_path / "here"), "x")
    assert traced_environment({})["PYTHONPATH"] == str(STARTUP)
    assert traced_environment({"ART_OTEL_ENABLED": "0"})["ART_OTEL_ENABLED"] == "0"


@pytest.mark.parametrize("command", [["run"], ["run", "--"], ["run", "--", "no-such-program-anywhere"]])
def test_a_program_that_cannot_be_run_is_exit_2(command, capsys):
    assert main(command) == 2
    assert "art-otel run -- python" in capsys.readouterr().err
