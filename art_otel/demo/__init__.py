"""Real recordings to try art-otel on: one rollout a file, from the `openai` client under three instrumentors."""

from pathlib import Path
from typing import Final

RECORDINGS: Final = Path(__file__).parent / "recordings"
"""A folder of OTLP JSON lines, as a collector's file exporter writes them."""
