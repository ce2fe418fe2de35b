"""Spool: the lines of a live app on disk, so that a crash costs nothing that had ended.

A spool is a folder with a folder for each run of the app, and in it a file for each process, a line for each span. It
is a dump like any other: `art-otel convert` reads it.

Invariant: a line is whole or not there, and files are readable by their owner only. Nothing here knows what lines say.
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
