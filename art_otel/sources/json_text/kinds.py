"""What a decoded JSON value is, for the type checker too."""

from typing import TypeGuard

from art_otel.spans import Value


def is_object(value: Value) -> TypeGuard[dict[str, Value]]:
    """Whether it is an object."""
    return isinstance(value, dict)


def is_list(value: Value) -> TypeGuard[list[Value]]:
    """Whether it is a list."""
    return isinstance(value, list)
