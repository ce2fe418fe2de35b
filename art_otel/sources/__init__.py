"""Sources: one dump format a module, bytes -> Span, LogRecord and Quarantined, detected by content.

for source in find_inputs(["dumps/"]):
    for record in read_file(source, FileStats()):
        ...
"""

from art_otel.lazy_names import defer_imports

if not defer_imports(__name__):
    from art_otel.sources.files.inputs import ByteRange as ByteRange
    from art_otel.sources.files.inputs import InputFile as InputFile
    from art_otel.sources.files.inputs import find_inputs as find_inputs
    from art_otel.sources.files.inputs import identified as identified
    from art_otel.sources.files.inputs import stored_ranges as stored_ranges
    from art_otel.sources.files.stores import Prefetcher as Prefetcher
    from art_otel.sources.format import FileStats as FileStats
    from art_otel.sources.format import Limits as Limits
    from art_otel.sources.format import Reading as Reading
    from art_otel.sources.format import Record as Record
    from art_otel.sources.format import SourceFormat as SourceFormat
    from art_otel.sources.format import advice as advice
    from art_otel.sources.format import all_formats as all_formats
    from art_otel.sources.format import format_named as format_named
    from art_otel.sources.format import option_of as option_of
    from art_otel.sources.otlp.json_format import read_lines_of as read_lines_of
    from art_otel.sources.otlp.protobuf_format import read_protobuf as read_protobuf
    from art_otel.sources.reader import line_format as line_format
    from art_otel.sources.reader import plan_splits as plan_splits
    from art_otel.sources.reader import read_file as read_file
