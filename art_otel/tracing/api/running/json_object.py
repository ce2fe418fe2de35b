"""JsonObject: a mapping that takes JSON values only.

Invariant: what it holds can be written; what cannot raises UsageError where it is set, and not when a rollout ends.
"""

import json
from collections import UserDict
from typing import Any

from art_otel.errors import UsageError


class JsonObject(UserDict[str, Any]):
    """Texts to JSON values. `field` is what errors call it."""

    def __init__(self, field: str) -> None:
        self._field = field
        super().__init__()

    def __setitem__(self, key: str, value: Any) -> None:  # noqa: ANN401 # any JSON value
        if not isinstance(key, str):  # pyright: ignore[reportUnnecessaryIsInstance] # not every app is typed
            raise UsageError(f"a key of {self._field} is of type {type(key).__qualname__}: give a text")
        try:
            json.dumps(value, allow_nan=False)
        except (TypeError, ValueError, RecursionError) as error:
            raise UsageError(
                f"{self._field}[{key!r}] of type {type(value).__qualname__} is no JSON value: give texts, finite"
                " numbers, booleans, None, lists and objects of them"
            ) from error
        super().__setitem__(key, value)
