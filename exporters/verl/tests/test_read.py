"""verl's own readers on our files: what they train on is what was sampled."""

import json
import math
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

import art_otel
from art_otel.data import ADVANTAGES_OVER_GROUPS, rloo
from art_otel.data.sft import message_batches
from art_otel.exporting import export
from tests.exporting.samples import (
    LOOK_UP,
    QUESTION,
    SYSTEM,
    TRACE,
    asked,
    found,
    looking,
    prompt_ids,
    rollout,
    said,
    samples,
)
from tests.exporting.tokenizer import saved_tokenizer
from tests.trainers.environment import trainer_python

pytestmark = pytest.mark.trainer

ROOT = Path(__file__).parents[3]
REQUIREMENTS = (
    "torch==2.13.0",
    "ray==2.60.0",
    "tensordict==0.10.0",
    "transformers==5.10.4",
    "datasets==4.8.5",
    "pandas==2.3.3",
    *(
        "numpy<3",
        "omegaconf<3",
        "hydra-core<2",
        "codetiming<2",
        "jinja2<4",
        "pillow",
        "msgspec>=0.22",
        "zstandard>=0.23",
    ),
)
"""What verl's readers import; all that it requires would be everything that trains."""
RELEASES = ("verl==0.9.1", "verl==0.9.0")
"""The newest and the one before."""

OTHER_TOOL = {
    "type": "function",
    "function": {"name": "add", "parameters": {"type": "object", "properties": {"a": {"type": "number"}}}},
}
FIRST = (SYSTEM, QUESTION, looking("Zürich"))
FORKED = rollout(
    "r-forked",
    [
        asked(0, FIRST[:2], FIRST[2], tools=(LOOK_UP, OTHER_TOOL)),
        asked(1, (*FIRST, found("rain")), said("Rain.")),
        asked(2, (*FIRST, found("sun")), said("Sun.")),
    ],
    group_id=None,
)
"""Two histories share their first answer; two tools have other parameters."""

PLAIN_TALK = (SYSTEM, QUESTION, said("Rain."), QUESTION)
PLAIN = rollout(
    "r-plain", [asked(0, PLAIN_TALK[:2], said("Rain."), tools=()), asked(1, PLAIN_TALK, said("Rain!"), tools=())]
)
ROLLOUTS = [*samples(), FORKED]


GROUPS = [[[1.0, 2.0], [3.0, 6.0, 0.5]], [[0.0, 1.0, 1.0, 1.0], [0.0, 0.0], [0.25, -2.0]]]


