"""Rewards of steps become credit only where it is certain which step they are of."""

from art_otel.data import discounted, step_reward
from art_otel.data.columns import CREDITING, columns_of
from art_otel.data.credit import shared_steps
from tests.conversions import convert_spans
from tests.dumps import chat_span, make_span
from tests.trajectories.reward_spans import ROLLOUT, link_to, rollout, step


def shared(trajectory) -> set[int]:
    """The indexes at which two steps of a trajectory were rewarded."""
    columns = columns_of([trajectory], CREDITING)
    return {columns.reward_step.values[step] for step in shared_steps(columns)[1]}


def test_a_correction_from_elsewhere_is_no_second_step_of_its_index(tmp_path):
    scored = make_span(2, 1, name="step 0", attributes={"art.step.index": 0, "art.reward": 0.5})
    about = {"art.step.index": 0, "art.rollout.id": ROLLOUT["art.rollout.id"], "art.reward": 1.0}
    late = make_span(1, name="reward reward", trace=9, attributes=about)
    (trajectory,), _ = convert_spans(tmp_path, rollout(), scored, chat_span(3, 2, ["a"], "b"), late)
    assert not shared(trajectory)


def test_two_steps_of_one_index_are_found_by_their_rewards(tmp_path):
    agents = [
        make_span(at, 1, name="step 0", attributes={"art.step.index": 0, "art.reward": value})
        for at, value in ((2, 1.0), (3, -1.0))
    ]
    spans = [rollout(), *agents, chat_span(4, 2, ["a"], "b"), chat_span(5, 3, ["c"], "d")]
    (trajectory,), _ = convert_spans(tmp_path, *spans)
    assert step_reward().rewards(trajectory) == (None, None)
    assert shared(trajectory) == {0}


def test_a_reward_of_a_tool_in_a_step_is_not_that_of_the_step(tmp_path):
    score = {"art.reward": 0.1, "traceloop.span.kind": "tool"}
    spans = [rollout(), step(2, 0), chat_span(3, 2, ["a"], "b"), make_span(4, 2, name="tool", attributes=score)]
    spans.append(make_span(5, 1, name="reward reward", links=link_to(2), attributes={"art.reward": 1.0}))
    (trajectory,), _ = convert_spans(tmp_path, *spans)
    assert step_reward().rewards(trajectory) == (1.0,)
    assert discounted(1.0).rewards(trajectory) == (1.0,)
