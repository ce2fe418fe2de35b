"""Options of batches as hypothesis draws them: any but those that raise."""

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from art_otel.data import call_reward, discounted, outcome_reward, step_reward, weighted

CREDITS = [
    "outcome_reward",
    outcome_reward(),
    outcome_reward("a"),
    weighted({"a": 2.0}),
    step_reward(),
    call_reward(),
    discounted(0.5),
]

laws = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

CHOICES = {
    "allow_incomplete": st.sampled_from([True, False, ["missing root"]]),
    "split": st.sampled_from([None, None, "train", ["train", None], "*"]),
    "status": st.sampled_from(["ok", ("ok", "error")]),
    "advantage": st.sampled_from(["grpo", "grpo_sample", "dr_grpo", "rloo", "centered", None]),
    "credit": st.sampled_from(CREDITS),
    "zero_variance": st.sampled_from(["keep", "drop"]),
}
FRESH = st.sampled_from(
    [{}, {}, {"policy_version": "step-2"}, {"policy_version": 2, "max_staleness": 0}, {"policy_version": "main"}]
)
CUTS = st.fixed_dictionaries(
    {"max_tokens": st.integers(1, 12), "overflow": st.sampled_from(["drop", "truncate"]), "packed": st.booleans()}
)
READING = st.fixed_dictionaries(
    {
        "batch_size": st.integers(1, 3),
        "shuffle_buffer": st.integers(1, 3),
        "seed": st.sampled_from([None, 0, 7]),
        "epoch": st.integers(0, 1),
        "keep_together": st.sampled_from([None, None, "rollout", "group"]),
    }
)


@st.composite
def options(draw) -> dict:
    """Any options but for those that raise."""
    limits = draw(st.just({}) | CUTS)
    return draw(st.fixed_dictionaries(CHOICES)) | draw(FRESH) | limits | draw(READING)
