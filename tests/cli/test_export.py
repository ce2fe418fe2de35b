"""`art-otel export` and `art-otel export --list`: what they print, and their exit codes."""

import json
import pathlib
from dataclasses import replace
from typing import get_args
from uuid import UUID

import pyarrow.parquet as pq
import pytest

from art_otel.cli import export as cli_export
from art_otel.cli import main
from art_otel.data import ADVANTAGES, CREDITS
from art_otel.data.advantages import ADVANTAGES_OVER_GROUPS, ADVANTAGES_OVER_REWARDS
from art_otel.data.selection import OPTIONS
from art_otel.store import write_trajectories
from art_otel.trajectories import Reward, Status
from tests.exporting.samples import branching, conversation, failed, group, samples, without_ids


@pytest.fixture
def dataset(tmp_path):
    write_trajectories(samples(), tmp_path / "dataset")
    return tmp_path / "dataset"


def run(*arguments) -> int:
    return main([str(argument) for argument in arguments])


def test_the_report_is_told(dataset, tmp_path, capsys):
    assert run("export", dataset, "--to", "openai", "-o", tmp_path / "out") == 0
    out = capsys.readouterr().out
    assert "         in  7 trajectories: 6 used, 1 left out (status: 1)\n" in out
    assert f"8 records of openai sft in {tmp_path / 'out' / 'openai-sft.jsonl'}" in out
    assert "not carried  logs of 1: " in out
    assert "not carried  token_ids: " in out
    assert "metrics of 0" not in out


def test_parts_changes_and_files_are_told(dataset, tmp_path, capsys):
    assert run("export", dataset, "--to", "art", "-o", tmp_path / "out") == 0
    assert "    changed  metadata that is not a scalar, written as JSON text: 1\n" in capsys.readouterr().out
    assert run("export", dataset, "--to", "openai", "--format", "preference", "-o", tmp_path / "out") == 0
    assert "    changed  " not in capsys.readouterr().out
    write_trajectories([branching(), conversation("a", "Sun.", 0.0, split="val")], tmp_path / "two")
    both = ("export", tmp_path / "two", "--split", "*", "--to")
    assert run(*both, "art", "--format", "log", "-o", tmp_path / "log") == 0
    assert "trajectories/val/0003.parquet and 1 more file" in capsys.readouterr().out
    assert run(*both, "openai", "--format", "preference", "-o", tmp_path / "pairs") == 0
    assert "left out  histories: not the main one of their trajectory: 2\n" in capsys.readouterr().out
    assert run("export", tmp_path / "two", "--to", "art", "--format", "log", "-o", tmp_path / "n", "--split", "x") == 2
    assert "nothing to export as art log, and no file was written" in capsys.readouterr().err
    assert not (tmp_path / "n").exists()


