"""Engines: the tasks of a conversion, the plan between them, and what runs them. `convert` is the story."""

from art_otel.engines.continuation import Times
from art_otel.engines.convert import Conversion, convert
from art_otel.engines.planning.sizes import Sizes

__all__ = ["Conversion", "Sizes", "Times", "convert"]
