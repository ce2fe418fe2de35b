"""The viewer answers from real datasets what `art_otel` itself says of them, and nothing of what is not shown."""

import json
from collections import Counter
from pathlib import Path
from urllib.parse import parse_qsl

import httpx
import pytest

import art_otel
from art_otel.store import read_trajectories, write_trajectories
from art_otel.trajectories import trajectory_json
from tests.conversions import convert_files
from tests.data.token_rollouts import talk
from tests.trajectories.calls import with_sampled
from tests.viewer.served import HOSTILE, answer, dataset, drifting, recorded, rewarded, viewer

OPTIONS = [
    {},
    {"advantage": "none"},
    {"credit": "call_reward"},
    {"status": "any", "allow_incomplete": "true", "zero_variance": "drop"},
    {"max_tokens": "20", "split": "val", "advantage": "none"},
    {"max_tokens": "20", "overflow": "truncate", "advantage": "rloo"},
]


DIALECTS = Path(__file__).parents[1] / "dialects"


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return dataset(tmp_path_factory.mktemp("viewed") / "dataset")


@pytest.fixture(scope="module")
def client(data):
    with viewer(data) as client:
        answer(client, "plan")  # from here on rows are judged
        yield client


def rows_of(client, **query):
    return answer(client, "trajectories", **query)["rows"]


def key_of(client, rollout_id):
    return next(row["key"] for row in rows_of(client) if row["rolloutId"] == rollout_id)


def batches(path, options):
    made = art_otel.batches(
        path,
        advantage=None if options.get("advantage") == "none" else options.get("advantage", "grpo"),
        credit=options.get("credit", "outcome_reward"),
        status=None if options.get("status") == "any" else "ok",
        split=options.get("split"),
        allow_incomplete="allow_incomplete" in options,
        zero_variance=options.get("zero_variance", "keep"),
        max_tokens=int(options["max_tokens"]) if "max_tokens" in options else None,
        overflow=options.get("overflow", "drop"),
    )
    for _ in made:
        pass
    return made.report


@pytest.mark.parametrize("options", OPTIONS)
def test_the_plan_is_the_batch_report_and_each_reason_leads_to_its_rows(client, data, options):
    plan, report = answer(client, "plan", **options), batches(data, options)
    assert plan["sums"]
    assert plan["report"] | {"batches": 0, "padding": 0} == plan["report"]
    assert plan["trajectories"] == {
        "read": report.trajectories,
        "trained": report.trajectories_used,
        "skipped": report.trajectories_skipped.total(),
    }
    assert plan["completions"] == {"sampled": report.completions, "trained": report.trained_completions}
    assert plan["tokens"]["trained"] == report.trained_tokens
    skipped = {unit: Counter() for unit in ("trajectory", "completion", "history")}
    for entry in plan["skipped"]:
        skipped[entry["unit"]][entry["reason"]] = entry["count"]
        assert entry["means"]
        assert entry["helps"]
        total = answer(client, "trajectories", **dict(parse_qsl(entry["filter"])))["total"]
        assert total == entry["count"] if entry["unit"] == "trajectory" else 0 < total <= entry["count"]
    assert skipped == {
        "trajectory": report.trajectories_skipped,
        "completion": report.completions_skipped,
        "history": report.sequences_skipped,
    }


@pytest.mark.parametrize("options", OPTIONS)
def test_every_completion_is_trained_at_most_once_over_all_histories_that_are_shown(client, data, options):
    trained_tokens = 0
    for row in rows_of(client):
        path = f"rollouts/{row['key']}/tokens"
        first = answer(client, path, **options)
        shown = [answer(client, path, history=one["index"], **options) for one in first["histories"]]
        trained = [span["turn"] for tokens in shown for span in tokens["spans"] if span["trained"]]
        assert len(trained) == len(set(trained))
        for tokens in shown:
            trained_tokens += sum(tokens["mask"])
            for name in ("ids", "mask", "logprobs", "advantages"):
                assert len(tokens[name]) == tokens["length"]
            for name, scale in (("logprobs", "logprob"), ("advantages", "advantage")):
                pairs = zip(tokens[name], tokens["mask"], strict=True)
                values = [value for value, is_trained in pairs if is_trained and value is not None]
                assert tokens["scale"][scale] == {"min": min(values, default=None), "max": max(values, default=None)}
            for span in tokens["spans"]:
                assert [one["step"] for one in span["why"]] == ["mask", "credit", "advantage", "option"]
                assert (span["why"][-1]["says"] == "Trained.") >= span["trained"]
        if not first["histories"]:
            assert first["unknown"]
    assert trained_tokens == batches(data, options).trained_tokens


