"""The tables of recordings that the project makes itself, with pinned versions."""

from typing import Final

from tests.dialects.recording.tables.agents import AGENTS
from tests.dialects.recording.tables.clients import CLIENTS
from tests.dialects.recording.tables.earlier import EARLIER
from tests.dialects.recording.tables.frameworks import FRAMEWORKS
from tests.dialects.recording.tables.harder import HARDER
from tests.dialects.recording.tables.node import NODE
from tests.dialects.recording.tables.platforms import PLATFORMS
from tests.dialects.recording.tables.row import Row

__all__ = ["HARDER", "ROWS"]

ROWS: Final[dict[str, Row]] = {**CLIENTS, **PLATFORMS, **FRAMEWORKS, **AGENTS, **NODE, **EARLIER, **HARDER}
