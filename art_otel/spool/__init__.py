"""Spool: the spans of a live app on disk, so that a crash loses no span that had ended.

    spool/20261129T183000Z-4711/            a run of the app
        1764440000123456789-4711-0a1b2c3d.otlp.jsonl    a file of a process: each line has spans of one trace

A spool is a dump like any other: `art-otel convert` reads it.

Invariant: a line is in its file as a whole, or not at all. Only the owner may read the files. Nothing in this package
looks into the lines.
"""

from art_otel.spool.line import FoundFile as FoundFile
from art_otel.spool.line import NewLine as NewLine
from art_otel.spool.line import NewLines as NewLines
from art_otel.spool.line import SpooledLine as SpooledLine
from art_otel.spool.line import lines_of as lines_of
from art_otel.spool.line import spool_files as spool_files
from art_otel.spool.runs import note_taken as note_taken
from art_otel.spool.runs import remove_file as remove_file
from art_otel.spool.runs import remove_old_runs as remove_old_runs
from art_otel.spool.runs import run_folder as run_folder
from art_otel.spool.writer import MemorySpool as MemorySpool
from art_otel.spool.writer import Spool as Spool
from art_otel.spool.writer import SpoolCounts as SpoolCounts
from art_otel.spool.writer import SpoolWriter as SpoolWriter
