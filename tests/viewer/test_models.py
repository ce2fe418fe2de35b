"""A dataset of several models is shown whole before anybody chose one of them, and by every choice."""

from collections import Counter
from urllib.parse import urlencode

import pytest

import art_otel
from art_otel.cli import main
from art_otel.errors import UsageError
from tests.viewer.mixed import SAMPLED, mixed
from tests.viewer.served import answer, exported, viewer

SORTS = ("reward", "tokens", "advantage")


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
    with pytest.raises(UsageError, match="no option says which one is trained") as refused:
        next(iter(art_otel.batches(data)))
    return str(refused.value)


def trained_tokens(client, key, **options):
    """The tokens of all turns that the page shows as trained."""
    turns = answer(client, f"rollouts/{key}/tokens", **options)["turns"]
    return sum(sum(turn["mask"]) for turn in turns)


def test_the_plan_says_that_a_model_has_to_be_chosen(client, problem):
    plan = answer(client, "plan")
    run = answer(client, "run")
    assert plan["problem"] == run["problem"] == problem
    parts = {part["reason"]: part for part in run["trains"]["parts"]}
    assert parts["several models"]["count"] == SAMPLED
    rows = answer(client, "trajectories", why="several models")["rows"]
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
    assert plan["report"]["trained_completions"] == batches.report.trained_completions > 0
    assert plan["report"]["completions_skipped"] == batches.report.completions_skipped
    assert batches.report.completions_skipped.items() >= completions.items()
    chosen = {"plan": urlencode(texts)}
    trains = answer(client, "run", **chosen)["trains"]
    assert trains["gradient"] + trains["flat"] == batches.report.trained_tokens
    assert trains["unchosen"] == []  # who chose is not asked again
    for part in trains["parts"]:
        assert part["helps"]
        assert answer(client, "trajectories", **part["query"], **chosen)["total"] == part["count"] > 0
    rows = answer(client, "trajectories")["rows"]
    assert sum(trained_tokens(client, row["key"], **texts) for row in rows) == batches.report.trained_tokens


def test_a_turn_says_both_verdicts_and_what_it_is_for(client):
    rows = {row["rolloutId"]: row["key"] for row in answer(client, "trajectories")["rows"]}
    turns = answer(client, f"rollouts/{rows['several-0']}")["turns"]
    assert [turn["markedUntrained"] for turn in turns] == [None, None, None, "title", None]
    (turn,) = answer(client, f"rollouts/{rows['doubtful text']}")["turns"]
    assert (turn["verdict"], turn["tokensUntrained"], turn["textUntrained"]) == (None, None, "content uncertain")


def test_the_shared_file_holds_it(data, tmp_path, problem):
    assert main(["view", str(data), "--html", str(tmp_path / "m.html")]) == 0
    _, responses = exported(tmp_path / "m.html")
    assert responses["/api/plan"]["problem"] == responses["/api/run"]["problem"] == problem
    rows = responses["/api/trajectories?offset=0&limit=200"]["rows"]
    assert Counter(row["verdict"] for row in rows)["several models"] == SAMPLED
