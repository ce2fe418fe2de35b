"""What is gathered comes back whole, however much it is, from the disk or, where there is none, from memory."""

import asyncio
import shutil

import pytest
from opentelemetry import trace

from art_otel import gather_trajectories, get_current_trajectory, reward, rollout
from art_otel.live import RolloutBuffer
from art_otel.spool import SpooledLine, SpoolWriter, writer
from art_otel.tracing.api.context import recorder, use_recorder
from tests.tracing.api.app import App, questions

ROLLOUTS, CALLS = 16, 12
TEXT = "The river turns north. " * 1_000
FILE_BYTES = 1 << 20
SPOOLS = {
    "spool": lambda folder: SpoolWriter(folder, max_file_bytes=FILE_BYTES),
    "no disk takes it": lambda folder: SpoolWriter(folder / "file" / "spool"),
    "no spool": lambda _folder: None,
}


@pytest.fixture
def app_with(tmp_path, monkeypatch):
    """An app with this spool, whose buffer may hold one rollout that nobody waits for."""
    before = recorder()

    def make(spool) -> App:
        app = App(tmp_path, spool=spool, rollouts=RolloutBuffer(max_open=1))
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


@pytest.mark.parametrize("spool", ["spool", "no spool"])
def test_memory_holds_places_and_no_lines(app_with, tmp_path, spool):
    app = app_with(SPOOLS[spool](tmp_path / "spool"))

    @rollout
    async def agent(number: int) -> None:
        for question in asked(number):
            await app.ask_later(question)
        held = app.rollouts._rollouts[get_current_trajectory().rollout_id]
        assert len(get_current_trajectory().calls) == CALLS
        assert {type(line) for line in held.lines} == {SpooledLine}

    found = asyncio.run(gather_trajectories(agent(number) for number in range(4)))
    assert [questions(one) for one in found] == [asked(number) for number in range(4)]
    if spool == "spool":
        assert {one.rollout_id: one for one in app.convert()[0]} == {one.rollout_id: one for one in found}


def test_a_spool_that_somebody_removes_costs_nobody_who_waits(app_with, tmp_path, monkeypatch):
    monkeypatch.setattr(writer, "_PAUSE", 0.0)
    app = app_with(SPOOLS["spool"](tmp_path / "spool"))

    @rollout
    async def agent(number: int) -> None:
        await app.ask_later("one")
        if number == 1:
            shutil.rmtree(tmp_path / "spool")

    found = asyncio.run(gather_trajectories((agent(number) for number in range(3)), max_concurrent=1))
    assert [(one.status, one.complete, len(one.calls)) for one in found] == [("ok", True, 1)] * 3


def test_lines_that_somebody_cuts_cost_no_other_rollout(app_with, tmp_path, caplog):
    app = app_with(SPOOLS["spool"](tmp_path / "spool"))

    @rollout
    async def agent(number: int) -> None:
        await app.ask_later("one")
        if number == 1:
            app.spool.close()
            for path in (tmp_path / "spool").iterdir():
                path.write_bytes(b"")

    found = asyncio.run(gather_trajectories((agent(number) for number in range(3)), max_concurrent=1))
    assert [one.complete for one in found] == [True, False, True]
    assert "lines are missing from the spool" in caplog.text
