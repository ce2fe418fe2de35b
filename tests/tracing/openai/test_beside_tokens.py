"""What stood beside the tokens of a live call: images, how it was asked to sample, and of what its logprobs are."""

from art_otel.sampling import Sampling
from tests.tracing.openai.instrumented import MODEL

PNG = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
SEEING = [{"role": "user", "content": [{"type": "text", "text": "Hi"}, PNG]}]
ASKED = {"temperature": 0.6, "top_p": 0.9, "extra_body": {"top_k": 20, "min_p": 0.05, "bad_words": ["no"]}}


def test_a_live_call_says_what_stood_beside_its_tokens(app):
    with app.client() as client, app.rollout():
        client.chat.completions.create(model=MODEL, messages=SEEING, **ASKED)
        assert list(client.chat.completions.create(model=MODEL, messages=SEEING, stream=True, **ASKED))
        client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": "Hi"}])
    whole, streamed, plain = app.calls()
    for call in (whole, streamed):
        assert call.media == ("image",)
        assert call.sampling == Sampling(
            temperature=0.6, top_p=0.9, top_k=20, min_p=0.05, bad_words=("no",), logprobs_mode="raw"
        )
        assert all(choice.token_ids and choice.logprobs for choice in call.choices)
    assert plain.media == ()
    assert plain.sampling == Sampling(logprobs_mode="raw")
