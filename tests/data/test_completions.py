"""Whose completions are trained, and how their sampling ended: one choice for tokens, messages, pairs and files."""

import json
from collections import Counter
from dataclasses import replace

import pytest
from msgspec import structs

import art_otel
from art_otel.calls import Gap
from art_otel.cli import main
from art_otel.data import Credit, call_reward, message_batches, preference_batches, step_reward
from art_otel.data.model_names import is_among, policy_name
from art_otel.data.selection import Selection
from art_otel.errors import UsageError
from art_otel.exporting import installed_exporters
from art_otel.trajectories import Trajectory, with_turns
from art_otel.trajectories.wholeness import count_gaps
from tests.data.rollouts import rollout
from tests.data.token_rollouts import judged, skip_reason, stored, talk
from tests.trajectories.calls import call, choice, with_sampled

COMPLETIONS = [
    ("policy", "planner", {}),
    ("policy", "worker-1", {}),
    ("policy", "worker-2", {"finish_reason": "length"}),
    ("judge-large", "judge", {}),
    ("policy", "judge", {"marked_untrained": "judge"}),
]
"""Model, agent and facts of the completions of a rollout."""


def sampled(rollout_id: str = "r", completions=COMPLETIONS, **fields) -> Trajectory:
    """A conversation of these completions, with two tokens each."""
    one = talk(rollout_id, *[2] * len(completions), **fields)
    calls = []
    for asked, (model, agent, facts) in zip(one.calls, completions, strict=True):
        reason = facts.get("finish_reason", "stop")
        choices = tuple(structs.replace(turn, finish_reason=reason) for turn in asked.choices)
        told = {"request_model": model, "agent": agent, "marked_untrained": facts.get("marked_untrained")}
        calls.append(structs.replace(asked, choices=choices, **told))
    return replace(one, calls=tuple(calls))


def trained(found, **options) -> list[int]:
    """Which completions batches train; each samples its own token."""
    tokens = [token for batch in art_otel.batches(found, **options) for token in batch.input_ids[batch.loss_mask]]
    return sorted({int(token) - 100 for token in tokens})


def imitated(found, **options) -> list[str]:
    """Which messages are fine-tuned on."""
    examples = message_batches(found, **options).examples()
    return [
        message["content"]
        for one in examples
        for message, is_its in zip(one.messages, one.train, strict=True)
        if is_its
    ]


CHOICES = [
    ({"models": "*"}, [0, 1, 2, 3], {"marked untrained": 1}),
    ({"models": ["policy"]}, [0, 1, 2], {"another model": 1, "marked untrained": 1}),
    ({"models": "pol*"}, [0, 1, 2], {"another model": 1, "marked untrained": 1}),
    ({"models": ["!judge-*"]}, [0, 1, 2], {"another model": 1, "marked untrained": 1}),
    ({"models": ["*", "!policy"]}, [3], {"another model": 3, "marked untrained": 1}),
    ({"agents": ["planner", "worker-*"]}, [0, 1, 2], {"another agent": 1, "marked untrained": 1}),
    ({"agents": ["worker-*", "!*-2"]}, [1], {"another agent": 3, "marked untrained": 1}),
    (
        {"models": "policy", "agents": "!planner"},
        [1, 2],
        {"another model": 1, "another agent": 1, "marked untrained": 1},
    ),
    (
        {"models": "policy", "length": "mask"},
        [0, 1],
        {"another model": 1, "marked untrained": 1, "cut at max_tokens": 1},
    ),
]


@pytest.mark.parametrize(("chosen", "kept", "skipped"), CHOICES)
def test_a_choice_is_the_same_for_tokens_messages_and_files(tmp_path, chosen, kept, skipped):
    found = [sampled(reward=1.0)]
    length = {"length": "keep", **chosen}
    batches = art_otel.batches(found, advantage=None, **chosen)
    assert trained(found, advantage=None, **chosen) == kept
    list(batches)
    assert batches.report.completions_skipped == skipped
    assert batches.report.trained_completions == len(kept)
    messages = message_batches(found, **length)
    list(messages)
    assert imitated(found, **length) == [f"a{number}" for number in kept]
    assert messages.report.completions_skipped == skipped
    report = art_otel.export(found, "openai", tmp_path / "openai", **length)
    assert report.skipped == {f"completions: {reason}": count for reason, count in skipped.items()}


