"""The exported file holds what was selected, verbatim, and asks nobody for anything."""

import json
import re
from collections import Counter
from dataclasses import replace
from statistics import pstdev

import pytest

from art_otel.cli import main
from art_otel.store import FileLimits, write_trajectories
from tests.data.token_rollouts import talk
from tests.viewer.served import HOSTILE, dataset, exported, rewarded

OTHERS = ("alone", "long", "broken", "lacking")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return dataset(tmp_path_factory.mktemp("exported") / "dataset")


def test_a_group_is_exported_alone(data, tmp_path, capsys):
    assert main(["view", str(data), "--html", str(tmp_path / "g.html"), "--group", "g"]) == 0
    assert re.search(r"g\.html: 5 rollouts; 0\.\d MB", capsys.readouterr().err)
    text, responses = exported(tmp_path / "g.html")
    rows = responses["/api/trajectories?offset=0&limit=200"]["rows"]
    assert {row["rolloutId"] for row in rows} == {"r0", "r1", "r2", "r3", "drifts"}
    keys = [row["key"] for row in rows]
    for path in (f"/api/rollouts/{key}" for key in keys):
        assert {path, f"{path}/raw", f"{path}/tokens?first=0"} <= set(responses)
        assert {responses[path][name] for name in ("previous", "next")} <= {None, *keys}
    assert f"/api/groups/{rows[0]['groupKey']}" in responses
    for other in OTHERS:
        assert f'"{other}"' not in text
        assert f"/{other}" not in json.dumps(responses)
    markup = re.sub(r"<(script|style)[^>]*>.*?</\1>", "", text, flags=re.DOTALL)
    assert not re.search(r'(src|href)="(?!data:)', markup)
    assert "default-src 'none'" in markup
    assert not re.search(r"url\(|@import", "".join(re.findall(r"<style>(.*?)</style>", text, re.DOTALL)))
    assert str(data.parent) not in text


def test_a_part_of_a_group_does_not_tell_of_the_others(data, tmp_path):
    assert main(["view", str(data), "--html", str(tmp_path / "r.html"), "--rollout", "r1"]) == 0
    text, responses = exported(tmp_path / "r.html")
    assert not [path for path in responses if path.startswith("/api/groups/")]
    assert '"r2"' not in text
    run = responses["/api/run"]
    assert (run["total"], run["rewards"]["known"]) == (1, 1)
    assert (run["trains"]["rollouts"], run["trains"]["trained"]) == (1, 1)
    tokens = next(answer for path, answer in responses.items() if path.endswith("/tokens?first=0"))
    among_its_group = (1 - 1.3) / pstdev((0, 1, 2, 3, 0.5))
    assert tokens["scale"]["advantage"] == pytest.approx({"min": among_its_group, "max": among_its_group}, abs=1e-5)


def test_the_file_tells_what_it_holds_and_of_how_many(data, tmp_path):
    where = "http://127.0.0.1:7777/?token=secret#/t?min_reward=1&sort=reward&order=desc&at=3"
    arguments = ["--where", where, "--limit", "2", "--html", str(tmp_path / "w.html")]
    assert main(["view", str(data), *arguments]) == 0
    text, responses = exported(tmp_path / "w.html")
    assert "secret" not in text
    assert responses["/api/info"]["chosen"] == {
        "total": 10, "matching": 5, "rollouts": 2, "by": "--where 'min_reward=1&sort=reward&order=desc'",
    }  # fmt: skip
    run = responses["/api/run"]
    assert (run["total"], run["trains"]["trained"], run["judged"], run["account"]) == (2, 2, True, None)
    assert responses["/api/plan"]["report"] is None
    assert {one["row"]["key"] for one in responses["/api/run/read"]["rollouts"]} <= {
        row["key"] for row in responses["/api/trajectories?offset=0&limit=200"]["rows"]
    }
    first, second = responses["/api/trajectories?offset=0&limit=200"]["rows"]
    for row, before, after in ((first, None, second["key"]), (second, first["key"], None)):
        answer = responses[f"/api/rollouts/{row['key']}"]
        assert answer["row"] == row
        assert (row["judged"], row["verdict"]) == (True, None)
        assert (answer["previous"], answer["next"]) == (answer["groupPrevious"], answer["groupNext"]) == (before, after)


def test_verdicts_of_a_selection_are_those_of_the_whole(data, tmp_path):
    rows = {}
    for name, arguments in (
        ("all", []),
        ("some", ["--where", "sort=rollout", "--limit", "7"]),
        ("h", ["--group", "h"]),
    ):
        file = tmp_path / f"{name}.html"
        assert main(["view", str(data), "--html", str(file), *arguments]) == 0
        responses = exported(file)[1]
        rows[name] = {row["key"]: row for row in responses["/api/trajectories?offset=0&limit=200"]["rows"]}
        skipped = Counter(row["verdict"] for row in rows[name].values() if row["verdict"])
        parts = {part["reason"]: part["count"] for part in responses["/api/run"]["trains"]["parts"]}
        assert parts.items() >= skipped.items()
    assert (len(rows["some"]), len(rows["h"])) == (7, 1)
    assert all(rows["all"][key] == row for name in ("some", "h") for key, row in rows[name].items())


