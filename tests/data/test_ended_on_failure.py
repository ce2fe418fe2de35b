"""A rollout that ended in an outage tells nothing of a policy: batches leave it out, and say so."""

import pytest
from msgspec import structs

import art_otel
from art_otel.calls import Message, TokenIds
from art_otel.data import message_batches, preference_batches
from art_otel.trajectories import Trajectory
from art_otel.trajectories.lineage import recorded_call
from tests.conversions import convert_spans
from tests.data.rollouts import assistant, call, rollout, user
from tests.dumps import chat_span, make_span

LEFT_OUT = {"ended on a failed call": 1}
EMPTY = {"no token ids", "nothing sampled"}


def good(number: int, **fields):
    return call(number, [user("a")], assistant(f"b{number}"), **fields)


def failed(number: int, **fields):
    return call(number, [user("a")], error_type="Timeout", **fields)


def skipped(*calls, **options) -> set[str]:
    """What batches and messages leave out of a rollout of these calls, which is the same."""
    one = rollout(calls, reward=1.0)
    assert one.complete
    found = art_otel.batches([one], **options)
    messages = message_batches([one], **options)
    assert len(list(found)) == 0  # there are no token ids
    list(messages)
    skipped, of_messages = (set(one.report.trajectories_skipped) - EMPTY for one in (found, messages))
    assert skipped == of_messages
    return skipped


@pytest.mark.parametrize(
    "calls", [[good(0), failed(1)], [failed(0)], [failed(0), good(1), failed(2)]], ids=["last", "only", "again"]
)
def test_a_rollout_in_which_no_call_completed_after_its_last_failure_is_left_out(calls):
    assert skipped(*calls) == set(LEFT_OUT)
    assert skipped(*calls, allow_incomplete=True) == set()


def group_of_three(**of_first) -> list[Trajectory]:
    """Rollouts with the rewards 0, 1 and 2, of which the first outgrew its context."""
    (choice,) = good(0).choices
    sampled = structs.replace(
        good(0),
        prompt_token_ids=TokenIds.of([1, 2]),
        choices=(structs.replace(choice, token_ids=TokenIds.of([7])),),
    )
    first = structs.replace(sampled, **of_first)
    return [
        rollout([first, failed(1, failure="context exceeded")], "r0", group_id="g", reward=0.0),
        rollout([sampled], "r1", group_id="g", reward=1.0),
        rollout([sampled], "r2", group_id="g", reward=2.0),
    ]


@pytest.mark.parametrize(
    ("option", "advantages", "left_out", "masked"),
    [
        ("keep", [-1.0, 0.0, 1.0], {}, 0),
        ("mask", [0.0, 1.0], {"context exceeded": 1}, 1),
        ("drop", [-0.5, 0.5], {"context exceeded": 1}, 0),
    ],
)
def test_a_context_that_was_exceeded_is_the_policys_doing(tmp_path, option, advantages, left_out, masked):
    """The rollout is trained with its reward, and the others of its group are compared with it, in memory and not."""
    group = group_of_three()
    art_otel.write_trajectories(group, tmp_path / "d")
    for sources in (group, tmp_path / "d"):
        found = art_otel.batches(sources, advantage="centered", context_exceeded=option)
        (batch,) = found
        assert sorted(batch.advantages[batch.loss_mask].tolist()) == advantages
        assert found.report.trajectories_skipped == left_out
        assert found.report.completions_skipped == ({"context exceeded": 1} if masked else {})
        assert found.report.context_exceeded == (option != "drop")
    columns = art_otel.batches(tmp_path / "d", context_exceeded=option).decision_columns()
    assert columns.skipped == [next(iter(left_out), None), None, None]
    chats = message_batches(group, context_exceeded=option)
    assert sum(map(len, chats)) == len(advantages)
    assert chats.report.trajectories_skipped == left_out


@pytest.mark.parametrize("closed", [None, "left", "finished"])
def test_ids_of_a_stream_that_the_app_closed_are_trained_where_somebody_says_so(tmp_path, closed):
    """At recording (`finished`), or at choosing; a stream that broke is lifted by nothing."""
    broken = recorded_call(group_of_three()[1].calls[0])
    (choice,) = broken.choices
    broken = structs.replace(
        broken, stream=True, closed_by_app=closed, choices=(structs.replace(choice, finish_reason=None),)
    )
    one = rollout([broken, good(1)], reward=1.0)
    art_otel.write_trajectories([one], tmp_path / "d")
    for sources in ([one], tmp_path / "d"):
        for option in ("mask", "train"):
            found = art_otel.batches(sources, closed_streams=option)
            tokens = [batch.input_ids[batch.loss_mask].tolist() for batch in found]
            is_trained = closed == "finished" or (closed == "left" and option == "train")
            assert tokens == ([[7]] if is_trained else [])
            assert found.report.completions_skipped["stream broke"] == (not is_trained)
    chats = message_batches([one])
    assert sum(map(len, chats)) == 1 + (closed == "finished")


def test_pairs_are_of_rollouts_that_did_not_end_in_an_outage():
    better = rollout([good(0)], "better", group_id="g", reward=1.0)
    broken = rollout([good(0), failed(1)], "broken", group_id="g", reward=0.0)
    found = preference_batches([better, broken])
    assert list(found) == []
    assert found.report.trajectories_skipped["ended on a failed call"] == 1


@pytest.mark.parametrize(("answers", "skipped"), [([None, "b"], {}), (["b", None], LEFT_OUT)])
def test_from_spans_to_batches(tmp_path, answers, skipped):
    root = make_span(1, name="rollout x", attributes={"art.rollout.id": "r", "art.reward": 1.0})
    error = {"status": {"code": 2, "message": "bad request"}}
    spans = [
        chat_span(number, 1, ["a"], answer, **(error if answer is None else {}))
        for number, answer in enumerate(answers, 2)
    ]
    convert_spans(tmp_path, root, *spans)
    found = message_batches(tmp_path / "dataset")
    conversations = [one for batch in found for one in batch]
    assert found.report.trajectories_skipped == skipped
    assert len(conversations) == (not skipped)


def test_what_must_not_be_trained_is_counted_by_its_reason():
    ids = TokenIds.of([1, 2])
    broken = call(0, [user("a")], assistant("b"), finish_reason=None, stream=True, prompt_token_ids=ids)
    lost = call(1, [user("c")], Message(role="assistant", content="d"), finish_reason="tool_calls")
    found = art_otel.batches([rollout([broken, lost], reward=1.0)])
    assert list(found) == []
    assert found.report.completions_skipped == {"stream broke": 1, "no token ids": 1}
    of_text = message_batches([rollout([broken, lost], reward=1.0)], allow_incomplete=True)
    assert list(of_text) == []
    assert of_text.report.trajectories_skipped == {"nothing trained": 1}