TRAINED = [
    (one.exporter, file_format)
    for one in installed_exporters()
    if one.exporter is not None
    for file_format in one.exporter.formats
    if file_format.input != "preferences"
    and (one.name, file_format.name) not in {("tinker", "rollouts"), ("verl", "prompts")}
]
"""Formats with completions that are trained: not summaries of runs, and not prompts alone."""


@pytest.mark.parametrize(
    ("exporter", "file_format"), TRAINED, ids=[f"{one.name}-{other.name}" for one, other in TRAINED]
)
def test_each_exporter_says_what_a_choice_left_out(tmp_path, exporter, file_format):
    found = [sampled("r", group_id="g", reward=1.0), sampled("s", COMPLETIONS[:1], group_id="g", reward=0.0)]
    report = art_otel.export(found, exporter, tmp_path, format=file_format.name, models="policy", length="mask")
    assert report.trajectories_used == 2
    told = {**report.skipped, **report.changed}
    if exporter.name == "atif":  # its documents have every step, and say which are context
        assert told["completions that must not be trained, marked as copied context"] == 3
        return
    for reason in ("another model", "marked untrained", "cut at max_tokens"):
        assert told.get(reason, told.get(f"completions: {reason}")) == 1, told


def test_names_and_globs():
    assert is_among(None, None)
    assert [is_among(("a*",), name) for name in ("a", "ab", "b", None)] == [True, True, False, False]
    assert [is_among(("!a*",), name) for name in ("a", "ab", "b", None)] == [False, False, True, True]
    assert [is_among(("*", "!b"), name) for name in ("a", "b", None)] == [True, False, True]


def test_a_rollout_in_which_nothing_is_the_policys_says_why_once():
    found = [sampled("a", COMPLETIONS[:1]), sampled("b", COMPLETIONS[4:]), sampled("c", COMPLETIONS[3:])]
    batches = art_otel.batches(found, advantage=None, models="policy")
    list(batches)
    # Of the last one completion is a judge's and one is marked: the first of equally many counts.
    assert batches.report.trajectories_skipped == {"marked untrained": 2}
    messages = message_batches(found, agents="nobody")
    list(messages)
    assert messages.report.trajectories_skipped == {"another agent": 1, "marked untrained": 2}


# Several models, of which nobody chose.

BOTH = {"policy": 3, "judge-large": 1}


def refusals(found, dataset, tmp_path):
    """What each way of training does with these rollouts."""
    batches = art_otel.batches(found)
    return {
        "batches": lambda: list(batches),
        "len": lambda: len(art_otel.batches(found)),
        "count": art_otel.batches(found).count,
        "verdicts": lambda: list(art_otel.batches(found).decisions()),
        "sequences": lambda: list(art_otel.batches(found).sequences()),
        "message_batches": lambda: list(message_batches(found)),
        "preference_batches": lambda: list(preference_batches(found)),
        "export of messages": lambda: art_otel.export(dataset, "openai", tmp_path / "openai"),
        "export of tokens": lambda: art_otel.export(dataset, "skyrl", tmp_path / "skyrl"),
    }


