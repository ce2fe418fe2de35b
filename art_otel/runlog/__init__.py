"""The run log: the record of a training run, step by step, as ART keeps it."""

from art_otel.lazy_names import defer_imports

if not defer_imports(__name__):
    from art_otel.runlog.folder import checked_name as checked_name
    from art_otel.runlog.log import LogEntry as LogEntry
    from art_otel.runlog.log import RunLog as RunLog
