"""The exported file holds what was selected, verbatim, and asks nobody for anything."""

import json
import re
from base64 import urlsafe_b64encode

import pytest

from art_otel.cli import main
from tests.viewer.served import HOSTILE, dataset

OTHERS = ("alone", "long", "broken", "lacking")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return dataset(tmp_path_factory.mktemp("exported") / "dataset")


def exported(file):
    text = file.read_text(encoding="utf-8")
    (found,) = re.findall(r'<script type="application/json" id="art-otel-data">(.*?)</script>', text, re.DOTALL)
    return text, json.loads(found)["responses"]


def test_a_group_is_exported_alone(data, tmp_path, capsys):
    assert main(["view", str(data), "--html", str(tmp_path / "g.html"), "--group", "g"]) == 0
    assert re.search(r"g\.html: 5 rollouts; 0\.\d MB", capsys.readouterr().err)
    text, responses = exported(tmp_path / "g.html")
    rows = responses["/api/trajectories?offset=0&limit=200"]["rows"]
    assert {row["rolloutId"] for row in rows} == {"r0", "r1", "r2", "r3", "drifts"}
    keys = [row["key"] for row in rows]
    for path in (f"/api/rollouts/{key}" for key in keys):
        assert {path, f"{path}/raw", f"{path}/tokens?history=0"} <= set(responses)
        assert {responses[path][name] for name in ("previous", "next")} <= {None, *keys}
    assert f"/api/groups/{rows[0]['groupKey']}" in responses
    for other in OTHERS:
        assert f'"{other}"' not in text
        assert urlsafe_b64encode(f'["{other}"'.encode()).decode()[:8] not in json.dumps(responses)
    markup = re.sub(r"<(script|style)[^>]*>.*?</\1>", "", text, flags=re.DOTALL)
    assert not re.search(r'(src|href)="(?!data:)', markup)
    assert "default-src 'none'" in markup
    assert not re.search(r"url\(|@import", "".join(re.findall(r"<style>(.*?)</style>", text, re.DOTALL)))
    assert str(data.parent) not in text


def test_a_part_of_a_group_does_not_tell_of_the_others(data, tmp_path):
    assert main(["view", str(data), "--html", str(tmp_path / "r.html"), "--rollout", "r1"]) == 0
    text, responses = exported(tmp_path / "r.html")
    assert not [path for path in responses if path.startswith(("/api/groups/", "/api/overview", "/api/plan"))]
    assert '"r2"' not in text


def test_everything_is_exported_up_to_the_limit_and_hostile_texts_stay_text(data, tmp_path, capsys):
    assert main(["view", str(data), "--html", str(tmp_path / "all.html")]) == 0
    text, responses = exported(tmp_path / "all.html")
    assert responses["/api/overview"]["total"] == 10
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
    assert exported_rows(data, tmp_path, "--where", "q=r-0?") == []
    for refused in ("sort=beauty", "stauts=error", "#/t?stauts=error"):
        assert main(["view", str(data), "--html", str(tmp_path / "x.html"), "--where", refused]) == 2


def exported_rows(data, tmp_path, *arguments):
    assert main(["view", str(data), "--html", str(tmp_path / "w.html"), *arguments]) == 0
    return [
        row["rolloutId"] for row in exported(tmp_path / "w.html")[1]["/api/trajectories?offset=0&limit=200"]["rows"]
    ]


REFUSED = (["--group", "nobody", "--html", "x.html"], ["--limit", "3"], ["--tokenizer", "nowhere"])


@pytest.mark.parametrize("arguments", REFUSED)
def test_what_makes_no_sense_is_refused(data, arguments, capsys):
    assert main(["view", str(data), *arguments]) == 2
    assert capsys.readouterr().err.startswith("art-otel: --")