def test_the_list_filters_sorts_and_searches(client):
    everything = rows_of(client)
    assert [row["rolloutId"] for row in rows_of(client, sort="reward", order="desc", limit=2)] == ["r3", "r2"]
    rewards = [row["reward"] for row in rows_of(client, sort="reward", order="asc")]
    assert rewards == sorted([one for one in rewards if one is not None]) + [None] * rewards.count(None)
    assert {row["rolloutId"] for row in rows_of(client, complete="no")} == {"lacking"}
    assert {row["rolloutId"] for row in rows_of(client, reason="no content")} == {"lacking"}
    assert {row["rolloutId"] for row in rows_of(client, status="error")} == {"broken"}
    assert {row["rolloutId"] for row in rows_of(client, split="val")} == {"alone"}
    assert {row["rolloutId"] for row in rows_of(client, step="3")} == {"alone"}
    assert {row["rolloutId"] for row in rows_of(client, q="A1")} >= {"r0", "r1"}
    assert not rows_of(client, q="nobody says this")
    for sort in ("started", "calls", "turns", "tokens", "trained", "name", "rollout", "step", "duration"):
        assert len(rows_of(client, sort=sort, order="desc")) == len(everything)
    saved = {
        what: answer(client, "trajectories/saved", what=what, min_reward=2)["lines"] for what in ("ids", "rollouts")
    }
    assert set(saved["ids"]) == {"r2", "r3"}
    assert [one["rollout_id"] for one in saved["rollouts"]] == saved["ids"]
    page = answer(client, "trajectories", offset=4, limit=3)
    assert (page["total"], page["rows"]) == (len(everything), everything[4:7])


def test_a_rollout_is_shown_whole_and_says_trained_of_what_trains_alone(client, data):
    by_id = {one.rollout_id: one for one in read_trajectories(data)}
    verdicts = {verdict.rollout_id: verdict for verdict in art_otel.batches(data).verdicts()}
    rows = rows_of(client)
    for row, after in zip(rows, [*rows[1:], None], strict=True):
        shown, trajectory = answer(client, f"rollouts/{row['key']}"), by_id[row["rolloutId"]]
        assert shown["row"] == row
        assert shown["next"] == (after and after["key"])
        assert len(shown["turns"]) == len(trajectory.turns) == row["turns"]
        messages = [message for history in shown["histories"] for message in history["messages"]]
        trained = [message["turn"] for message in messages if message["state"] == "trained"]
        lengths = [len(history["turns"]) for history in shown["histories"]]
        assert not lengths or lengths[shown["main"]["conversation"]] == max(lengths)
        tokens = answer(client, f"rollouts/{row['key']}/tokens", history=shown["main"]["tokens"])
        lengths = [len(history["turns"]) for history in tokens["histories"]]
        assert not lengths or lengths[tokens["history"]] == max(lengths)
        reasons = verdicts[row["rolloutId"]].completions
        assert sorted(trained) == [at for at, reason in enumerate(reasons) if reason is None]
        raw = answer(client, f"rollouts/{row['key']}/raw")["trajectory"]
        assert raw == json.loads(json.dumps(trajectory_json(trajectory)))


def test_drift_shows_both_sequences_from_where_they_part(client):
    turns = answer(client, f"rollouts/{key_of(client, 'drifts')}")["turns"]
    assert [turn["relation"] for turn in turns] == ["root", "drift", "continue"]
    drift = turns[1]["drift"]
    assert (drift["at"], drift["before"], drift["expected"], drift["actual"]) == (2, [1, 2], [3, 4], [9, 5])
    assert drifting().calls[1].drifted_at == 2


def test_a_group_derives_its_advantages(client):
    row = next(row for row in rows_of(client) if row["rolloutId"] == "r0")
    group = answer(client, f"groups/{row['groupKey']}")
    rewards = {member["rolloutId"]: member["reward"] for member in group["members"]}
    derived = group["advantage"]
    assert derived["rewards"] == list(rewards.values())
    assert derived["baseline"] == pytest.approx(sum(rewards.values()) / len(rewards))
    for member, advantage in zip(group["members"], derived["advantages"], strict=True):
        tokens = answer(client, f"rollouts/{member['key']}/tokens")
        assert tokens["scale"]["advantage"]["min"] == pytest.approx(advantage)
    assert len(derived["says"]) == len(rewards) + 3
    assert all(len(step["cells"]) == len(rewards) for step in group["steps"])


