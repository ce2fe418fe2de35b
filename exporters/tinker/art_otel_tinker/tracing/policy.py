"""Policy: completers that tell what they have just sampled.

Invariant: an answer is known by its list of tokens, the object itself, in the task that asked for it.
"""

from contextvars import ContextVar
from typing import Any, Final, Protocol, TypeVar, cast

from art_otel_tinker.tracing.expected import expect
from art_otel_tinker.tracing.proxy import Proxy

_Policy = TypeVar("_Policy")


class Answer(Protocol):
    """tinker-cookbook's `TokensWithLogprobs`, as far as it is read."""

    @property
    def tokens(self) -> list[int]:
        """What was sampled."""
        ...

    @property
    def maybe_logprobs(self) -> list[float] | None:
        """One a token."""
        ...


_LAST: Final[ContextVar[Answer | None]] = ContextVar("art_otel_tinker_answer", default=None)


class _TracedPolicy(Proxy):
    async def __call__(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 # as TokenCompleter
        answer = await self.__wrapped__(*args, **kwargs)
        _LAST.set(answer)
        return answer


def trace_policy(policy: _Policy, *, enabled: bool = True) -> _Policy:
    """A token completer whose logprobs are on the spans as soon as the environment gets the tokens.

    Without it those of a traced builder have them when the group is rewarded, and those of a traced environment do not.
    Raises UsageError for what cannot be called.
    """
    expect(policy, "TokenCompleter", "__call__")
    if not enabled or isinstance(policy, _TracedPolicy):
        return policy
    return cast(_Policy, _TracedPolicy(policy))


def answer_of(action: object) -> Answer | None:
    """Return the answer that holds this list of tokens; None if the policy is not traced."""
    answer = _LAST.get()
    return answer if answer is not None and answer.tokens is action else None
