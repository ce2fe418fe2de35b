"""Exporting: trajectories to the files that a trainer reads. docs/exporters.md tells how to write an exporter."""

from art_otel.exporting.export import export
from art_otel.exporting.exporter import Credited, Encode, Exporter, Kind, Notes, Sink, Takes
from art_otel.exporting.final_reward import NULL_REWARD, unrewarded
from art_otel.exporting.places import check_place
from art_otel.exporting.policy_number import policy_number
from art_otel.exporting.registry import GROUP, Installed, find_exporter, find_kind, installed_exporters
from art_otel.exporting.report import ExportReport, NotCarried
from art_otel.exporting.settings import Option, options_of
from art_otel.exporting.sinks import Folder, JsonLines, ParquetFile
from art_otel.exporting.streams import DEFAULT, Choice
from art_otel.exporting.whole_file import whole_file

__all__ = [
    "DEFAULT",
    "GROUP",
    "NULL_REWARD",
    "Choice",
    "Credited",
    "Encode",
    "ExportReport",
    "Exporter",
    "Folder",
    "Installed",
    "JsonLines",
    "Kind",
    "NotCarried",
    "Notes",
    "Option",
    "ParquetFile",
    "Sink",
    "Takes",
    "check_place",
    "export",
    "find_exporter",
    "find_kind",
    "installed_exporters",
    "options_of",
    "policy_number",
    "unrewarded",
    "whole_file",
]
