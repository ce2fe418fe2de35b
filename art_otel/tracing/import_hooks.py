"""Import hooks: act once a module has been imported, without importing it.

Invariant: an act never raises into the import that it follows, nor into the call it was hooked to.
"""

import logging
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec

from wrapt import register_post_import_hook

logger = logging.getLogger(__name__)

_P = ParamSpec("_P")


def after_import(module: str, act: Callable[[], None]) -> None:
    """Act after the import of the module, at once where it has been imported."""
    safe = guarded(act)
    register_post_import_hook(lambda _: safe(), module)


def guarded(act: Callable[_P, None]) -> Callable[_P, None]:
    """The act, which logs what goes wrong."""

    @wraps(act)
    def safely(*args: _P.args, **kwargs: _P.kwargs) -> None:
        try:
            act(*args, **kwargs)
        except Exception:  # the app imports or sets something up here; no fault of ours may stop it
            logger.warning("art-otel: tracing is not set up as it should be; the app runs on", exc_info=True)

    return safely
