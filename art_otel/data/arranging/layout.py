"""Layout: how sequences become batches, and which of these a rank gives.

Invariant: with `rank` and `world_size` the batches are dealt out in rounds of `world_size`, so every rank gives the
same number: of the last round, which may be short, each rank gives one, or none does.
"""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Annotated

import msgspec
from msgspec import Meta

from art_otel.data.arranging.collate import Batch, collate
from art_otel.data.arranging.rows import Rows, packed, padded
from art_otel.data.sequences.sequence import TokenSequence


class Layout(msgspec.Struct, frozen=True, kw_only=True):
    """Options of `art_otel.batches` by the same names."""

    batch_size: Annotated[int, Meta(ge=1)]
    max_tokens: Annotated[int, Meta(ge=1)] | None
    packed: bool
    pad_token_id: Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]
    rank: Annotated[int, Meta(ge=0)]
    world_size: Annotated[int, Meta(ge=1)]
    drop_last: bool

    def __post_init__(self) -> None:
        """Raise ValueError for packed rows without a width, and for a rank that does not exist."""
        if self.rank >= self.world_size:
            raise ValueError(f"rank={self.rank}: there are ranks 0 to {self.world_size - 1}, by world_size")
        if self.packed and self.max_tokens is None:
            raise ValueError("packed=True needs max_tokens, the width of a row")

    def rounds(self, sequences: Iterable[TokenSequence]) -> Iterator[list[Rows]]:
        """The rows of the batches, one batch a rank; the last round may be short."""
        if self.packed and self.max_tokens is not None:
            rows = packed(sequences, self.batch_size, self.max_tokens)
        else:
            rows = padded(sequences, self.batch_size)
        while batches := list(islice(rows, self.world_size)):
            yield batches

    def is_short(self, batches: list[Rows]) -> bool:
        """Whether a round lacks batches, or its last batch rows."""
        return len(batches) < self.world_size or len(batches[-1]) < self.batch_size

    def batch(self, batches: list[Rows]) -> Batch:
        """This rank's batch of a round; where the round has none for it, the last one without anything to train on."""
        if self.rank < len(batches):
            return self._collate(batches[self.rank])
        return self._collate(batches[-1]).without_loss()

    def padding(self, rows: Rows) -> int:
        """How many places of a batch hold no token."""
        sizes = [sum(map(len, row)) for row in rows]
        width = self.max_tokens if self.packed and self.max_tokens is not None else max(sizes)
        return width * len(rows) - sum(sizes)

    def _collate(self, rows: Rows) -> Batch:
        return collate(rows, width=self.max_tokens if self.packed else None, pad_token_id=self.pad_token_id)
