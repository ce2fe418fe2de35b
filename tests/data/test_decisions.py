"""What is decided over columns is what batches build: of generated trajectories, and of all recordings."""

import re
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

import art_otel
from art_otel.calls import Logprobs, Usage
from art_otel.data import reward_function
from art_otel.data.decisions import RolloutDecision, SequenceCounts
from art_otel.data.sequences import TokenSequence
from art_otel.data.sources import list_chunks
from art_otel.errors import UsageError
from art_otel.store import Wanted, read_trajectories
from art_otel.trajectories import Trajectory, Turn
from tests.conversions import RECORDINGS, convert_files
from tests.data.batch_options import laws, options
from tests.data.token_rollouts import rollouts, stored, talk
from tests.data.tokenizers import CHATML, bpe
from tests.examples import examples
from tests.trajectories.calls import with_sampled

UNTRAINED = [None, None, None, "failed", "scrubbed", "stream broke"]
COUNTED = [
    {},
    {"stream": True},
    {"stream": True, "tools": ()},
    {"stream": True, "tools": ({"a": 1},)},
    {"stream": True, "tools": ({"a": 1},), "usage": Usage(output_tokens=1)},
    {"stream": True, "tools": ({"b": 1},), "usage": Usage(input_tokens=1)},
]
PARAMETERS = [
    {},
    {},
    {"temperature": 0.5},
    {"top_p": 0.5, "temperature": 0},
    {"allowed_token_ids": [1]},
    {"tool_choice": "required"},
]
MODES = [None, "raw", "raw", "tempered", "processed"]
FURTHER = st.fixed_dictionaries(
    {},
    optional={
        "constrained": st.just("mask"),
        "images": st.just("placeholders"),
        "context_exceeded": st.sampled_from(["mask", "drop"]),
        "closed_streams": st.just("train"),
        "token_facts": st.just("sampling_mask"),
        "token_rewards": st.sampled_from(["reward", {"a": 2.0}]),
        "advantage": st.sampled_from(["grpo_batch", "reinforce_plus_plus", "reinforce_plus_plus_baseline"]),
        "training_step": st.sampled_from([1, [None, 2]]),
        "models": st.sampled_from(["*", "policy-*", "!judge", ["policy-*", "!*-2"], "nobody"]),
        "agents": st.sampled_from(["*", "planner", "!planner", ["worker-*", "!*-1"]]),
        "length": st.sampled_from(["keep", "mask", "drop"]),
    },
)
MODELS = [[None], ["policy-1"], ["policy-1", "policy-2"], ["policy-1", "judge", None]]
"""The models of a rollout: unknown, one, versions of one policy, and a judge beside it."""


@st.composite
def varied(draw, one: Trajectory) -> Trajectory:
    """The trajectory with calls of several models and agents, marked, constrained or cut ones among them.

    Completions are untrained or lack logprobs.
    """
    turns = []
    for turn in one.turns:
        size = len(turn.token_ids or ())
        some = st.lists(st.sampled_from([-0.5, 0.0, float("nan")]), min_size=size, max_size=size)
        logprobs = draw(st.none() | some | st.just([0.0] * size))
        known = None if turn.token_ids is None or logprobs is None else Logprobs.of(logprobs)
        verdict, reason = draw(st.sampled_from(UNTRAINED)), draw(st.sampled_from(["stop", "stop", "length", None]))
        turns.append({"logprobs": known, "tokens_untrained": verdict, "finish_reason": reason})
    position = {(turn.call, turn.choice): at for at, turn in enumerate(one.turns)}
    one = with_sampled(one, lambda turn: turns[position[turn.call, turn.choice]])
    models = draw(st.sampled_from(MODELS))
    calls = [
        structs.replace(
            call,
            parameters=draw(st.sampled_from(PARAMETERS)),
            request_model=draw(st.sampled_from(models)),
            response_model=draw(st.sampled_from([None, models[0]])),
            agent=draw(st.sampled_from([None, "planner", "worker-1", "worker-2"])),
            marked_untrained=draw(st.sampled_from([None, None, None, "judge"])),
            logprobs_mode=draw(st.sampled_from(MODES)),
            media=draw(st.sampled_from([(), (), ("image",)])),
            error=draw(st.sampled_from([None, None, None, "it failed"])),
            failure=draw(st.sampled_from([None, "context exceeded"])),
            closed_by_app=draw(st.sampled_from([None, "left"])),
            **draw(st.sampled_from(COUNTED)),
        )
        for call in one.calls
    ]
    return replace(one, calls=tuple(calls), training_step=draw(st.sampled_from([None, 1, 2])))


