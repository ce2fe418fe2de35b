"""Unwrap: take an instrumentor's wrappers off the client where its own `uninstrument` leaves them.

Invariant: only wrappers of that instrumentor that stand outermost go; what others have put around them stays.

OpenLLMetry 0.62 needs it: its `uninstrument` looks for the methods where they are not.
"""

import sys
from collections.abc import Iterator
from typing import cast

from wrapt import FunctionWrapper


def unwrap(package: str, made_by: str) -> None:
    """Give the classes of a package the methods back that a package of wrappers has around them."""
    for owner in _classes(package):
        for name, method in list(vars(owner).items()):
            inner: object = method
            while isinstance(inner, FunctionWrapper) and _is_in(_module_of(cast(object, inner)), made_by):
                inner = cast(object, inner.__wrapped__)
            if inner is not method:
                setattr(owner, name, inner)


def _classes(package: str) -> Iterator[type]:
    modules = [module for name, module in list(sys.modules.items()) if _is_in(name, package)]
    for module in modules:
        for value in list(vars(module).values()):
            if isinstance(value, type) and _is_in(value.__module__, package):
                yield value


def _module_of(wrapper: object) -> str:
    return getattr(getattr(wrapper, "_self_wrapper", None), "__module__", None) or ""


def _is_in(name: str, package: str) -> bool:
    return name == package or name.startswith(f"{package}.")
