"""The viewer answers from real datasets what `art_otel` itself says of them, and nothing of what is not shown."""

import json
import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from urllib.parse import parse_qsl, urlencode

import httpx
import pytest

import art_otel
from art_otel.cli import main
from art_otel.store import read_trajectories, write_trajectories
from art_otel.trajectories import GroupKey, Trajectory, trajectory_json
from art_otel.viewer.addresses import TrajectoryKey, decode_group_key, decode_trajectory_key, encode_key
from art_otel.viewer.alignment import SaidMessage, align, parting_line
from tests.conversions import convert_files
from tests.data.token_rollouts import talk
from tests.trajectories.calls import with_sampled
from tests.viewer.served import HOSTILE, answer, dataset, drifting, recorded, rewarded, viewer, viewer_process

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
    with viewer_process(data) as client:
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
def test_what_trains_is_the_batch_report_and_each_part_leads_to_its_rows(client, data, options):
    plan, report = answer(client, "plan", **options), batches(data, options)
    assert plan["report"] | {"batches": 0, "padding": 0} == plan["report"]
    chosen = {"plan": urlencode(options)} if options else {}
    trains = answer(client, "run", **chosen)["trains"]
    assert (trains["rollouts"], trains["trained"]) == (report.trajectories, report.trajectories_used)
    assert trains["flat"] == report.zero_advantage_tokens
    assert trains["gradient"] + trains["flat"] == report.trained_tokens
    assert trains["gradient"] + sum(part["tokens"] for part in trains["parts"]) == trains["sampled"]
    # Each rollout stands in one part.
    assert trains["gradientRollouts"] + sum(part["rollouts"] for part in trains["parts"]) == trains["rollouts"]
    flats = [part for part in trains["parts"] if "trains" in part["query"]]
    assert sum(flat["tokens"] for flat in flats) == trains["flat"]
    for flat in flats:
        assert answer(client, "trajectories", **flat["query"], **chosen)["total"] == flat["count"] > 0
    parts = {part["reason"]: part for part in trains["parts"] if part not in flats}
    cut = ["longer than max_tokens"] if report.truncated_trained_tokens else []
    assert parts.keys() == {
        *report.trajectories_skipped, *report.completions_skipped, *report.sequences_skipped, *cut
    }  # fmt: skip
    for reason, part in parts.items():
        assert part["means"]
        assert part["helps"]
        assert answer(client, "trajectories", why=reason, **chosen)["total"] == part["count"] > 0
        assert part["count"] >= report.trajectories_skipped[reason]
    assert answer(client, "trajectories", trains="gradient", **chosen)["total"] == trains["gradientRollouts"]
    assert answer(client, "trajectories", trains="no", **chosen)["total"] >= report.trajectories_skipped.total()


@pytest.mark.parametrize("options", OPTIONS)
def test_every_completion_is_shown_once_with_its_tokens_and_what_they_are_trained_with(client, data, options):
    trained_tokens = 0
    for row in rows_of(client):
        shown = answer(client, f"rollouts/{row['key']}/tokens", **options)
        turns = shown["turns"]
        assert len({turn["turn"] for turn in turns}) == len(turns) <= row["turns"]
        assert turns or shown["unknown"]
        for turn in turns:
            trained_tokens += sum(turn["mask"])
            for name in ("mask", "logprobs", "advantages"):
                assert len(turn[name]) == len(turn["ids"])
            assert turn["start"] >= len(turn["context"])
            assert [one["step"] for one in turn["why"]] == ["mask", "credit", "advantage", "option"]
            assert (turn["why"][-1]["says"] == "Trained.") >= any(turn["mask"])
        for name, scale in (("logprobs", "logprob"), ("advantages", "advantage")):
            pairs = [pair for turn in turns for pair in zip(turn[name], turn["mask"], strict=True)]
            values = [value for value, is_trained in pairs if is_trained and value is not None]
            assert shown["scale"][scale] == {"min": min(values, default=None), "max": max(values, default=None)}
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
    assert {row["rolloutId"] for row in rows_of(client, step="2-4")} == {"alone"}
    assert {row["rolloutId"] for row in rows_of(client, task="g")} == {"r0", "r1", "r2", "r3", "drifts"}
    assert {row["rolloutId"] for row in rows_of(client, wrong="incomplete")} == {"lacking"}
    assert {row["rolloutId"] for row in rows_of(client, error="boom")} == {"broken"}
    assert not rows_of(client, wrong="cut")
    for sort in ("started", "turns", "tokens", "advantage", "task", "rollout", "step"):
        assert len(rows_of(client, sort=sort, order="desc")) == len(everything)
    texts = answer(client, "trajectories/texts", sort="rollout", limit=2)["rows"]
    assert [one.keys() for one in texts] == [{"asked", "failed", "answer", "turn"}] * 2
    assert set(answer(client, "trajectories/ids", min_reward=2)["lines"]) == {"r2", "r3"}
    page = answer(client, "trajectories", offset=4, limit=3)
    assert (page["total"], page["rows"]) == (len(everything), everything[4:7])


