"""Sources: one dump format a module, bytes -> Span, LogRecord and Quarantined, detected by content.

for source in find_inputs(["dumps/"]):
    for record in read_file(source, FileAccount()):
        ...
"""

from art_otel.sources.account import FileAccount
from art_otel.sources.files.inputs import Input, find_inputs, identity_of
from art_otel.sources.files.lines import Lines
from art_otel.sources.files.prefetch import Prefetcher
from art_otel.sources.files.splits import split_inputs
from art_otel.sources.format import Format, Reading, Record
from art_otel.sources.formats import FORMATS, format_named
from art_otel.sources.limits import Limits, advice, option_of
from art_otel.sources.otlp.json_format import read_lines_of
from art_otel.sources.reader import read_file

__all__ = [
    "FORMATS",
    "FileAccount",
    "Format",
    "Input",
    "Limits",
    "Lines",
    "Prefetcher",
    "Reading",
    "Record",
    "advice",
    "find_inputs",
    "format_named",
    "identity_of",
    "option_of",
    "read_file",
    "read_lines_of",
    "split_inputs",
]
