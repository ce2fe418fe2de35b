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


def test_runs_are_followed_and_their_points_lead_to_the_step(tmp_path):
    log = RunLog("project", "model", tmp_path, report_metrics=[])
    log.log([rewarded("a", 0.0), rewarded("b", 1.0)], "train", step=1, metrics={"loss": 3.0})
    with viewer(tmp_path) as client:
        runs = answer(client, "runs")
        assert [run["name"] for run in runs["runs"]] == ["model"]
        assert "train/reward" in runs["metrics"]
        log.log([rewarded("c", 1.0)], "train", step=2)
        assert answer(client, "changes", generation=runs["generation"])["generation"] != runs["generation"]
        (series,) = answer(client, "runs/series", metric="train/reward", run=runs["runs"][0]["id"])["series"]
        assert (series["steps"], series["values"]) == ([1, 2], [0.5, 1.0])
        assert {row["rolloutId"] for row in answer(client, "trajectories", step=1)["rows"]} == {"a", "b"}


@pytest.mark.long
def test_a_task_stands_side_by_side_over_the_steps_of_each_run(tmp_path):
    for run, steps in (("one", range(40)), ("two", (0, 7))):
        log = RunLog("project", run, tmp_path, report_metrics=[])
        for step in steps:
            made = [replace(rewarded(f"{run}-{step}-{n}", float(n)), name="add") for n in range(3)]
            other = replace(talk(f"{run}-{step}", 2), name=f"other-{run}")
            log.log([*made, replace(talk(f"{run}-{step}-x", 1), name="add"), other], "train", step=step)
    write_trajectories([replace(talk("nowhere", 1), name="without a step")], tmp_path / "dataset")
    with viewer(tmp_path / "project" / "models" / "one", tmp_path / "project" / "models" / "two") as client:
        tasks = answer(client, "runs/tasks")
        assert [(one["name"], one["steps"], one["rollouts"]) for one in tasks["tasks"]] == [
            ("add", 40, 168), ("other-one", 40, 40), ("other-two", 2, 2)
        ]  # fmt: skip
        assert [one["name"] for one in answer(client, "runs/tasks", q="TWO")["tasks"]] == ["other-two"]
        task = answer(client, "runs/task", name="add")
        shown = [(row["step"], row["run"]) for row in task["steps"]]
        assert shown == sorted(shown)
        assert (task["total"], len({step for step, _ in shown})) == (40, 32)
        assert {(0, "one"), (0, "two"), (39, "one")} <= set(shown)
        rows = {row["key"]: row for row in answer(client, "trajectories", step=0)["rows"]}
        for row in task["steps"]:
            assert (row["rollouts"], row["reward"]) == (4, 1.0)
            assert [one["reward"] for one in row["answers"]] == [0.0, 1.0, 2.0, None]
        for one in task["steps"][0]["answers"]:
            assert rows[one["key"]]["rolloutId"] == one["rolloutId"]
            turn = answer(client, f"rollouts/{one['key']}")["histories"][0]["messages"][one["cell"]["turn"] + 1]
            assert one["cell"]["text"] == turn["parts"][0]["text"]
        assert client.get("/api/runs/task?name=nothing").status_code == 404


@pytest.mark.long
def test_two_runs_and_a_copy_of_one_show_each_rollout_once_and_groups_apart(tmp_path):
    run = [rewarded(name, reward) for name, reward in (("a", 0.0), ("b", 1.0))]
    RunLog("project", "model", tmp_path, report_metrics=[]).log(run, "train", step=1)
    write_trajectories(run, tmp_path / "dataset")
    write_trajectories([rewarded("c", 5.0), rewarded("d", 9.0)], tmp_path / "other")
    with viewer(tmp_path / "dataset", tmp_path / "project", tmp_path / "other") as client:
        plan = answer(client, "plan")
        assert (plan["trajectories"]["trained"], plan["report"]["repeated"]) == (4, 2)
        rows = answer(client, "trajectories")["rows"]
        assert [(row["rolloutId"], row["groupId"]) for row in rows] == [
            ("a", "g (source 1)"), ("b", "g (source 1)"), ("c", "g (source 3)"), ("d", "g (source 3)")
        ]  # fmt: skip
        group = answer(client, f"groups/{rows[2]['groupKey']}")
        assert ([row["rolloutId"] for row in group["members"]], group["advantage"]["baseline"]) == (["c", "d"], 7.0)
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