def test_a_rollout_is_shown_whole_and_says_trained_of_what_trains_alone(client, data):
    by_id = {one.rollout_id: one for one in read_trajectories(data)}
    verdicts = {verdict.rollout_id: verdict for verdict in art_otel.batches(data).decisions()}
    rows = rows_of(client)
    for row, after in zip(rows, [*rows[1:], None], strict=True):
        shown, trajectory = answer(client, f"rollouts/{row['key']}"), by_id[row["rolloutId"]]
        assert shown["row"] == row
        assert shown["next"] == (after and after["key"])
        assert len(shown["turns"]) == len(trajectory.turns) == row["turns"]
        told = entries_of(shown["story"])
        assert sorted(one["turn"] for one in told if one["kind"] == "turn") == list(range(row["turns"]))
        failed = [at for at, call in enumerate(trajectory.calls) if not call.choices]
        assert sorted(one["call"] for one in told if one["kind"] == "failed") == failed
        trained = [turn["turn"] for turn in shown["turns"] if turn["verdict"] is None]
        reasons = verdicts[row["rolloutId"]].completions
        assert sorted(trained) == [at for at, reason in enumerate(reasons) if reason is None]
        path = f"rollouts/{row['key']}/raw"
        raw = answer(client, path)["trajectory"]
        assert raw == json.loads(json.dumps(trajectory_json(trajectory)))
        calls = [answer(client, path, part=at)["trajectory"] for at in range(len(trajectory.calls))]
        assert calls == raw["calls"]
        alone = {"calls": [], "turns": [], "complete": trajectory.complete, "end": None}
        assert answer(client, path, part="facts")["trajectory"] == raw | alone


def entries_of(story):
    """All entries of a story, those of sub-agents too."""
    for entry in story:
        yield entry
        yield from entries_of(entry.get("entries", []))
        for block in [*entry.get("blocks", []), *(one for tool in entry.get("tools", []) for one in tool["blocks"])]:
            yield from entries_of([block])


def test_drift_shows_both_sequences_from_where_they_part(client):
    turns = answer(client, f"rollouts/{key_of(client, 'drifts')}")["turns"]
    assert [turn["relation"] for turn in turns] == ["root", "drift", "continue"]
    drift = turns[1]["drift"]
    assert (drift["at"], drift["before"], drift["expected"], drift["actual"]) == (2, [1, 2], [3, 4], [9, 5])
    assert drifting().calls[1].drifted_at == 2


def plain(text: str | None) -> str | None:
    return text and text.replace("\N{MINUS SIGN}", "-")


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
    assert len(derived["formulas"]) == len(rewards)
    assert derived["rewards"] == sorted(derived["rewards"], reverse=True)
    assert plain(derived["formulas"][0]) == "reward 3, group mean 1.3: (3 - 1.3) / 1.08 = 1.58"
    shown = answer(client, f"rollouts/{row['key']}")
    assert (plain(shown["formula"]), shown["advantage"]) == (
        "group mean 1.3: (0 - 1.3) / 1.08 = -1.21",
        derived["advantages"][-1],
    )
    for advantage, formula in (
        ("dr_grpo", "group mean 1.3: 0 - 1.3 = -1.3"),
        ("rloo", "mean of the others 1.62: 0 - 1.62 = -1.62"),
        ("grpo_batch", None),
    ):
        path = f"rollouts/{row['key']}"
        assert plain(answer(client, path, list=urlencode({"plan": f"advantage={advantage}"}))["formula"]) == formula
    assert all(len(line["cells"]) == len(rewards) for line in group["lines"])


