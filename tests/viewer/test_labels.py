"""Labels are kept beside the dataset as rewards, written by the page alone and only where that was asked for."""

import json
from pathlib import Path

import pytest

import art_otel
from art_otel.cli import main
from art_otel.store import read_trajectories, write_trajectories
from tests.conversions import RECORDINGS, convert_files
from tests.data.token_rollouts import talk
from tests.dumps import chat_span, make_span, request_of, write_lines
from tests.viewer.served import answer, viewer

pytestmark = pytest.mark.long

DUMP = min(RECORDINGS.rglob("*.jsonl"))


def key_of(client, rollout_id: str) -> str:
    (row,) = answer(client, "trajectories", q=rollout_id)["rows"]
    return row["key"]


def give(client, rollout_id: str, **given):
    headers = {"origin": str(client.base_url).rstrip("/")}
    return client.post(f"/api/labels/{key_of(client, rollout_id)}", json=given, headers=headers)


def test_what_is_given_is_shown_filtered_and_becomes_rewards(tmp_path: Path):
    out = tmp_path / "out"
    found, _ = convert_files(out, DUMP)
    first = found[0].rollout_id
    with viewer(out, "--labels") as client:
        assert answer(client, "info")["canLabel"] is True
        assert give(client, first, label="good").json()["row"]["labels"] == ["good"]
        give(client, first, label="odd", note="looks\nright")
        give(client, first, label="odd", on=False, reward=0.25)
        (row,) = answer(client, "trajectories", label="good")["rows"]
        assert (row["rolloutId"], row["labels"], row["note"], row["correctedReward"]) == (
            first, ["good"], "looks\nright", 0.25,
        )  # fmt: skip
        assert answer(client, "trajectories", label="odd")["total"] == 0
        assert answer(client, "run")["choices"]["label"] == ["good"]
    again, report = convert_files(tmp_path / "again", DUMP, out / "_labels.jsonl")
    labeled = next(one for one in again if one.rollout_id == first)
    rewards = {reward.name: (reward.value, reward.explanation) for reward in labeled.rewards if reward.name != "reward"}
    assert rewards == {"good": (1.0, None), "odd": (0.0, None), "note": (None, "looks\nright")}
    assert labeled.reward == 0.25
    assert report.rewards.undeliverable == {}
    assert [one.rollout_id for one in read_trajectories(out)] == [one.rollout_id for one in found]
    art_otel.batches(tmp_path / "again", credit="outcome_reward")


def test_a_label_is_no_reward(tmp_path: Path):
    """Nothing says that more of it is better: of `bad` it is not. A credit names it."""
    dump = write_lines(
        tmp_path / "spans.jsonl",
        [
            request_of(
                make_span(1, name="rollout x", trace=1, attributes={"art.rollout.id": "r1"}),
                chat_span(2, 1, ["q"], "a", trace=1),
            )
        ],
    )
    convert_files(tmp_path / "out", dump)
    with viewer(tmp_path / "out", "--labels") as client:
        give(client, "r1", label="bad", note="wrong city")
    (labeled,), _ = convert_files(tmp_path / "again", dump, tmp_path / "out" / "_labels.jsonl")
    assert labeled.reward is None
    assert {(one.name, one.value) for one in labeled.rewards} == {("bad", 1.0), ("note", None)}


def test_nobody_else_writes(tmp_path: Path):
    write_trajectories([talk("r", 2)], tmp_path)
    with viewer(tmp_path) as client:
        assert answer(client, "info")["canLabel"] is False
        assert give(client, "r", label="good").status_code == 405
    with viewer(tmp_path, "--labels") as client:
        address = f"/api/labels/{key_of(client, 'r')}"
        assert client.post(address, json={"label": "good"}).status_code == 403
        for origin in ("http://evil.example", "null", "http://localhost"):
            assert client.post(address, json={"label": "good"}, headers={"origin": origin}).status_code == 403
        assert client.post("/api/info", json={}).status_code == 405
        assert client.delete(address).status_code == 405
        own = {"origin": str(client.base_url).rstrip("/")}
        client.cookies.clear()
        assert client.post(address, json={"label": "good"}, headers=own).status_code == 401
    assert not (tmp_path / "_labels.jsonl").exists()


def test_a_file_that_is_not_ours_stays_as_it_is(tmp_path: Path):
    write_trajectories([talk("r", 2)], tmp_path)
    file = tmp_path / "_labels.jsonl"
    file.write_text(text := json.dumps({"rollout_id": "r", "score": 3}) + "\n")
    with viewer(tmp_path, "--labels") as client:
        refused = give(client, "r", label="good")
        assert (refused.status_code, "not a file of labels" in refused.json()["error"]) == (400, True)
        assert answer(client, "trajectories")["rows"][0]["labels"] == []
        assert give(client, "r", label="note").status_code == 400
        assert give(client, "r", labels=["good"]).status_code == 400
        own = {"origin": str(client.base_url).rstrip("/")}
        assert client.post("/api/labels/none", json={"label": "good"}, headers=own).status_code == 404
    assert file.read_text() == text


def test_a_file_without_a_last_newline_is_gone_on_with(tmp_path: Path):
    write_trajectories([talk("r", 2)], tmp_path)
    file = tmp_path / "_labels.jsonl"
    file.write_text('{"rollout_id":"r","name":"by hand","value":1.0,"time":1}')
    with viewer(tmp_path, "--labels") as client:
        assert give(client, "r", label="good").json()["row"]["labels"] == ["by hand", "good"]
    assert len(file.read_text().splitlines()) == 2


def test_labels_need_a_folder(tmp_path: Path, capsys):
    write_trajectories([talk("lone", 2)], tmp_path / "folder")
    (file,) = (tmp_path / "folder").glob("*.parquet")
    assert main(["view", str(file), "--labels", "--no-open"]) == 2
    assert "--labels: labels are kept beside a dataset" in capsys.readouterr().err
    write_trajectories([talk("kept", 2)], tmp_path / "labeled")
    with viewer(tmp_path / "labeled", file, "--labels") as client:
        assert give(client, "kept", label="good").status_code == 200
        assert "not in a dataset folder" in give(client, "lone", label="good").json()["error"]