def test_the_report_as_json_is_the_one_on_disk(dataset, tmp_path, capsys):
    assert run("export", dataset, "--to", "openai", "--format", "preference", "-o", tmp_path / "p.jsonl", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told == json.loads((tmp_path / "p.jsonl.report.json").read_text())
    assert (told["format"], told["records"]) == ("preference", 1)


def test_every_way_to_choose(tmp_path, capsys):
    torn = conversation("r-torn", "Rain.", 1.0, incomplete_reasons={"not ended": 1})
    val = conversation("r-val", "Rain.", 1.0, split="val")
    write_trajectories([*group(), failed(), torn, val], tmp_path / "dataset")
    command = ("export", tmp_path / "dataset", "--to", "openai", "-o", tmp_path / "out", "--json")

    def used(*options) -> int:
        assert run(*command, *options) == 0
        return json.loads(capsys.readouterr().out)["trajectories_used"]

    assert used() == 3
    assert used("--split", "*") == 4
    assert used("--split", "*", "--allow-incomplete") == 5
    assert used("--split", "*", "--allow-reason", "not ended") == 5
    assert used("--split", "val") == 1
    assert used("--split", "val", "--split", "train") == 4
    assert used("--status", "error") == 1
    assert used("--status", "error", "--status", "ok", "--allow-incomplete", "--split", "*") == 6
    assert used("--option", "parallel_tool_calls=false") == 3
    assert b'"parallel_tool_calls":false' in (tmp_path / "out" / "openai-sft.jsonl").read_bytes()


def test_advantage_and_credit_reach_the_trainers_files(dataset, tmp_path, capsys):
    art = ("export", dataset, "--to", "art", "-o", tmp_path / "out", "--json")
    assert run(*art, "--credit", "step_reward", "--advantage", "none") == 2
    assert "turns with different rewards, but ART has one per trajectory: 1" in capsys.readouterr().err
    assert run(*art, "--advantage", "rloo") == 0
    assert "advantages" in json.loads(capsys.readouterr().out)["not_carried"]


def test_nothing_to_export_is_an_error_that_says_why_and_writes_nothing(dataset, tmp_path, capsys):
    assert run("export", dataset, "--to", "openai", "-o", tmp_path / "out", "--split", "nowhere") == 2
    assert "none of 7 trajectories is used (split: 7)" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_where_pairs_say_the_same_the_reasons_of_all_trajectories_are_told(tmp_path, capsys):
    members = [conversation(f"r{number}", "Rain.", reward) for number, reward in enumerate((0.0, 0.5, 1.0))]
    write_trajectories(members, tmp_path / "dataset")
    trl = ("export", tmp_path / "dataset", "--to", "trl", "--format", "dpo", "-o", tmp_path / "out.parquet")
    assert run(*trl) == 2
    told = capsys.readouterr().err
    assert "none of 3 trajectories is used (neither best nor worst: 1, pairs: same messages: 1)" in told


def test_where_nothing_has_the_reward_that_counts_the_names_of_the_others_are_told(tmp_path, capsys):
    rewards = (
        Reward(name="correct", value=1.0, source="evaluation", time_ns=1),
        Reward(name="style", value=0.5, step=0, source="evaluation", time_ns=1),
    )
    write_trajectories([conversation("r-judged", "Rain.", None, rewards=rewards)], tmp_path / "dataset")
    trl = ("export", tmp_path / "dataset", "--to", "trl", "--format", "grpo", "-o", tmp_path / "out.parquet", "--json")
    for credit in ("outcome_reward(corect)", "outcome_reward(style)", "weighted(correct=1,style=1)", "outcome_reward"):
        assert run(*trl, "--credit", credit) == 0
        told = capsys.readouterr()
        assert f"--credit {credit} asks for; the recorded rewards are named correct, style (of steps)" in (told.err)
        assert json.loads(told.out)["other_rewards"] == ["correct", "style (of steps)"]
    assert run(*trl, "--credit", "outcome_reward(correct)") == 0
    told = capsys.readouterr()
    assert "warning" not in told.err
    assert json.loads(told.out)["other_rewards"] == []


@pytest.mark.parametrize(
    ("options", "code", "problem"),
    [
        (("--to", "nothing"), 2, "no exporter 'nothing'"),
        (("--to", "openai", "--format", "x"), 2, "has no format 'x'"),
        (("--to", "openai", "--option", "x=1"), 2, "has no option 'x'"),
        (("--to", "openai", "--max-tokens", "9"), 2, "max_tokens=9"),
        (("--to", "openai", "--credit", "call_reward"), 2, "credit"),
        (("--to", "art", "--format", "log", "--credit", "call_reward"), 2, "writes all rewards as they were given"),
    ],
)
def test_what_makes_no_sense_is_usage(dataset, tmp_path, capsys, options, code, problem):
    assert run("export", dataset, "-o", tmp_path / "out", *options) == code
    assert problem in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "option", [("--option", "x"), ("--option", "=1"), ("--advantage", "best"), ("--status", "good")]
)
def test_what_cannot_be_read_is_usage(dataset, tmp_path, capsys, option):
    with pytest.raises(SystemExit) as ended:
        run("export", dataset, "--to", "openai", "-o", tmp_path / "out", *option)
    assert ended.value.code == 2
    assert option[-1] in capsys.readouterr().err