def test_previous_and_next_go_through_the_list_that_one_came_from(client):
    for query in ("sort=reward&order=desc", "task=g&sort=rollout", "status=error"):
        rows = rows_of(client, **dict(parse_qsl(query)))
        for before, row, after in zip([None, *rows], rows, [*rows[1:], None], strict=False):
            shown = answer(client, f"rollouts/{row['key']}", list=query)
            assert shown["previous"] == (before and before["key"])
            assert shown["next"] == (after and after["key"])
            assert shown["listed"] == len(rows)


def test_the_run_counts_what_the_data_holds(client, data):
    run, everything = answer(client, "run"), list(read_trajectories(data))
    assert run["total"] == run["matching"] == len(everything)
    assert run["wrong"]["incomplete"] == sum(not one.complete for one in everything)
    assert run["wrong"]["error"] == sum(one.status == "error" for one in everything)
    assert run["wrong"]["errors"] == [{"text": "boom", "count": 1}]
    rewards = [one.reward for one in everything if one.reward is not None]
    assert (run["rewards"]["known"], run["rewards"]["unknown"]) == (len(rewards), len(everything) - len(rewards))
    assert sum(one["count"] for one in run["rewards"]["bins"]) == len(rewards)
    read = answer(client, "run/read")["rollouts"]
    assert {one["why"] for one in read} >= {"lowest advantage", "ended in an error"}
    assert len({one["row"]["key"] for one in read}) == len(read) <= 8


def over_steps(name: str, rewards: list[list[float]], **fields: object) -> list[Trajectory]:
    """Rollouts of one task: a group in each step, with these rewards."""
    return [
        talk(f"{name}-{step}-{at}", 2, name=name, group_id=name, training_step=step, **rewarded(reward), **fields)
        for step, group in enumerate(rewards)
        for at, reward in enumerate(group)
    ]


def test_steps_come_from_the_rollouts_and_tasks_are_learned_forgotten_or_never_solved(tmp_path):
    count = 10
    made = [
        *over_steps("never", [[0.0, 0.0]] * count),
        *over_steps("solved", [[1.0, 1.0]] * count),
        *over_steps("learning", [[0.0, float(step > 5)] for step in range(count)]),
        *over_steps("forgotten", [[float(3 < step < 6)] * 2 for step in range(count)]),
        *over_steps("late", [[float(step == 9)] * 2 for step in range(count)]),
        *[replace(one, split="val") for one in over_steps("held out", [[0.25]] * 3)],
    ]
    write_trajectories(made, tmp_path)
    with viewer(tmp_path) as client:
        answer(client, "plan")
        run = answer(client, "run")
        assert (run["axis"]["kind"], run["axis"]["labels"]) == ("step", [*map(str, range(count))])
        train, val = run["series"]
        assert (train["split"], val["split"]) == ("train", "held out")
        assert train["reward"] == [
            (2 + (step > 5) + 2 * (3 < step < 6) + 2 * (step == 9)) / 10 for step in range(count)
        ]  # fmt: skip
        assert train["gradient"] == [0.2 if step > 5 else 0.0 for step in range(count)]
        assert set(val["gradient"]) == {None}
        first, _ = run["learned"]
        assert (first["first"], first["last"], first["queries"]) == (0.2, 0.5, [{"step": "0"}, {"step": "9"}])
        assert run["tasks"]["counts"] == {
            "never solved": 1, "forgotten": 1, "mostly unsolved": 1, "partly solved": 0, "learning": 2,
            "solved from the start": 1,
        }  # fmt: skip
        shown = {task["name"]: task for task in run["tasks"]["shown"]}
        assert [*shown] == ["never", "forgotten", "held out", "learning", "late", "solved"]
        learning = shown["learning"]
        column, mean, rollouts, is_flat, group = learning["cells"][-1]
        assert (column, mean, rollouts, is_flat) == (9, 0.5, 2, False)
        assert {row["rolloutId"] for row in answer(client, f"groups/{group}")["members"]} == {
            "learning-9-0", "learning-9-1"
        }  # fmt: skip
        # Every number is of the rollouts that the filters choose.
        part = answer(client, "run", step="6-9", task="learning")
        assert (part["matching"], part["trains"]["flat"], part["learned"][0]["last"]) == (8, 0, 0.5)
        # But a task is of one kind, whichever of its steps are chosen.
        late = {task["name"]: task["kind"] for task in answer(client, "run", step="9")["tasks"]["shown"]}
        assert late == {task["name"]: task["kind"] for task in run["tasks"]["shown"] if task["name"] != "held out"}
        # Of rollouts that are as good or as bad, the latest is to be read.
        read = {one["why"]: one["row"]["step"] for one in answer(client, "run/read")["rollouts"]}
        assert read["far above its group"] == 9
        flats = {part["reason"]: part["rollouts"] for part in run["trains"]["parts"] if "trains" in part["query"]}
        assert flats == {
            "advantage 0: none solved it": 20 + 12 + 16 + 18, "advantage 0: all solved it": 20 + 4 + 2
        }  # fmt: skip


