"""Engines: the tasks of a conversion, the plan between them, and what runs them. `convert` is the story."""

from art_otel.engines.continuation import Times as Times
from art_otel.engines.convert import Conversion as Conversion
from art_otel.engines.convert import convert as convert
from art_otel.engines.plan import Sizes as Sizes
