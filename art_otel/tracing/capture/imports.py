"""Imports: something to do with a module as soon as it is imported, by whomever.

Invariant: nothing is imported here, and nothing that goes wrong here reaches the import.
"""

from collections.abc import Callable
from types import ModuleType

from wrapt import register_post_import_hook

from art_otel.tracing.capture.faults import Guarded


def when_imported(name: str, act: Callable[[ModuleType], None]) -> None:
    """Act on a module now, or when it is imported."""

    def guarded(module: ModuleType) -> None:
        with Guarded(f"{name} could not be hooked; its calls get no exact tokens"):
            act(module)

    register_post_import_hook(guarded, name)
