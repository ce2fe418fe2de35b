"""Engines: the tasks of a conversion, the plan between them, and what runs them. `convert` is the story."""

from art_otel.engines.convert import Conversion as Conversion
from art_otel.engines.convert import Times as Times
from art_otel.engines.convert import convert as convert
from art_otel.engines.run import Sizes as Sizes