@pytest.fixture(scope="module", params=RELEASES)
def read(request, tmp_path_factory) -> dict:
    folder = tmp_path_factory.mktemp("verl")
    saved_tokenizer(folder / "tokenizer")
    export(ROLLOUTS, "verl", folder / "sft.parquet", format="sft")
    export([PLAIN], "verl", folder / "no-tools.parquet", format="sft")
    export(ROLLOUTS, "verl", folder / "rollouts.parquet", format="rollouts")
    export(ROLLOUTS, "verl", folder / "prompts.parquet", format="prompts")
    (folder / "groups.json").write_text(json.dumps(GROUPS))
    python = trainer_python("verl", *REQUIREMENTS, alone=(request.param,))
    script = Path(__file__).with_name("read_with_verl.py")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(script.parents[1])])}
    done = subprocess.run(
        [python, script, folder], env=environment, cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def completions(rollouts) -> list[list[int]]:
    turns = [turn for one in rollouts if one.status == "ok" for turn in one.turns]
    return [turn.token_ids.tolist() for turn in turns if turn.token_ids is not None]


def joined(rows: list[list[int]]) -> list[int]:
    return sorted(token for row in rows for token in row)


def test_the_plain_class_trains_the_sampled_tokens_where_there_are_no_tools(read):
    (row,) = read["plain"]
    assert row["ids"] == PLAIN.calls[1].prompt_token_ids.tolist() + PLAIN.turns[1].token_ids.tolist()
    assert row["trained"] == PLAIN.turns[0].token_ids.tolist() + PLAIN.turns[1].token_ids.tolist()


def test_the_plain_class_trains_the_newline_behind_each_answer_and_ours_does_not(read):
    sampled = completions([PLAIN])
    newline = ord("\n")
    assert read["plain with lines"][0]["trained"] == [*sampled[0], newline, *sampled[1], newline]
    assert read["ours with lines"][0]["trained"] == [*sampled[0], *sampled[1]]
    assert read["plain with lines"][0]["ids"] == read["ours with lines"][0]["ids"]


def test_the_plain_class_refuses_tools_and_says_so(read):
    assert "Tools should either be a JSON schema" in read["refused"]


def test_our_class_trains_every_sampled_token_once(read):
    without_ids = [*b"Rain.", 260]
    assert joined([row["trained"] for row in read["ours"]]) == joined([*completions(ROLLOUTS), without_ids])
    assert [bytes(row["trained"][:-1]) for row in read["ours"][-1:]] == [b"Sun."]


def test_our_class_has_the_ids_that_the_server_had(read):
    expected = [one.input_ids.tolist() for one in art_otel.batches(ROLLOUTS, advantage=None).sequences()]
    assert all(ids in [row["ids"] for row in read["ours"]] for ids in expected)


def test_tools_and_arguments_have_their_own_keys(read):
    tools, messages = read["tools"]
    expected = [list(talk.tools) or None for talk in message_batches(ROLLOUTS).examples()]
    assert tools == expected
    assert [LOOK_UP, OTHER_TOOL] in tools
    assert messages[2]["tool_calls"][0]["function"] == {"name": "look_up", "arguments": {"city": "Zürich"}}
    assert messages[0].keys() == {"role", "content"}


def sequences() -> list:
    return list(art_otel.batches(ROLLOUTS, advantage="grpo_sample").sequences())


def test_the_data_proto_holds_the_rollouts(read):
    data, expected = read["rollouts"], sequences()
    tensors = {name: np.array(tensor) for name, tensor in data["tensors"].items()}
    assert {len(tensor) for tensor in tensors.values()} == {len(expected)}
    assert data["names"]["rollout_id"] == [one.rollout_id for one in expected]
    assert data["names"]["uid"] == [
        f"{one.group_id} of step 3" if one.group_id else f"rollout {one.rollout_id} of trace {TRACE}"
        for one in expected
    ]
    assert data["names"]["policy_version"] == ["7"] * len(expected)
    for row, sequence in enumerate(expected):
        valid = tensors["attention_mask"][row].astype(bool)
        start, end = sequence.completions[0].start, sequence.completions[-1].end
        assert tensors["input_ids"][row][valid].tolist() == sequence.input_ids[:end].tolist()
        assert tensors["position_ids"][row][valid].tolist() == list(range(end))
        own = slice(0, end - start)
        assert tensors["responses"].shape == (len(expected), 64)
        assert tensors["responses"][row][own].tolist() == sequence.input_ids[start:end].tolist()
        assert tensors["response_mask"][row][own].tolist() == sequence.loss_mask[start:end].astype(int).tolist()
        assert tensors["rollout_log_probs"][row][own].tolist() == sequence.logprobs[start:end].tolist()
        assert tensors["advantages"][row][own].tolist() == sequence.advantages[start:end].tolist()
        assert tensors["rm_scores"][row].sum() == sequence.reward
        assert tensors["rm_scores"][row][end - start - 1] == sequence.reward
        for name in ("response_mask", "rollout_log_probs", "advantages", "rm_scores"):
            assert not tensors[name][row][end - start :].any()


def test_verl_computes_advantages_over_the_rows_of_a_group(read):
    expected = sequences()
    tensors = {name: np.array(tensor) for name, tensor in read["rollouts"]["tensors"].items()}
    rewards = np.array([one.reward for one in expected if one.group_id == "g"])
    spread = rewards.std(ddof=1) + 1e-6
    for row, sequence in enumerate(expected):
        if sequence.group_id == "g":
            advantage = (sequence.reward - rewards.mean()) / spread * tensors["response_mask"][row]
            np.testing.assert_allclose(read["rollouts"]["advantages"][row], advantage, atol=1e-5)


def test_advantages_by_the_names_of_verl_are_those_of_verl(read):
    # Of four tokens a completion, verl's variance divides by 4 n - 1 where ours divides by 4 n.
    for groups, theirs in zip(GROUPS, read["over groups"], strict=True):
        members = sum(map(len, groups))
        of_tokens = math.sqrt((4 * members - 1) / (4 * members))
        np.testing.assert_allclose(np.concatenate([rloo(one) for one in groups]), theirs["rloo"], rtol=1e-6)
        for name in ("reinforce_plus_plus", "reinforce_plus_plus_baseline"):
            ours = np.concatenate(ADVANTAGES_OVER_GROUPS[name].formula(groups))
            np.testing.assert_allclose(ours * of_tokens, theirs[name], rtol=1e-5, atol=1e-7)


def test_prompts_are_one_a_group(read):
    first, *others = read["prompts"]
    assert first["raw_prompt"] == [
        {"role": "system", "content": SYSTEM.content},
        {"role": "user", "content": QUESTION.content},
    ]
    assert [row["data_source"] for row in read["prompts"]] == ["weather"] * 3
    assert [row["index"] for row in read["prompts"]] == [0, 1, 2]
    assert first["extra_info"]["group_id"] == "g"
    assert [row["extra_info"]["rollout_id"] for row in others] == ["r-without-logprobs", "r-forked"]
    assert first["reward_model"] == {"style": "rule", "ground_truth": None}


def test_the_samples_prompts_are_what_the_tokenizer_says():
    assert PLAIN.calls[1].prompt_token_ids.tolist() == prompt_ids(PLAIN_TALK)


def test_without_advantages_there_are_none(tmp_path):
    report = export(ROLLOUTS, "verl", tmp_path, format="rollouts", advantage=None)
    assert report.records == len(list(art_otel.batches(ROLLOUTS, advantage=None).sequences()))
