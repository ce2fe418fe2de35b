"""Engines: the tasks of a conversion, the plan between them, and the engines that run them. Read `convert` first."""

from art_otel.engines.convert import Conversion as Conversion
from art_otel.engines.convert import Times as Times
from art_otel.engines.convert import convert as convert
from art_otel.engines.run import Sizes as Sizes
