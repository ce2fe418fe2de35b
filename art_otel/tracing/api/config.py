"""RolloutConfig: what an app says of its rollouts before they run.

Invariant: it is checked when it is made, so a wrong type fails where the decorator stands and not in the middle of a
training run. Only a group id may follow from the arguments of each call.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from dataclasses import field as with_default
from typing import Any, NamedTuple, TypeAlias

from art_otel import attributes
from art_otel.errors import UsageError
from art_otel.tracing.api import scalars
from art_otel.tracing.api.running import fields
from art_otel.tracing.internal_errors import handle_internal_errors

GroupId: TypeAlias = str | Callable[..., str]
"""A group id, or a function of the rollout's own arguments that returns one."""


class Call(NamedTuple):
    """One call of a decorated function."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]

    def arguments(self) -> dict[str, object]:
        """The arguments by name, without those that were not given. Raises TypeError or ValueError as `inspect`."""
        bound = inspect.signature(self.function).bind(*self.args, **self.kwargs)
        named = {name: value for name, value in bound.arguments.items() if name not in ("self", "cls")}
        for parameter in bound.signature.parameters.values():
            if parameter.kind is parameter.VAR_KEYWORD:
                named |= named.pop(parameter.name, {})
        return named


@dataclass(frozen=True, kw_only=True, slots=True)
class RolloutConfig:
    """The settings of a rollout. `span_attributes` go on its span; `group_id` computes the group id from a call."""

    name: str
    span_attributes: Mapping[str, scalars.Scalar] = with_default(default_factory=dict[str, scalars.Scalar])
    group_id: Callable[..., str] | None = None
    metadata: Mapping[str, object] = with_default(default_factory=dict[str, object])
    capture_args: bool = False
    capture_result: bool = False

    def attributes_of(self, call: Call | None) -> dict[str, scalars.Scalar]:
        """Return the attributes of one rollout's span, without its id.

        Raises UsageError if the app's group id function returns no text; what that function raises is passed on.
        """
        span_attributes = {**self.span_attributes, **scalars.metadata(self.metadata)}
        if call is not None and self.group_id is not None:
            span_attributes[attributes.GROUP_ID] = fields.GROUP_ID.check(self.group_id(*call.args, **call.kwargs))
        if call is not None and self.capture_args:
            with handle_internal_errors:
                span_attributes[attributes.ROLLOUT_ARGUMENTS] = scalars.json_text(call.arguments())
        return span_attributes


def make_config(
    name: str,
    *,
    group_id: GroupId | None,
    split: str | None,
    attempt: int | None,
    training_step: int | None,
    metadata: Mapping[str, object] | None,
    **capture: bool,
) -> RolloutConfig:
    """Build the config from the arguments of `rollout()`. Raises UsageError that names a parameter of a wrong type."""
    static_group = None if callable(group_id) else group_id
    text_fields = ((fields.NAME, name), (fields.GROUP_ID, static_group), (fields.SPLIT, split))
    span_attributes: dict[str, scalars.Scalar] = {
        field.attribute: field.check(value) for field, value in text_fields if value is not None
    }
    for field, number in ((fields.ATTEMPT, attempt), (fields.TRAINING_STEP, training_step)):
        if number is not None:
            span_attributes[field.attribute] = field.check(number)
    if metadata is None or not scalars.is_mapping(metadata, "metadata"):
        metadata = {}
    return RolloutConfig(
        name=str(span_attributes[attributes.ROLLOUT_NAME]),
        span_attributes=span_attributes,
        group_id=group_id if callable(group_id) else None,
        metadata=dict(metadata),
        **capture,
    )


def refuse_class(function: object) -> None:
    """Raise UsageError for what is no function: a class would no longer be one, a classmethod cannot be called."""
    if inspect.isclass(function):
        raise UsageError(
            f"@rollout goes on a function, and not on the class {function.__qualname__}; put it on the method that runs"
            " one episode"
        )
    if not callable(function):
        raise UsageError(
            f"@rollout goes on a function, and not on {function!r}; put it below @classmethod and the like"
        )
