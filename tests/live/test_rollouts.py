"""Rollouts in apps that use art_otel: each call in exactly its own, each with its fate."""

from collections import Counter

import pytest

from art_otel.store import read_trajectories
from tests.live.comparison import check_calls
from tests.live.environments import live_python
from tests.live.runs import APPS, alone, response_ids, run_app
from tests.live.test_kills import ended_spans

MANY = 200


def test_200_concurrent_rollouts_with_interleaved_streams(server, tmp_path, instrumentor):
    python = live_python(instrumentor)
    run = run_app(server, tmp_path, alone(python, str(APPS / "many_rollouts.py"), str(MANY)))
    assert run.code == 0, run.errors
    told = run.printed
    assert len(told) == MANY + len(range(0, MANY, 3))
    found = {one.name: one for one in run.trajectories}
    assert {name: sorted(ids) for name, ids in told.items()} == {
        name: sorted(call.response_id or "" for call in one.calls) for name, one in found.items()
    }
    assert all(one.complete for one in run.trajectories), Counter(
        reason for one in run.trajectories for reason in one.incomplete_reasons
    )
    for number in range(0, MANY, 3):
        assert found[f"sub-{number}"].parent_rollout_id == found[f"rollout-{number}"].rollout_id
    check_calls(run.trajectories, server.exchanges())


def test_the_fates_of_rollouts(server, tmp_path, instrumentor):
    python = live_python(instrumentor)
    run = run_app(server, tmp_path, alone(python, str(APPS / "fates.py"), str(tmp_path / "live.parquet")))
    assert run.code == 0, run.errors
    statuses = Counter((one.name, one.status) for one in run.trajectories)
    assert statuses == {("well", "ok"): 1, ("refused", "error"): 1, ("raised", "error"): 1, ("slow", "cancelled"): 2}
    by_name = {one.name: one for one in run.trajectories}
    assert by_name["well"].reward == 0.5
    assert "the app's own mistake" in (by_name["raised"].error or "")
    assert len(by_name["refused"].calls) == 2
    assert all(len(one.calls) == 2 for one in run.trajectories if one.name == "slow")
    live = list(read_trajectories(tmp_path / "live.parquet"))
    assert live == [one for one in run.trajectories if one.name in {"well", "refused", "raised"}]


def test_a_rollout_that_forks(server, tmp_path, instrumentor):
    python = live_python(instrumentor)
    run = run_app(server, tmp_path, alone(python, str(APPS / "forked_rollout.py")))
    assert run.code == 0, run.errors
    assert sorted(run.printed) == response_ids(run.trajectories)
    assert run.only.status == "ok"
    assert run.only.complete, run.only.incomplete_reasons
    assert set(ended_spans(tmp_path / "art" / "spool").values()) == {1}


@pytest.mark.parametrize("propagators", ["tracecontext,baggage", "baggage", "tracecontext"])
def test_a_call_of_another_service_joins_by_baggage_or_trace(server, tmp_path, instrumentor, propagators):
    python = live_python(instrumentor)
    command = alone(python, str(APPS / "two_services.py"))
    run = run_app(server, tmp_path, command, OTEL_PROPAGATORS=propagators)
    assert run.code == 0, run.errors
    found = {one.name: sorted(call.response_id or "" for call in one.calls) for one in run.trajectories}
    assert found == {name: sorted(ids) for name, ids in run.printed.items()}
    assert all(one.complete for one in run.trajectories), [one.incomplete_reasons for one in run.trajectories]
