"""The whole records of a JSON value that ends too early, as the last line of a process that was killed.

Invariant: only the element at the tear goes: a record, or a field of an object around records. Nothing here raises.
"""

from typing import Any, TypeAlias

from art_otel.sources.json_text.lenient import parse_torn
from art_otel.sources.json_text.values import is_list, is_object
from art_otel.spans import Value

_Step: TypeAlias = tuple[Any, Any]
"""A list or an object, and the key of its last value."""


def split_torn(text: str, holders: frozenset[str]) -> tuple[list[Value], Value]:
    """Parse a torn text: a list of the value without its element at the tear (empty if it is that), and the element.

    Objects around records have the fields `holders`, which lead to them. Records have none of them.
    """
    values = [parse_torn(text)]
    steps: list[_Step] = [(values, -1)]
    while (step := _next_step(*steps[-1], holders)) is not None:
        steps.append(step)
    while steps[-1][1] in holders and len(holders.intersection(steps[-1][0])) == 1:
        steps.pop()  # nothing else is in the object, so it is the element
    container, key = steps[-1]
    return values, container.pop(key)


def _next_step(container: Any, key: Any, holders: frozenset[str]) -> _Step | None:  # noqa: ANN401 # see _Step
    """Go into what stands last, which is torn, as long as there may be records in it."""
    last: Value = container[key]
    if key != -1 and key not in holders:
        return None
    if is_list(last) and last:
        return last, -1
    return (last, next(reversed(last))) if is_object(last) and not holders.isdisjoint(last) else None
