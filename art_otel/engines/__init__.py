"""Engines: the tasks of a conversion, the plan between them, and what runs them. `convert` is the story."""

from art_otel.engines.convert import Conversion, convert

__all__ = ["Conversion", "convert"]
