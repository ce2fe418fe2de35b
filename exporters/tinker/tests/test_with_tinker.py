"""tinker-cookbook's own environments, traced: their spans give back what it trains on; and it reads what we write."""

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from art_otel.exporting import export
from art_otel.trajectories import token_histories
from exporters.tinker.tests.cookbook import RELEASES, WANTED, run
from tests.conversions import convert_files
from tests.exporting.samples import branching, group, samples, without_logprobs
from tests.trainers.environment import trainer_python

pytestmark = pytest.mark.trainer

EXACT = {"advantage": "centered"}
BY_THE_RUNNER = {"stop/max_turns", "num_truncations_max_turn_tokens"}
"""Metrics that the cookbook's runner adds to the last step, when the environment has said all it had to say."""

PARSED = {  # what the renderers made of the answers, by the line of the script
    "agent": [("", None, '{"city": "Z\\u00fcrich"}'), ("Rain.", "So", None)],
    "broken_frame": [("", None, '{"city": "Z\\u00fcrich"}'), ("Rain", None, None)],
    "bad_call": [("", None, None), ("Rain.", None, None)],
    "too_long_answer": [("", None, '{"city": "Z\\u00fcrich"}'), ("Rai", None, None)],
    "goes_on": [("Rai", None, None), ("Rain.", None, None)],
    "overflow": [("", None, '{"city": "Z\\u00fcrich"}')],
}


@pytest.fixture(scope="module", params=RELEASES, ids=" ".join)
def python(request) -> Path:
    return trainer_python("tinker", *WANTED, alone=request.param)


@pytest.fixture(scope="module")
def folder(python, tmp_path_factory) -> Path:  # noqa: ARG001 # one for each release
    return tmp_path_factory.mktemp("tinker")


@pytest.fixture(scope="module")
def theirs(python, folder) -> dict:
    return run(python, "run_with_tinker.py", folder)


@pytest.fixture(scope="module")
def ours(theirs, folder) -> list:  # noqa: ARG001 # it wrote the spool
    found, _ = convert_files(folder / "out", folder / "spool")
    return found


@pytest.fixture(scope="module")
def read(ours, python, folder) -> dict:
    """What tinker-cookbook reads of our export of its own rollouts."""
    traced = [one for one in ours if one.training_step == 3]
    export(traced, "tinker", folder / "datums.jsonl", **EXACT)
    export(traced, "tinker", folder / "exported", format="rollouts")
    return run(python, "read_with_tinker.py", folder / "datums.jsonl", folder / "exported")


def transitions(trajectory) -> list[tuple]:
    """A rollout as tinker has it: what was asked, sampled and given at each step."""
    given = {one.step: one.value for one in trajectory.rewards if one.name == "reward" and one.step is not None}
    return [
        (
            call.prompt_token_ids.tolist(),
            call.choices[0].token_ids.tolist(),
            call.choices[0].logprobs.tolist(),
            given[call.step],
            call.env_state["metrics"],
            call.env_state["logs"],
        )
        for call in trajectory.calls
    ]


def in_any_order(values) -> list[str]:
    """As text that does not tell 1 from 1.0 and True, without what only the runner knows."""
    return sorted(json.dumps(numbers(value), sort_keys=True) for value in values)


def numbers(value):
    if isinstance(value, dict):
        return {name: numbers(one) for name, one in value.items() if name not in BY_THE_RUNNER}
    if isinstance(value, (list, tuple)):
        return [numbers(one) for one in value]
    return float(value) if isinstance(value, (bool, int)) else value


def test_tracing_changes_nothing(theirs):
    def rollouts(groups: dict) -> dict:
        return {name: in_any_order(group["trajectories"]) for name, group in groups.items()}

    assert rollouts(theirs["untraced"]) == rollouts(theirs["traced"]) == rollouts(theirs["without_setup"])
    assert theirs["errors"] == ["RuntimeError"]
    assert theirs["switch"]


