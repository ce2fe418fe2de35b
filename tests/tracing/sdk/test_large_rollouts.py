"""What is gathered comes back whole, however much it is, from the disk or, where there is none, from memory."""

import asyncio
import shutil

import pytest
from opentelemetry import trace

from art_otel import gather_trajectories, get_current_trajectory, reward, rollout
from art_otel.spool import SpoolWriter, writer
from art_otel.tracing.api.recorder import recorder, use_recorder
from art_otel.tracing.sdk.open_rollouts import OpenRollouts
from tests.tracing.api.app import App, questions

ROLLOUTS, CALLS = 16, 12
TEXT = "The river turns north. " * 1_000
BUDGET = 1 << 20
SPOOLS = {
    "spool": lambda folder: SpoolWriter(folder, max_file_bytes=BUDGET),
    "no disk takes it": lambda folder: SpoolWriter(folder / "file" / "spool"),
    "no spool": lambda _folder: None,
}


@pytest.fixture
def app_with(tmp_path, monkeypatch):
    """An app with this spool, which may hold a quarter of what the test asks."""
    before = recorder()

    def make(spool) -> App:
        app = App(tmp_path, spool=spool, rollouts=OpenRollouts(max_bytes=BUDGET))
        monkeypatch.setattr(trace, "_TRACER_PROVIDER", app.provider)
        return app

    yield make
    use_recorder(before)


def asked(number: int) -> list[str]:
    return [f"{TEXT}{number} {call}" for call in range(CALLS)]


@pytest.mark.parametrize("spool", SPOOLS)
def test_what_is_gathered_comes_back_whole(app_with, tmp_path, spool, caplog):
    (tmp_path / "file").write_text("")
    app = app_with(SPOOLS[spool](tmp_path))

    @rollout(name="agent")
    async def agent(number: int) -> None:
        for question in asked(number):
            await app.ask_later(question, TEXT)
        reward(number / ROLLOUTS)
        if number == 3:
            raise ValueError("bad")

    found = asyncio.run(gather_trajectories((agent(number) for number in range(ROLLOUTS)), max_exceptions=1))
    assert [questions(one) for one in found] == [asked(number) for number in range(ROLLOUTS)]
    assert [one.reward for one in found] == [number / ROLLOUTS for number in range(ROLLOUTS)]
    assert [one.status for one in found] == ["error" if number == 3 else "ok" for number in range(ROLLOUTS)]
    assert all(one.complete for one in found)
    assert app.rollouts.evicted == 0
    assert "no longer assembled live" not in caplog.text


def test_memory_holds_none_of_what_the_disk_has(app_with, tmp_path):
    app = app_with(SPOOLS["spool"](tmp_path / "spool"))

    @rollout
    async def agent(number: int) -> None:
        for question in asked(number):
            await app.ask_later(question)
        held = app.rollouts._rollouts[get_current_trajectory().rollout_id]
        assert (len(get_current_trajectory().calls), held.size < len(TEXT)) == (CALLS, True)

    found = asyncio.run(gather_trajectories(agent(number) for number in range(4)))
    assert {one.rollout_id: one for one in app.convert()[0]} == {one.rollout_id: one for one in found}


def test_a_rollout_whose_files_somebody_removed_costs_no_other(app_with, tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(writer, "_PAUSE", 0.0)
    app = app_with(SPOOLS["spool"](tmp_path / "spool"))

    @rollout
    async def agent(number: int) -> None:
        await app.ask_later("one")
        if number == 1:
            shutil.rmtree(tmp_path / "spool")
            raise ValueError("bad")

    found = asyncio.run(gather_trajectories((agent(number) for number in range(3)), max_concurrent=1, max_exceptions=1))
    assert [(one.status, one.complete) for one in found] == [("ok", True), ("error", False), ("ok", True)]
    assert f"lines of rollout {found[1].rollout_id} left the spool" in caplog.text
