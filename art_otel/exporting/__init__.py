"""Exporting: trajectories to the files that a trainer reads. docs/exporters.md tells how to write an exporter."""

from art_otel.data.conversations.preferences import PreferencePair
from art_otel.data.conversations.sft import MessageExample
from art_otel.data.rewards.plan import TurnReward
from art_otel.data.rewards.usable import unrewarded
from art_otel.data.sequences.sequence import TokenSequence
from art_otel.data.spill_file import SpillFile
from art_otel.exporting.chat_rows import (
    NO_ASSISTANT,
    NO_PROMPT,
    SAME,
    FormatError,
    answers,
    encode_each,
    is_function,
    text_message,
)
from art_otel.exporting.export import export
from art_otel.exporting.exporter import Encode, Exporter, ExportStats, Format, Input, ScoredTrajectory, Sink
from art_otel.exporting.places import check_place
from art_otel.exporting.policy_number import policy_number
from art_otel.exporting.registry import GROUP, Installed, find_exporter, find_format, installed_exporters
from art_otel.exporting.report import ExportReport, NotCarried
from art_otel.exporting.sequences import UNREWARDED_SPANS, sequences_of
from art_otel.exporting.settings import Option, options_of
from art_otel.exporting.sinks import Folder, JsonLines, ParquetFile
from art_otel.exporting.streams import DEFAULT, NULL_REWARD
from art_otel.exporting.whole_file import whole_file
from art_otel.spans import Value

__all__ = [
    "DEFAULT",
    "GROUP",
    "NO_ASSISTANT",
    "NO_PROMPT",
    "NULL_REWARD",
    "SAME",
    "UNREWARDED_SPANS",
    "Encode",
    "ExportReport",
    "ExportStats",
    "Exporter",
    "Folder",
    "Format",
    "FormatError",
    "Input",
    "Installed",
    "JsonLines",
    "MessageExample",
    "NotCarried",
    "Option",
    "ParquetFile",
    "PreferencePair",
    "ScoredTrajectory",
    "Sink",
    "SpillFile",
    "TokenSequence",
    "TurnReward",
    "Value",
    "answers",
    "check_place",
    "encode_each",
    "export",
    "find_exporter",
    "find_format",
    "installed_exporters",
    "is_function",
    "options_of",
    "policy_number",
    "sequences_of",
    "text_message",
    "unrewarded",
    "whole_file",
]
