"""Sources: one dump format a module, bytes -> Span, LogRecord and Quarantined, detected by content.

for source in find_inputs(["dumps/"]):
    for record in read_file(source, FileStats()):
        ...
"""

from art_otel.sources.file_stats import FileStats
from art_otel.sources.files.inputs import ByteRange, Input, find_inputs, identified, identity_of
from art_otel.sources.files.lines import Lines
from art_otel.sources.files.plan_splits import line_format, plan_splits
from art_otel.sources.files.prefetch import Prefetcher
from art_otel.sources.format import Format, Reading, Record
from art_otel.sources.formats import all_formats, format_named
from art_otel.sources.limits import Limits, advice, option_of
from art_otel.sources.otlp.json_format import read_lines_of
from art_otel.sources.otlp.protobuf_format import read_protobuf
from art_otel.sources.reader import read_file

__all__ = [
    "ByteRange",
    "FileStats",
    "Format",
    "Input",
    "Limits",
    "Lines",
    "Prefetcher",
    "Reading",
    "Record",
    "advice",
    "all_formats",
    "find_inputs",
    "format_named",
    "identified",
    "identity_of",
    "line_format",
    "option_of",
    "plan_splits",
    "read_file",
    "read_lines_of",
    "read_protobuf",
]
