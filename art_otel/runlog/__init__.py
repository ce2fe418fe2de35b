"""The run log: the record of a training run, step by step, as ART keeps it."""

from typing import TYPE_CHECKING

from art_otel.lazy_names import lazy_names

if TYPE_CHECKING:
    from art_otel.runlog.folder import checked_name
    from art_otel.runlog.log import LogEntry, RunLog

__all__ = ["LogEntry", "RunLog", "checked_name"]

__getattr__ = lazy_names(__name__, {"folder": ("checked_name",), "log": ("LogEntry", "RunLog")})
