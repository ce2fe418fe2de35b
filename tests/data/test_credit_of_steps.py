"""Rewards of steps become credit only where it is certain which step they are of."""

from art_otel.data import discounted, step_reward
from tests.conversions import convert_spans
from tests.dumps import chat_span, make_span
from tests.trajectories.reward_spans import link_to, rollout, step


def test_a_reward_of_a_tool_in_a_step_is_not_that_of_the_step(tmp_path):
    score = {"art.reward": 0.1, "traceloop.span.kind": "tool"}
    spans = [rollout(), step(2, 0), chat_span(3, 2, ["a"], "b"), make_span(4, 2, name="tool", attributes=score)]
    spans.append(make_span(5, 1, name="reward reward", links=link_to(2), attributes={"art.reward": 1.0}))
    (trajectory,), _ = convert_spans(tmp_path, *spans)
    assert step_reward().rewards(trajectory) == (1.0,)
    assert discounted(1.0).rewards(trajectory) == (1.0,)
