"""Expected: checks that an argument has the methods that a function here needs.

Invariant: an argument without all of them is refused; the error names its type and what was expected.
"""

from art_otel.errors import UsageError


def expect(instance: object, what: str, *methods: str) -> None:
    """Raise UsageError if the instance lacks one of the methods, or is a class."""
    if isinstance(instance, type):
        raise UsageError(f"{instance.__qualname__} is a class: give an instance of it, {what}")
    missing = [name for name in methods if not callable(getattr(instance, name, None))]
    if missing:
        raise UsageError(f"{type(instance).__qualname__} is no {what}: it has no method {' and no '.join(missing)}")