def test_the_ends_of_the_smooth_line_are_the_numbers_of_the_answer(tmp_path):
    write_trajectories(over_steps("task", [[step / 1000] for step in range(250)]), tmp_path)
    with viewer(tmp_path) as client:
        run = answer(client, "run")
    (series,), (learned,), axis = run["series"], run["learned"], run["axis"]
    assert (len(axis["labels"]), axis["steps"], axis["size"], learned["over"]) == (84, 250, 3, 27)
    assert series["smooth"][0] == learned["first"] == pytest.approx(0.013)
    assert series["smooth"][-1] == learned["last"] == pytest.approx(sum(range(225, 250)) / 25_000)
    assert all(low <= high for low, high in pairwise(series["smooth"]))


def test_one_reward_has_one_bar_and_one_step_is_a_step(tmp_path):
    write_trajectories([talk("one", 2, training_step=3, **rewarded(0.9))], tmp_path)
    with viewer(tmp_path) as client:
        run = answer(client, "run")
    assert run["rewards"]["bins"] == [{"from": 0.9, "to": 0.9, "count": 1}]
    assert (run["axis"]["labels"], run["axis"]["steps"]) == (["3"], 1)


def test_rollouts_of_equal_reward_stand_by_advantage_and_step(tmp_path):
    made = over_steps("task", [[0.0, 0.0, 0.0, 1.0], [0.0, 1.0], [0.0, 0.0]])
    write_trajectories(made, tmp_path)
    with viewer(tmp_path) as client:
        answer(client, "plan")
        rows = rows_of(client, sort="reward", order="asc")
        assert [row["rolloutId"] for row in rows][:4] == ["task-1-0", "task-0-0", "task-0-1", "task-0-2"]
        assert [row["step"] for row in rows][4:6] == [2, 2]
        group = answer(client, f"groups/{rows[0]['groupKey']}")
        listed = rows_of(client, group=rows[0]["groupKey"], sort="reward", order="desc")
        assert [row["key"] for row in group["members"]] == [row["key"] for row in listed]


def test_a_task_is_what_stays_the_same_over_steps(tmp_path):
    by_name = [
        replace(one, group_id=f"{one.training_step}-{one.name}")
        for name in ("a", "b")
        for one in over_steps(name, [[0.0], [1.0]])
    ]
    by_id = [replace(one, name="solve") for task in ("t1", "t2") for one in over_steps(task, [[0.0], [1.0]])]
    for number, (made, names) in enumerate([(by_name, {"a", "b"}), (by_id, {"t1", "t2"})]):
        write_trajectories(made, tmp_path / str(number))
        with viewer(tmp_path / str(number)) as client:
            assert {task["name"] for task in answer(client, "run")["tasks"]["shown"]} == names
            assert {row["task"] for row in rows_of(client)} == names


