"""InternalErrorHandler: what our code is inside tinker-cookbook.

Invariant: what goes wrong in ours is counted and logged, and never raised into a rollout.
"""

from typing import Final

from art_otel.tracing.internal_errors import InternalErrorHandler

handle_tinker_errors: Final = InternalErrorHandler(
    "something of a tinker environment was not recorded; the rollout is not affected"
)
