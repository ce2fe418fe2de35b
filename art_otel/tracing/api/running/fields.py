"""Fields: what may be said of a rollout by name, in the decorator or while it runs.

Invariant: a value of the wrong type raises UsageError that names the field, and is never recorded as something else.
The error names the value's type only: the value may be a secret.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Generic, Self, TypeVar, cast, overload

from art_otel import attributes
from art_otel.errors import UsageError
from art_otel.tracing.api import scalars

if TYPE_CHECKING:
    from art_otel.tracing.api.running.running import RunningTrajectory

_T = TypeVar("_T", str, int)


def text(value: object, field: str) -> str:
    """The text; a whole number as text, because ids of tasks often are numbers. Raises UsageError."""
    if isinstance(value, str):
        return str.__str__(value)
    number = None if isinstance(value, bool) else scalars.whole(value)
    if number is None:
        raise UsageError(f"{field} is of type {type(value).__qualname__}: give a text")
    return str(number)


def whole_number(value: object, field: str) -> int:
    """The whole number, also one of NumPy or of an enum. Raises UsageError."""
    number = None if isinstance(value, bool) else scalars.whole(value)
    if number is None:
        raise UsageError(f"{field} is of type {type(value).__qualname__}: give a whole number of at most 64 bits")
    return number


class Field(Generic[_T]):
    """A field of a running trajectory, None until it is set. Setting it writes the attribute on the rollout's span."""

    def __init__(self, name: str, attribute: str, check: Callable[[object, str], _T]) -> None:
        self.name: Final = name
        self.attribute: Final = attribute
        self._check: Final = check

    def check(self, value: object) -> _T:
        """The value as it is recorded. Raises UsageError for a wrong type."""
        return self._check(value, self.name)

    @overload
    def __get__(self, running: None, owner: type) -> Self: ...
    @overload
    def __get__(self, running: "RunningTrajectory", owner: type) -> _T | None: ...
    def __get__(self, running: "RunningTrajectory | None", owner: type) -> Self | _T | None:
        return self if running is None else cast(_T | None, running.span_attributes.get(self.attribute))

    def __set__(self, running: "RunningTrajectory", value: _T | None) -> None:
        if value is not None or running.span_attributes.get(self.attribute) is not None:
            running.write_field(self.name, self.attribute, self.check(value))


GROUP_ID: Final = Field("group_id", attributes.GROUP_ID, text)
NAME: Final = Field("name", attributes.ROLLOUT_NAME, text)
SPLIT: Final = Field("split", attributes.SPLIT, text)
ATTEMPT: Final = Field("attempt", attributes.ROLLOUT_ATTEMPT, whole_number)
TRAINING_STEP: Final = Field("training_step", attributes.TRAINING_STEP, whole_number)
