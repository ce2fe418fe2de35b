"""An answer that the server broke off is no answer of the policy, in whichever way a client asks."""

import pytest

from art_otel.trajectories import SpanGroup, build_trajectories
from tests.tracing.openai.instrumented import MODEL, parsed


def asked(client, direction: str, *, stream: bool) -> None:
    messages = [{"role": "user", "content": f"Hi {direction}"}]
    answer = client.chat.completions.create(model=MODEL, messages=messages, stream=stream)
    if stream:
        list(answer)


@pytest.mark.parametrize(
    ("direction", "stream", "verdict"),
    [
        ("#finish=abort", False, "aborted"),
        ("#finish=abort", True, "aborted"),
        ("#finish=null", False, "aborted"),
        ("#finish=null", True, "stream broke"),
        ("#finish=length", False, None),
        ("#finish=length", True, None),
    ],
)
def test_how_sampling_ended_is_what_the_server_said(app, instrumentor, direction, stream, verdict):
    with app.client() as client, app.rollout():
        asked(client, direction, stream=stream)
    spans = [parsed(span) for span in app.exporter.get_finished_spans()]
    (found,) = build_trajectories(SpanGroup(spans=spans)).trajectories
    (turn,) = found.turns
    if instrumentor == "genai" and direction == "#finish=null":
        verdict = "failed"  # OpenTelemetry's instrumentor writes `error` for null
    assert (turn.tokens_untrained, turn.text_untrained) == (verdict, verdict)
    assert turn.token_ids