def test_hostile_texts_come_through_verbatim(client):
    shown = answer(client, f"rollouts/{key_of(client, HOSTILE)}")
    assert {part["text"] for message in shown["messages"] for part in message["parts"]} == {HOSTILE}
    assert (shown["error"], shown["metadata"], shown["logs"]) == (HOSTILE, {HOSTILE: HOSTILE}, [HOSTILE])


def test_what_is_asked_wrongly_gets_its_status_and_no_path_of_the_machine(client, data):
    for path, status in [
        ("api/trajectories?sort=size", 400), ("api/trajectories?offset=x", 400), ("api/plan?credit=x", 400),
        ("api/rollouts/x", 404), ("api/rollouts/r0~~~~", 404), ("api/groups/x~9", 404), ("api/groups/g~x", 404),
        ("api/nothing", 404), ("nothing", 404), ("..%2fapp.js", 404), ("api/..%2f..%2fpyproject.toml", 404),
        (f"api/rollouts/{key_of(client, 'r0')}/raw?part=9", 404), ("api/plan?generation=x", 409),
    ]:  # fmt: skip
        response = client.get(f"/{path}")
        assert response.status_code == status, path
        assert str(data.parent) not in response.text
    assert str(data.parent) not in json.dumps([answer(client, name) for name in ("info", "run", "plan")])


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
        assert answer(client, "plan")["report"]["trajectories"] == len(rows_of(client)) > 5
        for row in rows_of(client):
            shown = answer(client, f"rollouts/{row['key']}")
            assert len(shown["turns"]) == row["turns"]
            told = list(entries_of(shown["story"]))
            assert sorted(one["turn"] for one in told if one["kind"] == "turn") == list(range(row["turns"]))
            answered = {turn["call"] for turn in shown["turns"]}
            assert {one["call"] for one in told if one["kind"] == "failed"} == set(range(row["calls"])) - answered
            assert all(call["startMs"] >= 0 for call in shown["calls"])


def test_the_calls_of_several_agents_say_whose_they_are(tmp_path):
    convert_files(tmp_path, DIALECTS / "openai_agents_oi_handoff_responses.jsonl")
    with viewer(tmp_path) as client:
        keys = [row["key"] for row in rows_of(client) if len(row["agents"]) > 2]
        shown = answer(client, f"rollouts/{keys[0]}")
    assert {call["agent"] for call in shown["calls"]} == {"Triage", "Guard", "Weather", "Poet"}
    # Weather was handed the conversation by a tool call, and asked Poet in another.
    triage = next(entry for entry in shown["story"] if entry["kind"] == "turn")
    (weather,) = triage["tools"][0]["blocks"]
    asked = next(entry for entry in weather["entries"] if entry["kind"] == "turn")
    assert [[block["agent"] for block in tool["blocks"]] for tool in asked["tools"]] == [[], [], ["Poet"]]
    assert weather["agent"] == "Weather"


def test_unknown_numbers_of_tokens_are_unknown(tmp_path):
    unknown = with_sampled(talk("unknown", 2), lambda _: {"token_ids": None, "logprobs": None})
    write_trajectories([talk("known", 3), unknown], tmp_path)
    with viewer(tmp_path) as client:
        trains = answer(client, "run", plan="advantage=none")["trains"]
        rows = {row["rolloutId"]: row["sampledTokens"] for row in rows_of(client, sort="tokens")}
    assert list(rows.items()) == [("known", 3), ("unknown", None)]
    assert (trains["sampled"], trains["gradient"], trains["flat"], trains["uncounted"]) == (3, 3, 0, 1)


def test_sources_are_told_apart_and_what_several_have_is_shown_once(tmp_path):
    for name, trace in (("a", 1), ("b", 2), ("again", 1)):
        made = [talk(f"{trace}-{number}", 2, group_id="g", **rewarded(float(number))) for number in range(2)]
        write_trajectories(made, tmp_path / name / "out")
    with viewer(*(tmp_path / name / "out" for name in ("a", "b", "again"))) as client:
        rows, run = rows_of(client), answer(client, "run")
        assert [(row["source"], row["groupId"]) for row in rows] == [
            *[("a/out", "g (source 1)")] * 2,
            *[("b/out", "g (source 2)")] * 2,
        ]
        assert (run["repeated"], run["sharedGroups"]) == (2, 1)
        assert {row["rolloutId"] for row in rows_of(client, source="b/out")} == {"2-0", "2-1"}


