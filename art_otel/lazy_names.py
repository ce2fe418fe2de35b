"""Lazy names: what a package offers and loads when somebody first asks for it.

Invariant: a program pays the start of what it uses only. Most of a short conversion's time is Python loading modules.
"""

import sys
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module


def lazy_names(package: str, modules: Mapping[str, Iterable[str]]) -> Callable[[str], object]:
    """A `__getattr__` for `package` (PEP 562). `modules` says which names stand in each of its modules."""
    homes = {name: f"{package}.{module}" for module, names in modules.items() for name in names}

    def load(name: str) -> object:
        home = homes.get(name)
        if home is None:
            public_names = ", ".join(getattr(sys.modules[package], "__all__", ()))
            raise AttributeError(f"module {package!r} has no attribute {name!r}; it has {public_names}")
        return getattr(import_module(home), name)

    return load
