"""A dataset of several models is shown whole before anybody chose one of them, and by every choice."""

from collections import Counter
from urllib.parse import parse_qsl

import pytest

import art_otel
from art_otel.cli import main
from art_otel.errors import UsageError
from tests.viewer.mixed import SAMPLED, mixed
from tests.viewer.served import answer, exported, viewer

SORTS = ("reward", "tokens", "trained")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return mixed(tmp_path_factory.mktemp("models") / "mixed")


@pytest.fixture(scope="module")
def client(data):
    with viewer(data) as client:
        answer(client, "plan")  # from here on rows are judged
        yield client


@pytest.fixture(scope="module")
def problem(data):
    with pytest.raises(UsageError, match="nothing says which of them is trained") as refused:
        next(iter(art_otel.batches(data)))
    return str(refused.value)


def trained_tokens(client, key, **options):
    """The tokens that all histories of the page's tokens show as trained."""
    histories = answer(client, f"rollouts/{key}/tokens", **options)["histories"]
    shown = [answer(client, f"rollouts/{key}/tokens", history=one["index"], **options) for one in histories]
    return sum(sum(tokens["mask"]) for tokens in shown)


def test_the_plan_says_that_a_model_has_to_be_chosen(client, problem):
    plan = answer(client, "plan")
    assert plan["problem"] == answer(client, "overview")["problem"] == problem
    assert plan["sums"]
    skipped = {entry["reason"]: entry for entry in plan["skipped"]}
    assert skipped["several models"]["count"] == SAMPLED
    rows = answer(client, "trajectories", **dict(parse_qsl(skipped["several models"]["filter"])))["rows"]
    assert {row["rolloutId"] for row in rows} == {f"several-{number}" for number in range(SAMPLED)}
    options = {option["name"]: option for option in plan["options"]}
    assert options["models"]["choices"] == ["policy", "judge-large", "*"]
    assert options["agents"]["choices"] == ["critic"]
    for model in options["models"]["choices"]:
        assert answer(client, "plan", models=model)["problem"] is None


def test_every_other_page_is_as_it_is(client):
    for sort in SORTS:
        rows = answer(client, "trajectories", sort=sort)["rows"]
        assert len(rows) == SAMPLED + 4
        assert all(row["judged"] for row in rows)
    for row in rows:
        verdicts = [turn["verdict"] for turn in answer(client, f"rollouts/{row['key']}")["turns"]]
        assert len(verdicts) == row["turns"]
        assert (row["verdict"] == "several models") == (verdicts == ["several models"] * 5)
        for advantage in ("grpo", "grpo_batch"):
            assert trained_tokens(client, row["key"], advantage=advantage) == row["trainedTokens"]
    (group,) = {row["groupKey"] for row in rows} - {None}
    for advantage in ("grpo", "grpo_batch"):
        assert len(answer(client, f"groups/{group}", advantage=advantage)["members"]) == SAMPLED + 1


@pytest.mark.parametrize(
    ("texts", "options", "completions"),
    [
        ({"models": "policy"}, {"models": "policy"}, {"another model": 3, "marked untrained": 3, "aborted": 1}),
        ({"models": "*, !judge*"}, {"models": ["*", "!judge*"]}, {"another model": 3}),
        ({"models": "*", "agents": "!critic"}, {"models": "*", "agents": ["!critic"]}, {"another agent": 3}),
        ({"models": "*", "length": "mask"}, {"models": "*", "length": "mask"}, {"cut at max_tokens": 3}),
        ({"models": "*"}, {"models": "*"}, {"marked untrained": 3, "aborted": 1, "ids doubtful": 1}),
    ],
)
def test_a_choice_is_applied_and_what_it_leaves_out_is_said(client, data, texts, options, completions):
    plan, batches = answer(client, "plan", **texts), art_otel.batches(data, **options)
    list(batches)
    assert plan["problem"] is None
    assert plan["completions"]["trained"] == batches.report.trained_completions > 0
    skipped = Counter({entry["reason"]: entry["count"] for entry in plan["skipped"] if entry["unit"] == "completion"})
    assert skipped == batches.report.completions_skipped
    assert skipped.items() >= completions.items()
    for entry in plan["skipped"]:
        assert entry["helps"]
        assert answer(client, "trajectories", **dict(parse_qsl(entry["filter"])))["total"] > 0
    rows = answer(client, "trajectories")["rows"]
    assert sum(trained_tokens(client, row["key"], **texts) for row in rows) == batches.report.trained_tokens


def test_a_turn_says_both_verdicts_and_what_it_is_for(client):
    rows = {row["rolloutId"]: row["key"] for row in answer(client, "trajectories")["rows"]}
    turns = answer(client, f"rollouts/{rows['several-0']}")["turns"]
    assert [turn["markedUntrained"] for turn in turns] == [None, None, None, "title", None]
    (turn,) = answer(client, f"rollouts/{rows['doubtful text']}")["turns"]
    assert (turn["verdict"], turn["tokensUntrained"], turn["textUntrained"]) == (None, None, "content doubtful")


def test_the_shared_file_holds_it(data, tmp_path, problem):
    assert main(["view", str(data), "--html", str(tmp_path / "m.html")]) == 0
    _, responses = exported(tmp_path / "m.html")
    assert responses["/api/plan"]["problem"] == responses["/api/overview"]["problem"] == problem
    rows = responses["/api/trajectories?offset=0&limit=200"]["rows"]
    assert Counter(row["verdict"] for row in rows)["several models"] == SAMPLED
