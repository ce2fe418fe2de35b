"""Expected: what a function here takes, told by the methods that it has.

Invariant: what has not all of them is refused by its type, with what it should have been.
"""

from art_otel.errors import UsageError


def expect(given: object, what: str, *methods: str) -> None:
    """Raise UsageError where it has not all of the methods, and for a class in place of an instance."""
    if isinstance(given, type):
        raise UsageError(f"{given.__qualname__} is a class: give an instance of it, {what}")
    missing = [name for name in methods if not callable(getattr(given, name, None))]
    if missing:
        raise UsageError(f"{type(given).__qualname__} is no {what}: it has no method {' and no '.join(missing)}")