def test_where_nobody_chose_a_model_nothing_is_guessed(tmp_path, capsys):
    found = [sampled("r", reward=1.0), sampled("s", COMPLETIONS[:2], reward=0.0)]
    with stored(found) as dataset:
        for way, ask in refusals(found, dataset, tmp_path).items():
            with pytest.raises(UsageError, match="1 rollout has completions of several models") as refused:
                ask()
            message = str(refused.value)
            assert "'policy': 3, 'judge-large': 1" in message, way
            assert 'models=["policy"]' in message
            assert 'models="*"' in message
        command = ["export", str(dataset), "--to", "openai", "-o", str(tmp_path / "cli")]
        assert main(command) == 2
        assert "'policy': 3, 'judge-large': 1" in capsys.readouterr().err
        assert main([*command, "--models", "policy", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["skipped"]["completions: another model"] == 1


@pytest.mark.parametrize(
    "models",
    [
        ["policy", "policy"],
        ["policy-v1", "policy-v2"],
        ["policy@7", "policy@8"],
        ["policy-step-7", "policy-step-12"],
        ["Qwen/Qwen3-8B", "qwen-lora-7"],
        ["qwen-lora-7", "qwen-lora-8"],
        ["openai/policy", "policy"],
        ["policy", None],
    ],
)
def test_versions_of_a_policy_and_adapters_of_a_base_are_one_model(models):
    if models[0] == "Qwen/Qwen3-8B":
        models = ["qwen", "qwen-lora-7"]
    found = [sampled("r", [(model, None, {}) for model in models])]
    assert trained(found, advantage=None) == [0, 1]


@pytest.mark.parametrize("models", [["gpt-5-mini", "gpt-5"], ["Qwen3-8B", "Qwen3-32B"], ["policy", "judge"]])
def test_other_names_are_other_models(models):
    assert len({policy_name(model) for model in models}) == 2
    with pytest.raises(UsageError, match="several models"):
        trained([sampled("r", [(model, None, {}) for model in models])], advantage=None)


def test_a_version_that_not_every_call_was_told_is_no_second_model():
    found = sampled("r", [("3f9a2c1", None, {}), ("3f9a2c1", None, {})])
    calls = (structs.replace(found.calls[0], policy_version="3f9a2c1"), found.calls[1])
    assert trained([replace(found, calls=calls)], advantage=None) == [0, 1]


def test_what_is_not_trained_anyway_is_no_second_model():
    """A judge that is marked, failed, or left out with its rollout asks for no choice."""
    judge = ("judge-large", "judge", {})
    assert trained(
        [sampled("r", [COMPLETIONS[0], ("judge-large", "judge", {"marked_untrained": "judge"})])], advantage=None
    ) == [0]
    failed = sampled("r", [COMPLETIONS[0], judge])
    turns = (failed.turns[0], structs.replace(failed.turns[1], tokens_untrained="failed", text_untrained="failed"))
    assert trained([with_turns(failed, turns)], advantage=None) == [0]
    assert imitated([with_turns(failed, turns)]) == ["a0"]
    assert trained(
        [sampled("r", [COMPLETIONS[0], judge], status="error"), sampled("s", COMPLETIONS[:1])], advantage=None
    ) == [0]


# Credits and baselines.


@pytest.mark.parametrize("gives", [[None, 1.0], [1.0, None], [1.0, 1.0]])
@pytest.mark.parametrize("per", ["rollout", "call"])
def test_a_credit_of_none_leaves_its_turn_out(gives, per):
    found = [sampled("r", COMPLETIONS[:2], group_id="g"), sampled("s", COMPLETIONS[:1], group_id="g")]

    def credit(trajectory):
        return gives if trajectory.rollout_id == "r" else [0.0]

    batches = art_otel.batches(found, credit=Credit(name="test", per=per, rewards=credit), advantage="centered")
    list(batches)
    assert batches.report.completions_skipped == +Counter({"no reward": gives.count(None)})
    assert batches.report.trained_completions == 3 - gives.count(None)


def test_a_credit_that_gives_the_judge_nothing_has_chosen():
    found = [sampled("r", [COMPLETIONS[0], ("judge-large", "judge", {})], group_id="g")]
    credit = Credit(
        name="test",
        per="rollout",
        rewards=lambda one: [1.0 if one.calls[turn.call].request_model == "policy" else None for turn in one.turns],
    )
    assert trained(found, credit=credit) == [0]


def advantages(batch) -> list[list[float]]:
    """Those of the trained tokens of each row."""
    return [row[mask].tolist() for row, mask in zip(batch.advantages, batch.loss_mask, strict=True)]


def test_what_is_not_the_policys_counts_in_no_baseline():
    """The judge's calls had rewards of their own, which would move what the policy's are compared with."""
    completions = [("policy", "p", {}), ("judge-large", "j", {}), ("policy", "p", {"marked_untrained": "judge"})]
    found = [
        sampled(
            name, completions, group_id="g", steps=(0, 1, 2),
            rewards=tuple(judged(value, call=at) for at, value in enumerate(values)),
        )
        for name, values in (("r", (0.0, 9.0, 5.0)), ("s", (1.0, -9.0, 7.0)))
    ]  # fmt: skip
    (batch,) = art_otel.batches(found, credit=call_reward(), advantage="centered", models="policy")
    assert advantages(batch) == [[-0.5] * 2, [0.5] * 2]
    of_steps = [
        replace(one, rewards=tuple(judged(reward.value, step=at) for at, reward in enumerate(one.rewards)))
        for one in found
    ]
    (batch,) = art_otel.batches(of_steps, credit=step_reward(), advantage="centered", models="policy")
    assert advantages(batch) == [[-0.5] * 2, [0.5] * 2]


BETWEEN = {
    "refused": call(1, "q a q2", None, request_model="policy", error_type="RateLimitError"),
    "broken off": call(1, "q a q2", [0, 100, 2], choice("b", [102]), request_model="policy", error_type="Timeout"),
    "a judge's": call(1, "rate", [7], choice("0.5", [9]), request_model="judge"),
    "marked": call(1, "rate", [7], choice("0.5", [9]), request_model="policy", marked_untrained="judge"),
}


@pytest.mark.parametrize("between", BETWEEN.values(), ids=BETWEEN)
def test_a_call_is_compared_with_that_at_its_place_among_those_that_the_policy_completed(between):
    """What failed before it was asked again, or is not the policy's, moves none of the calls behind it."""

    def judged_calls(rollout_id, first, second, *others):
        calls = [
            call(0, "q", [0], choice("a", [100]), request_model="policy"),
            *others,
            call(2, "q a q2", [0, 100, 2], choice("b", [102]), request_model="policy"),
        ]
        rewards = (judged(first, call=0), judged(second, call=2))
        return rollout(calls, rollout_id, group_id="g", rewards=rewards)

    found = [judged_calls("r", 1.0, 10.0), judged_calls("s", 2.0, 20.0, between)]
    with stored(found) as folder:
        for sources in (found, folder):
            (batch,) = art_otel.batches(sources, credit=call_reward(), advantage="centered", models="policy")
            assert sorted(batch.advantages[batch.loss_mask].tolist()) == [-5.0, -0.5, 0.5, 5.0]


def test_a_rollout_that_is_marked_counts_in_no_baseline_and_in_no_file(tmp_path):
    """A nested judge is a trajectory of its own once it was converted."""
    marked = ("policy", None, {"marked_untrained": "judge"})
    found = [
        sampled("r", COMPLETIONS[:1], group_id="g", reward=0.0),
        sampled("s", COMPLETIONS[:1], group_id="g", reward=1.0),
        sampled("judge", [marked, marked], group_id="g", reward=100.0),
    ]
    batches = art_otel.batches(found, advantage="centered")
    (batch,) = batches
    assert advantages(batch) == [[-0.5] * 2, [0.5] * 2]
    assert batches.report.trajectories_skipped == {"marked untrained": 1}
    assert sorted(imitated(found)) == ["a0", "a0"]
    for exporter, file_format in TRAINED:
        report = art_otel.export(found, exporter, tmp_path / exporter.name, format=file_format.name)
        assert report.trajectories_skipped["marked untrained"] == 1, (exporter.name, file_format.name)
        assert report.trajectories_used == 2


# Answers that were cut at max_tokens, or by a content filter.

CUTS = {"length": "cut at max_tokens", "content_filter": "cut by a filter"}


@pytest.mark.parametrize(("finish_reason", "reason"), CUTS.items())
@pytest.mark.parametrize(("length", "kept"), [("keep", [0, 1]), ("mask", [0]), ("drop", [])])
def test_length_of_tokens(length, kept, finish_reason, reason):
    cut = sampled("r", [COMPLETIONS[0], ("policy", None, {"finish_reason": finish_reason})], group_id="g", reward=1.0)
    whole = sampled("s", COMPLETIONS[:1], group_id="g", reward=0.0)
    batches = art_otel.batches([cut, whole], advantage="centered", length=length)
    (batch,) = batches
    assert batches.report.completions_skipped == ({reason: 1} if length == "mask" else {})
    assert batches.report.trajectories_skipped == ({reason: 1} if length == "drop" else {})
    assert trained([cut], advantage=None, length=length) == kept
    # A rollout that is left out counts in no baseline; a completion that is only context takes nothing from it.
    assert sorted(set(batch.advantages[batch.loss_mask].tolist())) == ([0.0] if length == "drop" else [-0.5, 0.5])


@pytest.mark.parametrize(("finish_reason", "reason"), CUTS.items())
def test_length_of_messages_pairs_and_files(tmp_path, finish_reason, reason):
    cut = sampled("r", [COMPLETIONS[0], ("policy", None, {"finish_reason": finish_reason})], group_id="g", reward=1.0)
    worse = sampled("s", [COMPLETIONS[0], COMPLETIONS[0]], group_id="g", reward=0.0)
    found = [cut, worse]
    for length, messages in (("keep", ["a0", "a1", "a0", "a1"]), ("mask", ["a0", "a0", "a1"]), ("drop", ["a0", "a1"])):
        assert imitated(found, length=length) == messages
    assert imitated(found) == ["a0", "a0", "a1"]
    report = art_otel.export(found, "openai", tmp_path / "m")
    assert report.skipped == {f"completions: {reason}": 1}
    report = art_otel.export(found, "openai", tmp_path / "k", length="keep")
    assert not report.skipped
    report = art_otel.export(found, "openai", tmp_path / "d", length="drop")
    assert report.trajectories_skipped == {reason: 1}


def test_a_refusal_of_claude_is_an_answer():
    refused = sampled(completions=[("claude", None, {"finish_reason": "refusal"})])
    assert imitated([refused]) == ["a0"]
    assert trained([refused], advantage=None, length="mask") == [0]


def said(rollout_id: str, answer: str, reward: float, **facts) -> Trajectory:
    """A rollout of one answer to the question that all have."""
    one = sampled(rollout_id, [("policy", None, facts)], group_id="g", reward=reward)
    return with_sampled(one, lambda turn: {"message": structs.replace(turn.message, content=answer)})


def test_pairs_are_of_what_is_chosen():
    good, bad = said("good", "yes", 1.0), said("bad", "no", 0.0)
    cut, marked = said("cut", "ye", 2.0, finish_reason="length"), said("marked", "hm", -1.0, marked_untrained="judge")
    filtered = said("filtered", "y", 3.0, finish_reason="content_filter")
    pairs = preference_batches([good, bad, cut, filtered, marked])
    ((pair,),) = pairs
    assert (pair.chosen_rollout_id, pair.rejected_rollout_id) == ("good", "bad")
    assert pairs.report.trajectories_skipped == {"cut at max_tokens": 1, "cut by a filter": 1, "marked untrained": 1}
    pairs = preference_batches([good, bad, cut], length="keep")
    ((pair,),) = pairs
    assert pair.chosen_rollout_id == "cut"
    pairs = preference_batches([good, bad], models="other")
    assert not list(pairs)
    assert pairs.report.trajectories_skipped == {"another model": 2}


def test_what_a_judge_met_says_nothing_of_the_policy():
    """Its outage ends no rollout, and what its recorder lost makes none incomplete."""
    late = {"start_ns": 10**18, "end_ns": 10**18 + 1, "error": "down", "choices": None}
    judge = structs.replace(talk("j", 2).calls[0], marked_untrained="judge", **late)
    policy = talk("r", 2)
    both = replace(policy, calls=(*policy.calls, judge))
    assert both.end is None
    alone = replace(both, calls=(*policy.calls, structs.replace(judge, marked_untrained=None)))
    assert alone.end == "failed call"
    masked = (Gap(kind="masked", field="call", evidence="[REDACTED]"),)
    calls = [structs.replace(judge, gaps=masked), structs.replace(judge, gaps=masked, marked_untrained=None)]
    assert [count_gaps([call]) for call in calls] == [{}, {"content masked": 1}]


def policys(number, **fields):
    one = call(number, f"q{number}", [number], choice("a", [100 + number]), request_model="policy")
    return structs.replace(one, **fields)


def judges(number, **fields):
    one = call(number, f"j{number}", [number], choice("1", [200]), request_model="judge", agent="critic")
    return structs.replace(one, **fields)


ENDINGS = [
    ([policys(0), judges(1, error_type="Timeout")], {}),
    ([policys(0), judges(1, error_type="Timeout", failure="context exceeded")], {}),
    ([policys(0), policys(1, error_type="Timeout"), judges(2)], {"ended on a failed call": 1}),
    ([policys(0, error_type="Timeout"), policys(1), judges(2)], {}),
    # Only another call of the policy's that was faster makes a cancelled one the end of nothing.
    (
        [policys(0), judges(1, end_ns=7), policys(2, end_ns=9, error_type="CancelledError")],
        {"ended on a failed call": 1},
    ),
    ([policys(0), policys(1, end_ns=7), policys(2, end_ns=9, error_type="CancelledError"), judges(3)], {}),
]


@pytest.mark.parametrize("chosen", [{"models": "policy"}, {"agents": "!critic"}])
@pytest.mark.parametrize(("calls", "skipped"), ENDINGS)
def test_calls_that_are_not_chosen_do_not_say_how_the_policy_ended(calls, skipped, chosen):
    """In memory and in files, as if they were marked."""
    marked = [structs.replace(one, marked_untrained=one.agent and "judge") for one in calls]
    for found, options in (([rollout(calls, reward=1.0)], chosen), ([rollout(marked, reward=1.0)], {})):
        with stored(found) as folder:
            for sources in (found, folder):
                batches = art_otel.batches(sources, advantage=None, context_exceeded="drop", **options)
                assert len(list(batches)) == (not skipped)
                assert batches.report.trajectories_skipped == skipped
                assert not batches.report.context_exceeded


MASKED = (Gap(kind="masked", field="prompt", evidence="[REDACTED]"),)
CUT = (Gap(kind="cut", field="prompt", evidence="..."),)
GAPS = [
    ([policys(0), judges(1, gaps=MASKED)], None),
    ([policys(0), judges(1, gaps=(*MASKED, *CUT)), policys(2, gaps=CUT)], "incomplete: content cut"),
    ([policys(0, gaps=MASKED), judges(1, gaps=MASKED)], "incomplete: content masked"),
    ([policys(0, gaps=MASKED), judges(1)], "incomplete: content masked"),
    ([policys(0), judges(1, gaps=MASKED), policys(2, gaps=MASKED, marked_untrained="user")], None),
]


@pytest.mark.parametrize("chosen", [{"models": "policy"}, {"agents": "!critic"}])
@pytest.mark.parametrize(("calls", "reason"), GAPS)
def test_what_is_lost_of_calls_that_are_not_chosen_is_missing_nowhere(calls, reason, chosen):
    """In memory and in files. What is missing elsewhere counts whoever is chosen."""
    for others in ({}, {"spans missing": 1}):
        one = rollout(calls, reward=1.0, incomplete_reasons={**count_gaps(calls), **others})
        skipped = reason or (others and "incomplete: spans missing") or None
        with stored([one]) as folder:
            for sources in ([one], folder):
                found = message_batches(sources, **chosen)
                assert sum(map(len, found)) == (0 if skipped else 1)
                assert found.report.trajectories_skipped == ({skipped: 1} if skipped else {})
                assert not list(message_batches(sources, models="*"))


@pytest.mark.parametrize(
    ("one", "other", "is_one"),
    [
        ("policy-v11", "policy-v12", True),
        ("global_step_100", "global_step_200", True),
        ("runs/checkpoint-100", "runs/checkpoint-200", True),
        ("openai/gpt-4o", "gpt-4o", True),
        ("Qwen3-8B", "Qwen3-8B-lora-7", True),
        ("gpt-4", "gpt-5", False),
        ("/models/policy/actor/huggingface", "/models/judge/actor/huggingface", False),
    ],
)
def test_which_names_are_one_policy(one, other, is_one):
    assert (policy_name(one) == policy_name(other)) is is_one


def test_versions_of_the_policy_that_was_asked_for_are_one_model():
    found = [sampled(completions=[("policy-12", None, {}), ("policy-13", None, {})])]
    assert trained(found, advantage=None, policy_version="policy-13", max_staleness=2) == [0, 1]
    with pytest.raises(UsageError, match="several models"):
        trained(found, advantage=None)


@pytest.mark.parametrize("status", ["ok", "error"])
def test_a_rollout_whose_context_was_exceeded_is_valid_also_where_its_function_raised(tmp_path, status):
    ended = talk("r-0", 2, group_id="g", reward=0.0, status=status)
    failed = structs.replace(ended.calls[0], failure="context exceeded", error="too long", choices=None)
    late = structs.replace(failed, span_id="f" * 16, start_ns=10**18, end_ns=10**18 + 1)
    ended = replace(ended, calls=(*ended.calls, late))
    found = [ended, talk("r-1", 2, group_id="g", reward=1.0), talk("r-2", 2, group_id="g", reward=1.0, status="error")]
    art_otel.write_trajectories(found, tmp_path)
    for source in (found, tmp_path):
        batches = art_otel.batches(source, advantage="centered")
        assert sorted(float(batch.advantages[row].min()) for batch in batches for row in range(2)) == [-0.5, 0.0]
        assert batches.report.trajectories_skipped == {"status": 1}
    assert art_otel.batches(tmp_path).decision_columns().skipped == [None, None, "status"]


def test_dropping_a_cut_rollout_does_not_depend_on_what_is_masked():
    cut = sampled(completions=[("m", None, {"finish_reason": "length"})])
    ended = replace(cut, calls=(structs.replace(cut.calls[0], failure="context exceeded", error="too long"),))
    assert ended.end == "context exceeded"
    for exceeded in ("keep", "mask"):
        assert skip_reason(Selection(length="drop", context_exceeded=exceeded), ended) == "cut at max_tokens"
