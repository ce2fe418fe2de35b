"""Role: what a span represents."""

from typing import Literal, TypeAlias

Role: TypeAlias = Literal["inference", "embeddings", "retrieval", "agent", "tool", "other", "uncaptured"]