def test_a_source_that_cannot_be_read_is_1(tmp_path, capsys):
    (tmp_path / "bad.parquet").write_bytes(b"no Parquet")
    for source in (tmp_path / "nothing", tmp_path / "bad.parquet"):
        assert run("export", source, "--to", "openai", "-o", tmp_path / "out") == 1
        assert str(source) in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.fixture
def broken(tmp_path, monkeypatch):
    record = tmp_path / "site" / "broken-1.0.dist-info"
    record.mkdir(parents=True)
    (record / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1.0\n")
    (record / "entry_points.txt").write_text("[art_otel.exporters]\nbroken = broken_module:EXPORTER\n")
    (tmp_path / "site" / "broken_module.py").write_text("raise RuntimeError('half \x1b[31minstalled')")
    monkeypatch.syspath_prepend(tmp_path / "site")


@pytest.mark.usefixtures("broken")
def test_exporters_are_listed_and_broken_ones_named(capsys):
    assert run("export", "--list") == 0
    out = capsys.readouterr().out
    assert "broken (broken 1.0): cannot be loaded: RuntimeError: half ␛[31minstalled" in out
    assert "openai (art-otel-openai 0.1.0): " in out
    assert "  preference: direct preference" in out
    assert "    needs recorded messages, group ids" in out
    assert "    --option later_messages=truncate: " in out


@pytest.mark.usefixtures("broken")
def test_exporters_as_json(capsys):
    assert run("export", "--list", "--json") == 0
    listed = {one["name"]: one for one in json.loads(capsys.readouterr().out)}
    assert listed["broken"]["formats"] == []
    assert listed["broken"]["problem"].startswith("RuntimeError")
    sft = listed["openai"]["formats"][0]
    assert (sft["name"], sft["input"], sft["advantage"]) == ("sft", "conversations", None)
    assert sft["options"]["parallel_tool_calls"]["default"] == "None"
    assert "logprobs" in sft["not_carried"]


def test_no_exporter_at_all_says_what_to_install(monkeypatch, capsys):
    monkeypatch.setattr("art_otel.exporting.registry.entry_points", lambda **_: ())
    assert run("export", "--list") == 0
    assert "pip install ./exporters/trl" in capsys.readouterr().out


def test_the_choices_of_the_command_are_those_of_python():
    assert cli_export._CREDITS == CREDITS
    assert (*ADVANTAGES, *ADVANTAGES_OVER_GROUPS, *ADVANTAGES_OVER_REWARDS, "none") == cli_export._ADVANTAGES
    assert get_args(Status) == cli_export._STATUSES


def test_every_option_of_python_that_selects_is_one_of_the_command(capsys):
    with pytest.raises(SystemExit):
        run("export", "--help")
    told = capsys.readouterr().out
    in_files = {"part"}  # shares as --split write every part
    assert [name for name in OPTIONS if f"--{name.replace('_', '-')} " not in told.replace("]", " ")] == [*in_files]


def test_what_an_export_needs_is_named(capsys):
    assert run("export", "somewhere", "--to", "openai") == 2
    assert "also give --out; `art-otel export --list` lists the exporters" in capsys.readouterr().err


@pytest.mark.long
def test_without_an_exporter_those_for_what_one_has_are_named(dataset, tmp_path, capsys):
    for command in (("export", dataset), ("export", dataset, "-o", tmp_path / "out", "--to")):
        assert run(*command) == 2
        told = capsys.readouterr().err
        assert "openai (--format sft | preference)" in told
        assert "verl (" in told
    write_trajectories([without_ids()], tmp_path / "messages")
    assert run("export", tmp_path / "messages") == 2
    told = capsys.readouterr().err
    assert "openai (--format sft)" in told
    assert "datums" not in told
    write_trajectories([failed()], tmp_path / "failed")
    assert run("export", tmp_path / "failed") == 2
    assert "can write these trajectories; `--list`" in capsys.readouterr().err


def test_without_a_format_the_others_are_named(dataset, tmp_path, capsys):
    export = ("export", dataset, "--to", "openai", "-o", tmp_path / "out")
    assert run(*export) == 0
    assert "also  --format preference: " in capsys.readouterr().out
    assert run(*export, "--format", "sft") == 0
    assert "also  " not in capsys.readouterr().out


def test_nobody_imitates_what_failed_without_a_word(dataset, tmp_path, capsys):
    export = ("export", dataset, "--to", "openai", "-o", tmp_path / "out")
    assert run(*export) == 0
    assert "warning: 1 of 6 trajectories had a reward of 0 or less" in capsys.readouterr().err
    assert run(*export, "--min-reward", "0.5") == 0
    told = capsys.readouterr()
    assert "warning" not in told.err
    assert "reward too low: 1" in told.out
    assert run(*export, "--min-reward", "0", "--json") == 0
    told = capsys.readouterr()
    assert "warning" not in told.err
    assert json.loads(told.out)["unsuccessful"] == 1
    assert run(*export, "--format", "preference") == 0
    assert "warning" not in capsys.readouterr().err
    assert run(*export, "--format", "preference", "--min-reward", "0.5") == 2
    assert "min_reward=0.5" in capsys.readouterr().err


def test_sequences_that_are_imitated_are_chosen_by_their_reward_too(tmp_path, capsys):
    none = conversation("r-none", "Hail.", None)
    write_trajectories([*group(), branching(), none], tmp_path / "dataset")
    export = ("export", tmp_path / "dataset", "--to", "trl", "--format", "sft", "-o", tmp_path / "sft.parquet")
    assert run(*export) == 0
    assert "warning: 1 of 5 trajectories had a reward of 0 or less" in capsys.readouterr().err
    assert run(*export, "--min-reward", "0.5", "--json") == 0
    told = capsys.readouterr()
    report = json.loads(told.out)
    assert "warning" not in told.err
    assert report["trajectories_skipped"] == {"reward too low": 1, "no reward": 1}
    assert (report["trajectories"], report["trajectories_used"], report["unsuccessful"]) == (5, 3, 0)
    rows = pq.read_table(tmp_path / "sft.parquet").to_pylist()
    assert {row["rollout_id"] for row in rows} == {"r-good", "r-fair", "r-branching"}
    assert min(row["reward"] for row in rows) >= 0.5
    for options, problem in (
        (
            ("--format", "grpo", "--min-reward", "0.5"),
            "trained with rewards, including low ones; leave it out",
        ),
        (("--min-reward", "nan"), "give a finite number"),
        (("--min-reward", "0.5", "--credit", "step_reward"), "compares rewards of whole rollouts"),
    ):
        assert run(*export, *options) == 2
        assert problem in capsys.readouterr().err


def test_what_the_viewer_saved_shows_or_labeled_is_exported(tmp_path, capsys):
    rewards = [
        Reward(name=name, value=at, source="evaluation", time_ns=1) for name, at in (("reward", 1), ("style", 5))
    ]
    styled = conversation("r-styled", "Rain.", 1.0, rewards=tuple(rewards))
    write_trajectories([*group(), styled], tmp_path / "dataset")
    (tmp_path / "dataset" / "_labels.jsonl").write_text(
        '{"rollout_id": "r-good", "name": "good", "value": 1.0, "time": 1}\n'
    )
    (tmp_path / "ids.txt").write_text("r-fair\nr-styled\nr-gone\n")
    out = tmp_path / "out.parquet"
    export = ("export", tmp_path / "dataset", "--to", "trl", "--format", "grpo", "-o", out)

    def exported(*options) -> dict[str, float]:
        assert run(*export, *options) == 0
        return {row["rollout_id"]: row["reward"] for row in pq.read_table(out).to_pylist()}

    assert exported("--rollouts", tmp_path / "ids.txt").keys() == {"r-fair", "r-styled"}
    told = capsys.readouterr()
    assert f"{tmp_path / 'ids.txt'}: 2 of 3 ids are in the data\n" in told.err
    assert "not chosen: 2" in told.out
    assert exported("--where", "min_reward=1").keys() == {"r-good", "r-styled"}
    assert exported("--where", "min_reward=1", "--rollouts", tmp_path / "ids.txt").keys() == {"r-styled"}
    assert exported("--where", "label=good").keys() == {"r-good"}
    assert exported("--credit", "outcome_reward(style)")["r-styled"] == 5.0
    (tmp_path / "none.txt").write_text("r-gone\n")
    for options, problem in (
        (("--rollouts", tmp_path / "none.txt"), f"{tmp_path / 'none.txt'}: 0 of 1 id is in the data"),
        (("--where", "min_reward=9"), "chooses no rollout"),
        (("--where", "rewad=9"), "no reward, metadata or field is named 'rewad'. The rewards are reward, style;"),
        (("--credit", "best(style)"), "credit='best(style)'"),
    ):
        assert run(*export, *options) == 2
        assert problem in capsys.readouterr().err


def test_three_backends_to_a_file_with_a_score_a_filter_a_split_and_no_duplicates(tmp_path, capsys):
    """One command each; the counts are those that the questions below give by hand."""
    times = {"start_time": "2026-10-01T09:00:00.000Z", "end_time": "2026-10-01T09:00:05.000Z"}
    asked = [(number % 9, number % 4 != 0) for number in range(36)]  # nine tasks; three of four answers are right
    folder = tmp_path / "exports"
    folder.mkdir()
    langfuse, langsmith, phoenix = [], [], []
    for number, (task, is_right) in enumerate(asked):
        question, answer = f"What is {task} + 1?", str(task + 1 if is_right else 0)
        messages = [{"role": "user", "content": question}]
        trace_id, span_id = f"{number + 1:032x}", f"{number + 1:016x}"
        call = {"id": span_id, "traceId": trace_id, "type": "GENERATION", "parentObservationId": None}
        call |= {"startTime": times["start_time"], "endTime": times["end_time"], "input": messages, "output": answer}
        score = {"name": "correct", "value": float(is_right), "dataType": "NUMERIC", "traceId": trace_id}
        about = {"id": trace_id, "tags": ["even" if task % 2 == 0 else "odd"]}
        langfuse.append(about | {"observations": [call], "scores": [score]})
        traced = times | {"id": str(UUID(int=number + 101)), "name": "llm", "run_type": "llm", "parent_run_id": None}
        traced |= {"inputs": {"messages": messages}, "tags": about["tags"], "extra": {}, "error": None}
        traced |= {"outputs": {"choices": [{"message": {"role": "assistant", "content": answer}}]}}
        langsmith.append(traced | {"feedback_stats": {"correct": {"avg": float(is_right)}}})
        said = {"llm.input_messages.0.message.role": "user", "llm.input_messages.0.message.content": question}
        said |= {"llm.output_messages.0.message.role": "assistant", "llm.output_messages.0.message.content": answer}
        span = times | {"name": "llm", "span_kind": "LLM", "parent_id": None, "attributes": said, "events": []}
        span |= {"context": {"trace_id": f"{number + 1:032x}"[::-1], "span_id": span_id}}
        phoenix.append(span | {"annotations": [{"name": "correct", "result": {"score": float(is_right)}}]})
    for name, rows in (("langfuse", langfuse), ("langsmith", langsmith), ("phoenix", phoenix)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    dataset, out = tmp_path / "dataset", tmp_path / "sft"
    assert run("convert", folder, "--out", dataset) == 0
    assert "rewards  108: 108 delivered, 0 undeliverable" in capsys.readouterr().out
    export = ("export", dataset, "--to", "trl", "--reward", "correct", "--min-reward", "0.5")

    assert run(*export, "-o", tmp_path / "all.parquet") == 0
    told = capsys.readouterr().out
    right = sum(is_right for _, is_right in asked)
    assert f"{3 * right} records of trl chat" in told
    assert told.splitlines()[-1].split() == [
        "load", 'load_dataset("parquet",', f"data_files='{tmp_path / 'all.parquet'}',", 'split="train")'
    ]  # fmt: skip

    assert run(*export, "--where", "tags=even", "--dedupe", "--split", "0.6/0.4", "--seed", "1", "-o", out) == 0
    told = capsys.readouterr().out
    tasks = {task for task, is_right in asked if is_right and task % 2 == 0}
    rows = {name: pq.read_table(out / f"{name}.parquet").to_pylist() for name in ("train", "val")}
    assert {name: len(of_part) for name, of_part in rows.items()} == {"train": 3, "val": 2}
    assert {json.loads(row["prompt"])[0]["content"] for part in rows.values() for row in part} == {
        f"What is {task} + 1?" for task in tasks
    }
    assert all(row["reward"] == 1.0 for part in rows.values() for row in part)
    of_even = sum(task % 2 == 0 for task, _ in asked)
    right_even = sum(is_right and task % 2 == 0 for task, is_right in asked)
    # Phoenix has no tags, so none of its rollouts is chosen.
    left_out = {"not chosen": 108 - 2 * of_even, "reward too low": 2 * (of_even - right_even)}
    left_out["repeated conversation"] = 2 * right_even - len(tasks)
    report = json.loads((out / "_export.json").read_text())
    assert report["trajectories_skipped"] == left_out
    assert report["parts"] == {"train": 3, "val": 2}
    assert told.splitlines()[-1].startswith("       load  load_dataset(\"parquet\", data_files={'train': ")


def test_nothing_but_named_scores_says_which_to_name(tmp_path, capsys):
    scored = Reward(name="correct", value=1.0, source="evaluation", time_ns=1)
    write_trajectories([conversation("r", "Rain.", None, rewards=(scored,))], tmp_path / "dataset")
    export = ("export", tmp_path / "dataset", "--to", "openai", "-o", tmp_path / "a.jsonl", "--min-reward", "0.5")
    assert run(*export) == 2
    assert "choose one, as with --reward correct" in capsys.readouterr().err
    assert not (tmp_path / "a.jsonl").exists()
    assert run(*export, "--reward", "correct") == 0


def test_the_best_format_is_chosen_by_what_is_there(tmp_path, capsys):
    for name, rollouts, best in (
        ("groups", group(), "grpo"),
        ("alone", [replace(one, group_id=None) for one in group()], "chat"),
        ("text", [without_ids()], "chat"),
    ):
        write_trajectories(rollouts, tmp_path / name)
        assert run("export", tmp_path / name, "--to", "trl", "-o", tmp_path / f"{name}.parquet") == 0
        told = capsys.readouterr().out
        assert f"of trl {best} in" in told
        assert f"     format  {best}: the best of trl" in told


def test_a_format_that_was_not_considered_says_why(tmp_path, capsys):
    """The credit is for formats with rewards, which need token ids; conversations would have fitted."""
    write_trajectories([without_ids()], tmp_path / "dataset")
    export = ("export", tmp_path / "dataset", "--to", "trl", "-o", tmp_path / "out")
    assert run(*export, "--credit", "outcome_reward(style)") == 2
    told = capsys.readouterr().err
    assert "no token ids: 1" in told
    assert "  format chat cannot do what was asked: credit: chat holds conversations" in told
    assert "use reward=NAME and min_reward (--reward, --min-reward)" in told
    assert run(*export, "--min-reward", "9") == 2
    assert run("export", tmp_path / "dataset", "--to", "atif", "-o", tmp_path / "atif") == 0
    load = capsys.readouterr().out.splitlines()[-1].removeprefix("       load  ")
    assert [document["schema_version"] for document in eval(load, {"json": json, "pathlib": pathlib})] == [
        "ATIF-v1.8"
    ]  # as a user would


def test_without_any_exporter_the_command_says_how_to_install_one(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("art_otel.exporting.installed_exporters", list)
    write_trajectories([without_ids()], tmp_path / "dataset")
    assert run("export", tmp_path / "dataset") == 2
    assert "no exporter is installed; in a checkout of art-otel" in capsys.readouterr().err
