"""Sources: one dump format a module, bytes -> Span, LogRecord and Quarantined, detected by content.

for source in find_inputs(["dumps/"]):
    for record in read_file(source, FileAccount()):
        ...
"""

from art_otel.sources.account import FileAccount
from art_otel.sources.files.inputs import Input, find_inputs
from art_otel.sources.files.lines import Lines
from art_otel.sources.files.parts import share_inputs
from art_otel.sources.files.read_ahead import ReadAhead
from art_otel.sources.format import Format, Reading, Record
from art_otel.sources.formats import FORMATS, format_named
from art_otel.sources.limits import Limits, advice, option_of
from art_otel.sources.otlp.json_format import read_lines_of
from art_otel.sources.reader import read_file


def split_inputs(inputs, split_bytes, known):
    total = sum(i.size or 0 for i in inputs)
    return [tuple(s) for s in share_inputs(inputs, max(1, -(-total // split_bytes)), known)]


def identity_of(i):
    if i.path is None or i.size is None:
        return None
    s = i.path.stat()
    return (str(i.path.absolute()), s.st_size, s.st_mtime_ns)


__all__ = [
    "FORMATS",
    "FileAccount",
    "Format",
    "Input",
    "Limits",
    "Lines",
    "ReadAhead",
    "Reading",
    "Record",
    "advice",
    "find_inputs",
    "format_named",
    "option_of",
    "read_file",
    "read_lines_of",
    "share_inputs",
]