def test_the_overview_counts_what_the_data_holds(client, data):
    overview, everything = answer(client, "overview"), list(read_trajectories(data))
    assert overview["total"] == len(everything)
    assert overview["complete"] == sum(one.complete for one in everything)
    (missing,) = overview["incomplete"]
    assert (missing["reason"], missing["count"]) == ("no content", 1)
    assert missing["helps"].startswith("Switch content capture on")
    assert overview["trainable"] == batches(data, {}).trajectories_used
    assert sum(one["count"] for one in overview["statuses"]) == len(everything)
    rewards = overview["rewards"]
    assert rewards["known"] + rewards["unknown"] == len(everything)
    assert sum(one["count"] for one in rewards["bins"]) == rewards["known"]


def test_hostile_texts_come_through_verbatim(client):
    shown = answer(client, f"rollouts/{key_of(client, HOSTILE)}")
    (history,) = shown["histories"]
    assert [part["text"] for message in history["messages"] for part in message["parts"]] == [HOSTILE] * 3
    assert (shown["error"], shown["metadata"], shown["logs"]) == (HOSTILE, {HOSTILE: HOSTILE}, [HOSTILE])


def test_what_is_asked_wrongly_gets_its_status_and_no_path_of_the_machine(client, data):
    for path, status in [
        ("api/trajectories?sort=size", 400), ("api/trajectories?offset=x", 400), ("api/plan?credit=x", 400),
        ("api/rollouts/x", 404), ("api/rollouts/WyJyIixudWxsLCJhIiwwXQ", 404), ("api/groups/W251bGwsIngiXQ", 404),
        ("api/nothing", 404), ("nothing", 404), ("..%2fapp.js", 404), ("api/..%2f..%2fpyproject.toml", 404),
        (f"api/rollouts/{key_of(client, 'r0')}/tokens?history=9", 404), ("api/plan?generation=x", 409),
    ]:  # fmt: skip
        response = client.get(f"/{path}")
        assert response.status_code == status, path
        assert str(data.parent) not in response.text
    assert str(data.parent) not in json.dumps([answer(client, name) for name in ("info", "overview", "plan")])


@pytest.fixture
def unknown(client):
    with httpx.Client(base_url=client.base_url) as bare:
        yield bare


def test_only_who_has_the_token_and_means_this_server_is_answered(client, unknown):
    port = client.base_url.port
    assert unknown.get("/api/info").status_code == unknown.get("/").status_code == 401
    assert unknown.get("/?token=wrong").status_code == unknown.get("/api/info?token=wrong").status_code == 401
    for host in ("evil", f"evil:{port}", "127.0.0.1", "127.0.0.1:1", f"127.0.0.1.evil:{port}"):
        assert client.get("/api/info", headers={"host": host}).status_code == 400, host
    for host in (f"127.0.0.1:{port}", f"localhost:{port}", f"[::1]:{port}"):
        assert client.get("/api/info", headers={"host": host}).status_code == 200, host
    for method in ("POST", "PUT", "DELETE", "OPTIONS", "PATCH"):
        assert client.request(method, "/api/info").status_code == 405
    assert client.head("/api/info").status_code == 200
    for response in (client.get("/"), unknown.get("/"), client.get("/nothing")):
        policy = response.headers["content-security-policy"]
        assert "default-src 'none'; script-src 'self';" in policy
        assert "require-trusted-types-for 'script'" in policy
    (cookie,) = client.cookies.jar
    assert cookie.has_nonstandard_attr("HttpOnly")
    assert cookie.get_nonstandard_attr("SameSite") == "strict"


def test_real_recordings_are_shown(tmp_path):
    with viewer(recorded(tmp_path / "recorded")) as client:
        plan = answer(client, "plan")
        assert plan["sums"]
        assert plan["trajectories"]["read"] == len(rows_of(client)) > 5
        for row in rows_of(client):
            shown = answer(client, f"rollouts/{row['key']}")
            assert len(shown["turns"]) == row["turns"]
            assert all(bar["startMs"] >= 0 for bar in shown["time"])


def test_the_calls_of_several_agents_say_whose_they_are(tmp_path):
    convert_files(tmp_path, DIALECTS / "openai_agents_oi_handoff_responses.jsonl")
    with viewer(tmp_path) as client:
        keys = [row["key"] for row in rows_of(client) if len(row["agents"]) > 2]
        time = answer(client, f"rollouts/{keys[0]}")["time"]
    assert {entry["agent"] for entry in time if entry["kind"] == "call"} == {"Triage", "Guard", "Weather", "Poet"}
    assert {entry["agent"] for entry in time if entry["kind"] == "tool"} == {None}