def check(source: object, **chosen) -> None:
    """Batches build the sequences that were decided, whose arrays have what is counted of them."""
    chosen = {name: value for name, value in chosen.items() if value is not None or name != "training_step"}
    made = art_otel.batches(source, **chosen)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of rollouts without a final reward; the report has them
        decisions = made.decision_columns()
        report = made.report
        assert ("several models" in decisions.skipped) == (made.problem is not None)
        if made.problem is not None:
            with pytest.raises(UsageError, match=re.escape(made.problem)):
                list(art_otel.batches(source, **chosen).decisions())
            return
        whole = art_otel.batches(source, **chosen)
        verdicts = list(whole.decisions())
        assert whole.report == report
        built = iter(list(whole.sequences_by_trajectory()))
    assert whole.report == report
    assert decisions.skipped == [verdict.skipped for verdict in verdicts]
    trajectories = [one for chunk in list_chunks(source).chunks for one in chunk.read(Wanted())]
    for trajectory, verdict, decided in zip(trajectories, verdicts, decisions.each(), strict=True):
        sequences = next(built) if decided.sequences else []
        assert [counted(one, trajectory, decided) for one in sequences] == decided.sequences
        trained = [span.turn for one in sequences for span in one.completions]
        assert len(set(trained)) == len(trained)
        reasons = tuple(turn.skipped for turn in decided.turns)
        expected = [turn for turn, reason in enumerate(reasons) if reason is None and verdict.completions]
        assert sorted(trained) == expected
        assert verdict.completions in ((), reasons)
        assert (verdict.skipped is None) == bool(sequences)
        assert {one.rollout_id for one in sequences} <= {verdict.rollout_id}
    assert next(built, None) is None


def logprobs_of(trajectory: Trajectory, turn: Turn) -> tuple[bool, str | None]:
    """Whether the logprobs of a completion are all zero though nothing forced it; of which distribution they are.

    The second is None where it was sampled from the policy's own.
    """
    call = trajectory.calls[turn.call]
    if turn.logprobs is None or call.has_masked_logprobs:
        return False, None
    numbers = np.frombuffer(turn.logprobs.data, "<f4")
    is_zero = len(numbers) > 8 and not numbers.any() and not (call.is_constrained or call.sampling.is_greedy)
    is_altered = call.sampling.is_altered and not np.isnan(numbers).all()
    return is_zero, (call.sampling.logprobs_mode or "unknown") if is_altered else None


def counted(sequence: TokenSequence, trajectory: Trajectory, decided: RolloutDecision) -> SequenceCounts:
    """What the arrays of a sequence come to."""
    mask, gains = sequence.loss_mask, sequence.advantages
    rewards = tuple(decided.turns[span.turn].reward for span in sequence.completions)
    assert sequence.rewards == rewards
    assert not any(mask[end] for end in range(sequence.completions[-1].end, len(sequence)))
    assert sequence.rollout_tokens == sum(one.trained_tokens for one in decided.sequences)
    turns = [trajectory.turns[span.turn] for span in sequence.completions]
    of_logprobs = [] if sequence.retokenized else [logprobs_of(trajectory, turn) for turn in turns]
    return SequenceCounts(
        tokens=len(sequence),
        trained_tokens=int(mask.sum()),
        completions=len(sequence.completions),
        without_logprobs=int(np.isnan(sequence.logprobs).sum()),
        zero_advantage_tokens=0 if gains is None else int((gains[mask] == 0).sum()),
        zero_logprobs=sum(is_zero for is_zero, _ in of_logprobs),
        without_stop_token=sum(not span.is_end_known for span in sequence.completions),
        retokenized=int(sequence.retokenized),
        altered=tuple(mode for _, mode in of_logprobs if mode is not None),
    )


@pytest.mark.long
@settings(laws, max_examples=examples(150))
@given(rollouts(storable=True), options(), FURTHER, st.data())
def test_of_generated_trajectories(found, chosen, further, data):
    found = [data.draw(varied(one)) for one in found]
    check(found, **chosen | further)
    with stored(found) as folder:
        check(folder, **chosen | further)


def test_of_all_recordings(tmp_path: Path):
    dumps = sorted(RECORDINGS.rglob("*.jsonl"))
    found, _ = convert_files(tmp_path, *dumps)
    assert len(found) > 20
    for chosen in (
        {},
        {"advantage": None, "allow_incomplete": True, "status": None},
        {"credit": "step_reward", "allow_incomplete": True, "status": None, "constrained": "mask"},
        {"credit": "step_reward", "agents": ["planner", "worker-1"], "allow_incomplete": True, "status": None},
        {"credit": "call_reward", "models": "m*", "length": "drop", "context_exceeded": "mask", "status": "ok"},
        {"max_tokens": 60, "overflow": "truncate", "advantage": None, "allow_incomplete": True},
    ):
        check(tmp_path, **chosen)
    columns = art_otel.batches(tmp_path).decision_columns()
    sizes = [[turn.token_ids and len(turn.token_ids) for turn in one.turns] for one in read_trajectories(tmp_path)]
    assert columns.counted.tolist() == [None not in of_row for of_row in sizes]
    assert columns.sampled.tolist() == [sum(filter(None, of_row)) for of_row in sizes]
    assert 0 < columns.counted.sum() < len(sizes)


