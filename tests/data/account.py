"""The account of batches: its equations, and the reasons that the documentation lists."""

import numpy as np

from art_otel.data import Batches
from tests.data.token_rollouts import all_pieces
from tests.docs.pages import text_of
from tests.docs.test_tables import first_column, section

PAGE = text_of("docs/how-to/batches.md")
REASONS = set(first_column(section(PAGE, "## Reasons")))
REFUSALS = REASONS & {"status", "split", "stale", "ended on a failed call"} | {
    one for one in REASONS if "policy version" in one or one.startswith("incomplete: ")
}


def check_account(made: Batches, given_out) -> None:
    """The equations of a report, and that it tells of these batches."""
    report = made.report
    assert report.trajectories == report.trajectories_used + report.trajectories_skipped.total()
    assert report.completions == report.trained_completions + report.completions_skipped.total()
    assert report.batches == len(given_out)
    assert report.sequences == len(all_pieces(given_out))
    assert report.tokens == sum(int((batch.segment_ids > 0).sum()) for batch in given_out)
    assert report.tokens + report.padding == sum(batch.input_ids.size for batch in given_out)
    assert report.trained_tokens == sum(int(batch.loss_mask.sum()) for batch in given_out)
    assert report.without_logprobs == sum(int(np.isnan(batch.logprobs).sum()) for batch in given_out)
    advantages = [batch.advantages[batch.loss_mask] for batch in given_out if batch.advantages is not None]
    assert report.zero_advantage_tokens == sum(int((known == 0).sum()) for known in advantages)
    for skipped in (report.trajectories_skipped, report.sequences_skipped, report.completions_skipped):
        assert {one for one in skipped if not one.startswith("incomplete: ")} <= REASONS