def test_unknown_numbers_of_tokens_are_unknown(tmp_path):
    unknown = with_sampled(talk("unknown", 2), lambda _: {"token_ids": None, "logprobs": None})
    write_trajectories([talk("known", 3), unknown], tmp_path)
    with viewer(tmp_path) as client:
        plan = answer(client, "plan", advantage="none")
        rows = {row["rolloutId"]: row["sampledTokens"] for row in rows_of(client, sort="tokens")}
    assert list(rows.items()) == [("known", 3), ("unknown", None)]
    assert plan["tokens"] == {"sampled": 3, "trained": 3, "uncounted": 1}


def test_sources_are_told_apart_and_what_several_have_is_shown_once(tmp_path):
    for name, trace in (("a", 1), ("b", 2), ("again", 1)):
        made = [talk(f"{trace}-{number}", 2, group_id="g", **rewarded(float(number))) for number in range(2)]
        write_trajectories(made, tmp_path / name / "out")
    with viewer(*(tmp_path / name / "out" for name in ("a", "b", "again"))) as client:
        rows, overview = rows_of(client), answer(client, "overview")
        assert [(row["source"], row["groupId"]) for row in rows] == [
            *[("a/out", "g (source 1)")] * 2,
            *[("b/out", "g (source 2)")] * 2,
        ]
        assert (overview["repeated"], overview["sharedGroups"]) == (2, 1)
        assert {row["rolloutId"] for row in rows_of(client, source="b/out")} == {"2-0", "2-1"}


def test_two_sources_are_compared_on_the_tasks_that_both_have_and_two_rollouts_word_by_word(tmp_path):
    for name, trace in (("before", 1), ("after", 2)):
        made = [
            talk(f"{name}-{task}", *[2] * trace, group_id=f"task-{task}", **rewarded(float(trace * task)))
            for task in range(3)
        ]
        write_trajectories([*made, talk(f"{name}-only", 1, group_id=name)], tmp_path / name)
    with viewer(tmp_path / "before", tmp_path / "after") as client:
        assert answer(client, "compare")["sides"]["source"] == ["before", "after"]
        compared = answer(client, "compare", kind="source", left="before", right="after")["compared"]
        assert [(task["name"], task["change"]) for task in compared["tasks"]] == [
            ("task-2", 2.0), ("task-1", 1.0), ("task-0", 0.0),
        ]  # fmt: skip
        assert (compared["by"], compared["onlyLeft"], compared["onlyRight"]) == ("group", 1, 1)
        assert [side["turns"] for side in compared["sides"]] == [1.0, 2.0]
        ((left, right),) = compared["tasks"][0]["pairs"]
        pair = answer(client, f"pair/{left}/{right}")
        assert [row["rolloutId"] for row in pair["rows"]] == ["before-2", "after-2"]
        assert pair["differsAt"] == 2
        for message in pair["messages"]:
            assert message["same"] == all(words["kind"] == "same" for words in message["words"])
        assert client.get("/api/compare?kind=source&left=before&right=x").status_code == 400


def test_two_checkpoints_of_other_steps_are_compared_task_by_task(tmp_path):
    for name, steps in (("early", (0,)), ("late", (3, 4))):
        made = [
            talk(f"{name}-{task}-{step}", 2, name="solve", group_id=task, training_step=step, **rewarded(float(step)))
            for task in ("t1", "t2")
            for step in steps
        ]
        write_trajectories(made, tmp_path / name)
    with viewer(tmp_path / "early", tmp_path / "late") as client:
        for kind, left, right, rollouts, change in (
            ("source", "early", "late", [(1, 2)] * 2, 3.5),
            ("step", "0", "4", [(1, 1)] * 2, 4.0),
        ):
            compared = answer(client, "compare", kind=kind, left=left, right=right)["compared"]
            assert (compared["by"], compared["onlyLeft"], compared["onlyRight"]) == ("group", 0, 0)
            assert [(task["name"], task["says"], task["change"]) for task in compared["tasks"]] == [
                (name, "solve", change) for name in ("t1", "t2")
            ]
            assert [(one["left"]["rollouts"], one["right"]["rollouts"]) for one in compared["tasks"]] == rollouts
