"""Wrapping: what goes in the place of an object of tinker-cookbook, and a policy that tells what it has just sampled.

Invariant: what goes wrong in ours is counted and logged, and never raised into a rollout. An argument that is not what
a function needs is refused; the error names its type and what was expected. An answer is known by its list of tokens,
the object itself, in the task that asked for it.
"""

from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar, cast

from art_otel.errors import UsageError
from art_otel.tracing.internal_errors import InternalErrorHandler

handle_tinker_errors: Final = InternalErrorHandler(
    "a part of a tinker environment was not recorded; the rollout is not affected"
)


def expect(instance: object, what: str, *methods: str) -> None:
    """Raise UsageError if the instance lacks one of the methods, or is a class."""
    if isinstance(instance, type):
        raise UsageError(f"{instance.__qualname__} is a class: give an instance of it, {what}")
    missing = [name for name in methods if not callable(getattr(instance, name, None))]
    if missing:
        raise UsageError(f"{type(instance).__qualname__} is no {what}: it has no method {' and no '.join(missing)}")


if TYPE_CHECKING:  # wrapt's own types are those of its version 2 and generic, which its version 1 is not

    class Proxy:
        """wrapt's ObjectProxy."""

        __wrapped__: Any

        def __init__(self, wrapped: Any) -> None: ...  # noqa: ANN401 # it stands for anything
        def __getattr__(self, name: str) -> Any: ...  # noqa: ANN401 # as above
else:
    from wrapt import ObjectProxy as Proxy

__all__ = ["Proxy"]


_Policy = TypeVar("_Policy")


class SampledTokens(Protocol):
    """tinker-cookbook's `TokensWithLogprobs`, as far as it is read."""

    @property
    def tokens(self) -> list[int]:
        """What was sampled."""
        ...

    @property
    def maybe_logprobs(self) -> list[float] | None:
        """One a token."""
        ...


_LAST: Final[ContextVar[SampledTokens | None]] = ContextVar("art_otel_tinker_answer", default=None)


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


def answer_of(action: object) -> SampledTokens | None:
    """Return the answer that holds this list of tokens; None if the policy is not traced."""
    answer = _LAST.get()
    return answer if answer is not None and answer.tokens is action else None
