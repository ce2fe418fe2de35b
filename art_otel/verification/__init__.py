"""Verification: recorded tokens beside the model's own logprobs, and beside the recorded messages.

`art_otel.verify` begins in the module `verify`, which tells the story. `scored_tokens` says which tokens are compared,
`model_logprobs` what the model gives for them, `diagnosis` what a pattern of differences means, and `decoded_text`
whether the ids say what the messages say.
"""

from art_otel.lazy_names import defer_imports

if not defer_imports(__name__):
    from art_otel.verification.diagnosis import Diagnosis as Diagnosis
    from art_otel.verification.verify import Figures as Figures
    from art_otel.verification.verify import Verification as Verification