def test_every_group_is_a_group_of_rollouts_with_their_own_tokens_and_rewards(theirs, ours):
    found: dict[str, list] = {}
    for one in ours:
        if one.training_step == 3 and one.status == "ok":
            assert one.complete
            assert (one.split, one.attempt) == ("train", None)
            found.setdefault(one.group_id, []).append([transitions(one), one.reward, dict(one.metrics)])
    expected = []
    for group_ in theirs["traced"].values():
        members = zip(group_["trajectories"], group_["rewards"], group_["metrics"], strict=True)
        expected.append(
            in_any_order(
                [
                    [
                        [
                            (one["ob"], one["ac"], one["logprobs"], one["reward"], one["metrics"], one["logs"])
                            for one in trajectory["steps"]
                            if one["ac"]  # a step without tokens is the runner's, for an episode that never began
                        ],
                        reward,
                        metrics,
                    ]
                    for trajectory, reward, metrics in members
                ]
            )
        )
    assert sorted(in_any_order(group_) for group_ in found.values()) == sorted(expected)


def test_each_preferred_response_landed_on_its_own_trajectory(ours):
    pairs = [one for one in ours if one.name == "pair_pref"]
    by_length = sorted(pairs, key=lambda one: len(one.calls[0].choices[0].message.content))
    assert [one.calls[0].choices[0].message.content for one in by_length] == ["a", "ab", "abc", "abcd"]
    assert [round(one.reward * 3) for one in by_length] == [-3, -1, 1, 3]
    assert all(one.reward == one.metrics["win_minus_loss"] for one in pairs)


def lines(ours) -> dict[str, object]:
    """Trajectories by their line of the script."""
    found = {}
    for one in ours:
        for call in one.calls[:1]:
            asked = call.input_messages[-1].content if call.input_messages else ""
            if asked.startswith("#"):
                found[asked[1:].split()[0]] = one
    return found


def test_prompts_and_answers_are_there_on_every_path(ours):
    by_line = lines(ours)
    for line, answers in PARSED.items():
        said = [call.choices[0].message for call in by_line[line].calls]
        assert [
            (one.content or "", one.reasoning, one.tool_calls[0].arguments if one.tool_calls else None) for one in said
        ] == answers
    bad, cut = by_line["bad_call"].calls[0], by_line["too_long_answer"].calls[1]
    assert "Invalid JSON" in bad.extra["unparsed_tool_calls"][0]["error"]
    assert (bad.extra["termination"], cut.extra["termination"]) == ("stop_sequence", "malformed")
    assert (bad.choices[0].finish_reason, cut.choices[0].finish_reason) == ("stop", "length")
    assert [by_line[line].metadata["stop_reason"] for line in PARSED] == [
        *("completed", "parse_error", "completed", "max_tokens", "completed", "context_overflow")
    ]
    for line in ("agent", "broken_frame", "too_long_answer"):
        roles = [[message.role for message in call.input_messages] for call in by_line[line].calls]
        assert roles == [["system", "user"], ["system", "user", "assistant", "tool"]]
        (tool,) = by_line[line].tools
        assert tool["function"]["name"] == "look_up"


def test_prompts_are_those_of_the_moment(ours):
    calls = lines(ours)["rewriting"].calls
    assert [[message.content for message in call.input_messages] for call in calls] == [
        ["#rewriting first"],
        ["#rewriting first changed", "one", "and?"],
    ]


def test_episodes_that_never_began(theirs, ours):
    empty = [one for one in ours if not one.calls]
    assert sorted((one.reward, one.metadata["stop_reason"]) for one in empty) == [
        (0.0, "max_tokens"),
        (0.5, "max_tokens"),
    ]
    limited = [one["stop_reason"] for one in theirs["traced"]["limited"]["trajectories"]]
    assert sorted(limited) == ["max_tokens", "max_turns"]
    assert any("exceeds max_trajectory_tokens" in line for one in empty for line in one.logs)


def test_what_failed_is_kept_with_its_error(ours):
    (failed,) = [one for one in ours if one.status == "error"]
    assert (failed.error, failed.reward) == ("RuntimeError: broken", None)
    assert bytes(failed.calls[0].choices[0].token_ids.tolist()) == b"break"


def test_environments_without_a_builder(theirs, ours):
    single, injected = (next(one for one in ours if one.name == name) for name in ("single", "injected"))
    for trajectory, name in ((single, "single"), (injected, "injected")):
        steps = theirs[name]["steps"]
        assert [(ids, action, logprobs, reward) for ids, action, logprobs, reward, *_ in transitions(trajectory)] == [
            (one["ob"], one["ac"], one["logprobs"], one["reward"]) for one in steps
        ]
        assert trajectory.reward == sum(one["reward"] for one in steps)
    assert (single.group_id, single.calls[0].policy_version) == ("alone", "12")
    assert single.calls[0].env_state["reference_answer"] == "4"
    assert [message.content for message in injected.calls[1].input_messages][-1] == "Really?"


