"""Lazy names: what a package offers and loads when somebody first asks for it.

Invariant: a program pays the start of what it uses only. Most of a short conversion's time is Python loading modules.
"""

import re
import sys
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any, Final

_IMPORT: Final = re.compile(r"from (\S+) import \(?\s*(\w+) as \2\b")


def defer_imports(package: str) -> bool:
    """Let the imports of a package's `__init__` wait until somebody asks for their names (PEP 562).

    The package imports each name by itself, in the form that tells type checkers what it offers:

        if not defer_imports(__name__):
            from package.module import name as name

    The lines are read from the source. False where there is none, as in a frozen app: then they have to run.
    """
    namespace = vars(sys.modules[package])
    homes = dict(_imports(namespace))
    if not homes:
        return False
    names = sorted(homes)

    def load(name: str) -> object:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}; it has {', '.join(names)}")
        value = namespace[name] = getattr(import_module(homes[name]), name)
        return value

    namespace |= {"__all__": names, "__dir__": lambda: names, "__getattr__": load}
    return True


def _imports(namespace: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The names that a package offers, each with its module."""
    file = namespace.get("__file__") or ""
    try:
        source: bytes = namespace["__loader__"].get_data(file) if file.endswith(".py") else b""
    except (AttributeError, OSError):
        return
    for module, name in _IMPORT.findall(source.decode()):
        yield name, module
