"""About: what is known of rollouts before they run.

Invariant: it can be pickled where what it is made of can, because builders go to other processes.
"""

from collections.abc import Callable
from dataclasses import dataclass

from art_otel_tinker.tracing.internal_errors import handle_tinker_errors


@dataclass(frozen=True, kw_only=True, slots=True)
class About:
    """`policy_version` is asked anew for each call where it is a function. `tags` are those of the group."""

    name: str
    group_id: str | None = None
    split: str | None = None
    training_step: int | None = None
    model: str | None = None
    policy_version: str | Callable[[], str | None] | None = None
    tags: tuple[str, ...] = ()

    def version(self) -> str | None:
        """The policy version at this moment; None where nobody knows."""
        with handle_tinker_errors:
            return self.policy_version() if callable(self.policy_version) else self.policy_version
        return None