def test_our_datums_are_those_of_assemble_training_data(theirs, read):
    def plain(datums: list[dict]) -> list[str]:
        names = ("model_input", "target_tokens", "logprobs", "mask")
        # Theirs is float32 from the mean on, ours is double until it is written.
        return in_any_order([*[one[name] for name in names], np.round(one["advantages"], 5).tolist()] for one in datums)

    assert plain(read["datums"]) == plain(theirs["datums"])
    dtypes = {"target_tokens": "int64", "logprobs": "float32", "advantages": "float32", "mask": "float32"}
    assert all(one["dtypes"] == dtypes for one in read["datums"])
    assert {tuple(names) for names in read["sent"]} == {("advantages", "logprobs", "target_tokens")}
    assert read["kl"]["optim/kl_sample_train_v2"] == 0.0


def test_trained_tokens_there_are_sampled_tokens_here(ours, read):
    sampled = [
        (token, logprob)
        for one in ours
        if one.training_step == 3 and one.status == "ok"
        for history in token_histories(one)
        for token, mask, logprob in zip(history.token_ids, history.loss_mask, history.logprobs, strict=True)
        if mask
    ]
    assert trained_in(read["datums"]) == Counter(sampled)


def trained_in(datums: list[dict]) -> Counter:
    return Counter(
        (token, logprob)
        for one in datums
        for token, mask, logprob in zip(one["target_tokens"], one["mask"], one["logprobs"], strict=True)
        if mask
    )


def test_our_summaries_are_those_of_the_cookbook(folder, read):
    own = (folder / "run/iteration_000003/train_rollout_summaries.jsonl").read_text().splitlines()
    expected = [json.loads(line) for line in own]
    found = read["rollouts"]["3"]
    assert read["iterations"] == [[3, True, []]]
    assert (read["single"]["group_idx"], read["single"]["traj_idx"]) == (1, 0)
    assert len(found) == len(expected)
    # The runner's own steps have no tokens and were never the environment's; nobody records what follows the last.
    kept = ("schema_version", "split", "iteration", "sampling_client_step", "total_reward", "final_reward")

    def comparable(record: dict) -> list:
        steps = [step for step in record["steps"] if step["ac_len"]]
        fields = ("step_idx", "ob_len", "ac_len", "reward", "episode_done", "metrics", "logs")
        values = [[step[name] for name in fields] for step in steps]
        return [[record[name] for name in kept], record["trajectory_metrics"], values]

    assert in_any_order(map(comparable, found)) == in_any_order(map(comparable, expected))
    for record in found:
        for step in record["steps"]:
            assert step["trace"].keys() <= {"prompt", "policy_response", "reward_data", "env_state", "extra"}
            assert step["reward"] in step["trace"]["reward_data"].values()


def test_our_samples_are_read(python, tmp_path):
    export(samples(), "tinker", tmp_path / "datums.jsonl", **EXACT)
    validation = [*group(), branching(), without_logprobs()]
    for split, rollouts in (("train", samples()), ("val", validation)):
        changed = [replace(one, split=split) for one in rollouts]
        export(changed, "tinker", tmp_path / split, format="rollouts", status=("ok", "error"), split="*")
    (tmp_path / "val/iteration_000003/eval_val_rollout_summaries.jsonl").rename(
        tmp_path / "train/iteration_000003/eval_val_rollout_summaries.jsonl"
    )
    found = run(python, "read_with_tinker.py", tmp_path / "datums.jsonl", tmp_path / "train")
    assert found["iterations"] == [[3, True, ["val"]]]
    assert [record["art_otel"]["rollout_id"] for record in found["rollouts"]["3"]] == [
        one.rollout_id for one in samples()
    ]
    sampled = Counter(
        (token, logprob)
        for one in samples()
        if one.status == "ok" and one.reward is not None and one.complete
        for turn in one.turns
        if turn.logprobs is not None and turn.tokens_untrained is None
        for token, logprob in zip(turn.token_ids, turn.logprobs, strict=True)
    )
    assert trained_in(found["datums"]) == sampled
