"""Engines run the same two functions, in one process or many: partition spans, assemble a bucket."""

from art_otel.engines.local import Conversion, convert

__all__ = ["Conversion", "convert"]
