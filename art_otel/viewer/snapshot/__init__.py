"""Snapshot holds the data that the viewer shows: its files, the columns of the list, what would train, and a search."""

from art_otel.viewer.snapshot.judging import Judgement
from art_otel.viewer.snapshot.snapshot import Snapshot, ViewedData
from art_otel.viewer.snapshot.sources import Source

__all__ = ["Judgement", "Snapshot", "Source", "ViewedData"]