def test_streams_with_tools_whose_ids_nobody_counted_are_trained_and_said(tmp_path: Path):
    told = talk("r", *[1] * len(COUNTED))
    calls = tuple(structs.replace(call, **known) for call, known in zip(told.calls, COUNTED, strict=True))
    art_otel.write_trajectories([replace(told, calls=calls), talk("s", 2)], tmp_path)
    batches = art_otel.batches(tmp_path, advantage=None)
    assert sum(int(batch.loss_mask.sum()) for batch in batches) == len(COUNTED) + 2
    assert (batches.report.trained_completions, batches.report.uncounted_completions) == (len(COUNTED) + 1, 2)
    check(tmp_path, advantage=None)
    check(tmp_path, advantage=None, max_tokens=3, overflow="truncate")


def test_of_long_completions_whose_logprobs_are_all_zero(tmp_path: Path):
    def zeros(rollout_id: str, size: int, **fields) -> Trajectory:
        told = talk(rollout_id, size, reward=1.0, group_id="g")
        told = with_sampled(told, lambda _: {"logprobs": Logprobs.of([0.0] * size)})
        return replace(told, calls=(structs.replace(told.calls[0], **fields),))

    found = [
        zeros("few", 8),
        zeros("many", 9),
        zeros("greedy", 9, parameters={"temperature": 0}),
        zeros("forced", 9, parameters={"tool_choice": "required"}),
        zeros("tempered", 20, parameters={"temperature": 0.5}, logprobs_mode="tempered"),
        zeros("seen", 9, media=("image",)),
    ]
    art_otel.write_trajectories(found, tmp_path)
    for chosen in ({}, {"images": "placeholders"}, {"max_tokens": 10, "overflow": "truncate", "advantage": None}):
        check(tmp_path, **chosen)
    made = art_otel.batches(tmp_path)
    made.decision_columns()
    report = made.report
    assert report.zero_logprobs == 2
    assert report.altered_sampling == {"unknown": 1, "tempered": 1}


def test_of_several_runs_and_of_parts_that_are_not_opened(tmp_path: Path):
    def run(name: str, *rewards: float, **fields) -> list[Trajectory]:
        told = (talk(f"r-{at}", 1, group_id="task", reward=one, **fields) for at, one in enumerate(rewards))
        return [replace(one, trace_id=f"{name}-{at}") for at, one in enumerate(told)]

    art_otel.write_trajectories([*run("a", 0.0, 2.0, 2.0, split="train"), talk("alone", 2)], tmp_path / "a")
    art_otel.write_trajectories(run("b", 10.0, 14.0, split="val"), tmp_path / "b")
    art_otel.write_trajectories(run("a", 0.0, 2.0, split="train"), tmp_path / "a-again")
    sources = [tmp_path / name for name in ("a", "b", "a-again")]
    for chosen in (
        {},
        {"split": "train"},
        {"split": "val", "training_step": 3},
        {"zero_variance": "drop"},
        {"rollouts": ["r-1"]},
    ):
        check(sources, **chosen)


def test_where_nobody_chose_a_model_columns_say_what_whole_trajectories_refuse(tmp_path: Path):
    def asked(*models: str, **fields) -> Trajectory:
        one = talk("-".join(models), *[2] * len(models), group_id="g", **fields)
        named = zip(one.calls, models, strict=True)
        return replace(one, calls=tuple(structs.replace(call, request_model=model) for call, model in named))

    art_otel.write_trajectories(
        [asked("policy", reward=1.0), asked("policy", "judge", reward=0.0), asked("a", "b", status="error")], tmp_path
    )
    made = art_otel.batches(tmp_path)
    columns = made.decision_columns()
    with pytest.raises(UsageError, match=r"1 rollout has .*'policy': 1, 'judge': 1") as refused:
        list(art_otel.batches(tmp_path).decisions())
    assert made.problem == str(refused.value)
    assert columns.skipped == ["status", None, "several models"]
    assert made.report.trajectories_skipped == {"several models": 1, "status": 1}
    assert columns.trained.tolist() == [0, 2, 0]
    for chosen in ("*", "policy", "!policy"):
        check(tmp_path, models=chosen)


def test_functions_of_users_are_asked_and_trajectories_in_memory_are_columns_too(tmp_path: Path):
    found = [talk("r", 2, 3, metrics={"score": 1.0}, group_id="g"), talk("s", 1, metrics={"score": 3.0}, group_id="g")]
    art_otel.write_trajectories(found, tmp_path)
    by_metric = reward_function(lambda one: one.metrics["score"], name="by score")
    for source in (found, tmp_path, [tmp_path, replace(found[0], trace_id="another")]):
        check(source, credit=by_metric, advantage="centered")
    assert art_otel.batches(tmp_path, credit=by_metric).decision_columns().advantages.round(3).tolist() == [-1, -1, 1]


def test_what_columns_cannot_tell_is_refused(tmp_path: Path):
    art_otel.write_trajectories([talk("r", 2, 3)], tmp_path)
    with pytest.raises(UsageError, match="tokenizer"):
        art_otel.batches(tmp_path, tokenizer=bpe(CHATML)).decision_columns()
    with pytest.raises(UsageError, match="max_tokens is 3"):
        art_otel.batches(tmp_path, advantage=None, max_tokens=3, overflow="raise").decision_columns()