def test_a_selection_of_several_sources_keeps_what_each_has(tmp_path):
    members = [talk(f"r{at}", 2, group_id="task", **rewarded(float(at))) for at in range(3)]
    write_trajectories(members[:2], tmp_path / "a")
    own = [replace(talk(f"own{at}", 3, group_id="task", **rewarded(1.0)), trace_id=f"b{at}") for at in range(2)]
    write_trajectories([*own, talk("no reward", 1), members[0]], tmp_path / "b", limits=FileLimits(part_rows=2))
    paths, file = [str(tmp_path / "a"), str(tmp_path / "b")], tmp_path / "b.html"
    assert main(["view", *paths, "--html", str(file), "--where", "source=b&sort=rollout&order=desc"]) == 0
    responses = exported(file)[1]
    rows = responses["/api/trajectories?offset=0&limit=200"]["rows"]
    assert {row["source"] for row in rows} == {"b"}
    assert {row["rolloutId"]: row["verdict"] for row in rows} == {"own0": None, "own1": None, "no reward": "no reward"}
    assert responses["/api/info"]["chosen"]["total"] == 5
    run = responses["/api/run"]
    assert (run["total"], run["trains"]["trained"], run["repeated"]) == (3, 2, 0)


def test_labels_and_notes_of_what_was_selected_are_shown(data, tmp_path, capsys):
    labels = data / "_labels.jsonl"
    given = [
        {"rollout_id": rollout_id, "name": name, "value": 1.0, "time": 1} | more
        for rollout_id, name, more in (
            ("r0", "good", {}), ("r1", "odd", {}), ("r0", "note", {"value": None, "explanation": "look here"}),
        )
    ]  # fmt: skip
    labels.write_text("".join(f"{json.dumps(line)}\n" for line in given))
    try:
        assert main(["view", str(data), "--html", str(tmp_path / "l.html"), "--rollout", "r0"]) == 0
        responses = exported(tmp_path / "l.html")[1]
        (row,) = responses["/api/trajectories?offset=0&limit=200"]["rows"]
        assert (row["labels"], row["note"], responses["/api/info"]["canLabel"]) == (["good"], "look here", False)
        assert responses["/api/run"]["choices"]["label"] == ["good"]
        assert main(["view", str(data), "--html", str(tmp_path / "x.html"), "--labels"]) == 2
        assert "--html shows the labels" in capsys.readouterr().err
    finally:
        labels.unlink()


def test_everything_is_exported_up_to_the_limit_and_hostile_texts_stay_text(data, tmp_path, capsys):
    assert main(["view", str(data), "--html", str(tmp_path / "all.html")]) == 0
    text, responses = exported(tmp_path / "all.html")
    assert responses["/api/run"]["total"] == 10
    assert HOSTILE not in text
    assert any(HOSTILE in json.dumps(one, ensure_ascii=False) for one in responses.values())
    assert main(["view", str(data), "--html", str(tmp_path / "two.html"), "--limit", "2"]) == 0
    assert "2 rollouts of 10" in capsys.readouterr().err
    assert len(exported(tmp_path / "two.html")[1]["/api/trajectories?offset=0&limit=200"]["rows"]) == 2


def test_what_a_list_shows_is_exported_in_its_order(data, tmp_path):
    rows = exported_rows(data, tmp_path, "--where", "#/t?min_reward=2&sort=reward&order=desc")
    assert rows == ["r3", "r2"]
    assert exported_rows(data, tmp_path, "--where", "status=error") == ["broken"]
    assert exported_rows(data, tmp_path, "--where", "sort=reward&order=desc", "--group", "g", "--limit", "2") == [
        "r3",
        "r2",
    ]
    assert exported_rows(data, tmp_path, "--where", "http://127.0.0.1:7777/?code=x#/t?status=error&at=3") == ["broken"]
    for refused in ("q=r-0?", "sort=beauty", "stauts=error", "#/t?stauts=error"):
        assert main(["view", str(data), "--html", str(tmp_path / "x.html"), "--where", refused]) == 2


def exported_rows(data, tmp_path, *arguments):
    assert main(["view", str(data), "--html", str(tmp_path / "w.html"), *arguments]) == 0
    return [
        row["rolloutId"] for row in exported(tmp_path / "w.html")[1]["/api/trajectories?offset=0&limit=200"]["rows"]
    ]


REFUSED = (
    ["--group", "nobody", "--html", "x.html"],
    ["--limit", "-1", "--html", "x.html"],
    ["--limit", "3"],
    ["--port", "77777"],
    ["--tokenizer", "nowhere"],
)


@pytest.mark.parametrize("arguments", REFUSED)
def test_what_makes_no_sense_is_refused(data, arguments, capsys):
    assert main(["view", str(data), *arguments]) == 2
    assert capsys.readouterr().err.startswith("art-otel: --")
