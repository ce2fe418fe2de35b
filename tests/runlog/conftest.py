"""A run log in a folder of its own, with nothing set in the environment."""

import pytest

from art_otel import RunLog

VARIABLES = ("ART_OTEL_PROJECT", "ART_OTEL_MODEL", "ART_OTEL_DIR", "WANDB_API_KEY")


@pytest.fixture(autouse=True)
def _nothing_is_set(monkeypatch):
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def run_log(tmp_path) -> RunLog:
    return RunLog("weather", "agent-1", tmp_path)