def test_two_sources_stand_side_by_side(tmp_path):
    for name, trace in (("before", 1), ("after", 2)):
        made = [
            talk(f"{name}-{task}", *[2] * trace, group_id=f"task-{task}", **rewarded(float(trace * task)))
            for task in range(3)
        ]
        write_trajectories(made, tmp_path / name)
    with viewer(tmp_path / "before", tmp_path / "after") as client:
        run = answer(client, "run")
        assert (run["axis"]["kind"], run["axis"]["labels"]) == ("source", ["before", "after"])
        assert run["series"][0]["reward"] == [1.0, 2.0]
        cells = {task["name"]: [cell[:2] for cell in task["cells"]] for task in run["tasks"]["shown"]}
        assert cells == {f"task-{task}": [[0, task], [1, 2 * task]] for task in range(3)}


def test_what_one_says_more_does_not_shift_what_both_say():
    said = [SaidMessage(role, text, None) for role, text in (("user", "a"), ("assistant", "b"), ("assistant", "c"))]
    more = [said[0], SaidMessage("assistant", "x", None), *said[1:]]
    lines = align([said, more])
    assert [(line["same"], [cell and cell["text"] for cell in line["cells"]]) for line in lines] == [
        (True, ["a", "a"]), (False, [None, "x"]), (True, ["b", "b"]), (True, ["c", "c"])
    ]  # fmt: skip
    assert parting_line(lines, [1.0, 0.0]) is None  # nobody did anything else there
    lines = align([said, said, [*said[:2], SaidMessage("assistant", "d", None)]])
    assert parting_line(lines, [1.0, 1.0, 0.0]) == 2


def test_rollouts_part_where_none_above_the_mean_says_what_one_below_says():
    """Those at the mean say nothing of what is better."""
    said = [[SaidMessage("assistant", text, None) for text in texts] for texts in ("px", "qx", "qx", "py")]
    assert parting_line(align(said), [0.0, 1.0, 1.0, 2.0]) == 1


@pytest.mark.parametrize("text", ["a", "", "..", "a~b", "ü/!%", "\ud800", " x"])
def test_an_address_names_what_it_was_made_of(text):
    for attempt, source in ((None, 0), (0, 2), (3, 0)):
        key = TrajectoryKey(text, attempt, source)
        assert decode_trajectory_key(encode_key(key)) == key
        assert re.fullmatch(r"[\w.!~-]+", encode_key(key), re.ASCII)
    for step, gathering in ((None, None), (0, "g~"), (-1, "")):
        group = GroupKey(step, gathering, text)
        assert decode_group_key(encode_key(group)) == group


def test_the_answers_are_said_as_text_and_as_json(tmp_path, capsys):
    write_trajectories(over_steps("task", [[0.0, 0.0], [0.0, 1.0]]), tmp_path)
    assert main(["view", str(tmp_path), "--say"]) == 0
    text = capsys.readouterr().out
    for line in (
        "4 rollouts", "Did it learn?       0.00 → 0.50", "Which tasks fail?   none of 1", "50% have advantage 0",
        "step 1, reward 0: lowest advantage  #/r/task-1-0?t=0",
    ):  # fmt: skip
        assert line in text
    assert main(["view", str(tmp_path), "--say", "--json", "--where", "#/?step=1"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["address"], said["rollouts"], said["trains"]["gradient"]) == ("#/?step=1", 2, 4)
    assert [one["address"].partition("?")[0] for one in said["read"]] == ["#/r/task-1-0", "#/r/task-1-1"]
    for arguments in (["--json"], ["--where", "step=1"], ["--say", "--html", "x.html"]):
        assert main(["view", str(tmp_path), *arguments]) == 2
