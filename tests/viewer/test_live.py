"""Data that grows or is replaced is followed, and two states of it are never mixed."""

import threading
from dataclasses import replace

import pytest

from art_otel.runlog import RunLog
from art_otel.store import write_trajectories
from tests.conversions import RECORDINGS
from tests.data.token_rollouts import judged, talk
from tests.viewer.served import answer, viewer


def rewarded(rollout_id, reward):
    return talk(rollout_id, 2, reward=reward, rewards=(judged(reward),), group_id="g")


@pytest.mark.long
def test_a_dataset_that_is_replaced_is_a_409_and_then_the_new_one(tmp_path):
    folder = tmp_path / "dataset"
    write_trajectories([talk("before", 2)], folder)
    with viewer(folder) as client:
        first = answer(client, "trajectories")
        changed = []
        waiting = threading.Thread(
            target=lambda: changed.append(answer(client, "changes", generation=first["generation"]))
        )
        waiting.start()
        write_trajectories([talk("after", 2), talk("again", 2)], folder)
        waiting.join()
        (after,) = changed
        assert after["generation"] != first["generation"]
        gone = f"/api/rollouts/{first['rows'][0]['key']}"
        assert client.get(gone).status_code == 404
        replaced = client.get(gone, params={"generation": first["generation"]})
        assert (replaced.status_code, replaced.json()) == (
            409,
            {"error": "the dataset was replaced", "generation": after["generation"]},
        )
        assert [row["rolloutId"] for row in answer(client, "trajectories", **after)["rows"]] == ["after", "again"]


def test_runs_are_followed_and_their_histories_are_read(tmp_path):
    log = RunLog("project", "model", tmp_path, report_metrics=[])
    log.log([rewarded("a", 0.0), rewarded("b", 1.0)], "train", step=1, metrics={"loss": 3.0})
    with viewer(tmp_path) as client:
        metrics = answer(client, "metrics")
        assert "train/reward" in {one["name"] for one in metrics["metrics"]}
        log.log([rewarded("c", 1.0)], "train", step=2)
        assert answer(client, "changes", generation=metrics["generation"])["generation"] != metrics["generation"]
        (lines,) = (one["lines"] for one in answer(client, "metrics")["metrics"] if one["name"] == "train/reward")
        assert lines == [{"run": "model", "steps": [1, 2], "values": [0.5, 1.0]}]
        assert {row["rolloutId"] for row in answer(client, "trajectories", step=1)["rows"]} == {"a", "b"}
        run = answer(client, "run")
        assert (run["axis"]["labels"], run["series"][0]["reward"]) == (["1", "2"], [0.5, 1.0])


def test_the_rewards_of_two_runs_are_lines_of_their_own(tmp_path):
    for name, reward in (("one", 0.0), ("two", 1.0)):
        log = RunLog("project", name, tmp_path, report_metrics=[])
        for step in range(3):
            log.log([replace(rewarded(f"{name}-{step}", reward), name="add")], "train", step=step)
    with viewer(tmp_path) as client:
        series = answer(client, "run")["series"]
        assert [(one["source"], one["reward"]) for one in series] == [("one", [0.0] * 3), ("two", [1.0] * 3)]
        assert answer(client, "run", source="two")["matching"] == 3


@pytest.mark.long
def test_two_runs_and_a_copy_of_one_show_each_rollout_once_and_groups_apart(tmp_path):
    run = [rewarded(name, reward) for name, reward in (("a", 0.0), ("b", 1.0))]
    RunLog("project", "model", tmp_path, report_metrics=[]).log(run, "train", step=1)
    write_trajectories(run, tmp_path / "dataset")
    write_trajectories([rewarded("c", 5.0), rewarded("d", 9.0)], tmp_path / "other")
    with viewer(tmp_path / "dataset", tmp_path / "project", tmp_path / "other") as client:
        report = answer(client, "plan")["report"]
        assert (report["trajectories_used"], report["repeated"]) == (4, 2)
        rows = answer(client, "trajectories")["rows"]
        assert [(row["rolloutId"], row["groupId"]) for row in rows] == [
            ("a", "g (source 1)"), ("b", "g (source 1)"), ("c", "g (source 3)"), ("d", "g (source 3)")
        ]  # fmt: skip
        group = answer(client, f"groups/{rows[2]['groupKey']}")
        assert ([row["rolloutId"] for row in group["members"]], group["advantage"]["baseline"]) == (["d", "c"], 7.0)
        tokens = answer(client, f"rollouts/{rows[3]['key']}/tokens")
        assert "0.99" in str(tokens)


def test_a_spool_that_grows_is_followed(tmp_path):
    spool = tmp_path / "spool"
    run = spool / "run-1"
    run.mkdir(parents=True)
    lines = (next(RECORDINGS.glob("genai_span/*.jsonl"))).read_text().splitlines(keepends=True)
    with viewer(spool) as client:
        first = answer(client, "trajectories")
        assert first["total"] == 0
        (run / "1.otlp.jsonl").write_text("".join(lines))
        now = answer(client, "changes", generation=first["generation"])
        assert answer(client, "trajectories", **now)["total"] > 0
