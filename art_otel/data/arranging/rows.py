"""Rows: which sequences of a stream share a batch, and a row of it.

Invariant: batches hold the stream's sequences in its order, each once; only within a batch may a shorter one stand in
an earlier row.
"""

from collections.abc import Iterable, Iterator
from typing import TypeAlias

from art_otel.data.sequences.sequence import TokenSequence

Rows: TypeAlias = list[list[TokenSequence]]


def padded(sequences: Iterable[TokenSequence], batch_size: int) -> Iterator[Rows]:
    """A row a sequence, `batch_size` rows a batch; the last batch may have fewer."""
    rows: Rows = []
    for sequence in sequences:
        rows.append([sequence])
        if len(rows) == batch_size:
            yield rows
            rows = []
    if rows:
        yield rows


def packed(sequences: Iterable[TokenSequence], batch_size: int, max_tokens: int) -> Iterator[Rows]:
    """As many sequences a row as fit into `max_tokens`, each into the first row with room (first fit)."""
    rows: Rows = []
    room: list[int] = []
    for sequence in sequences:
        size = len(sequence)
        place = next((place for place, free in enumerate(room) if free >= size), None)
        if place is None and len(rows) == batch_size:
            yield rows
            rows, room = [], []
        if place is None:
            place = len(rows)
            rows.append([])
            room.append(max_tokens)
        rows[place].append(sequence)
        room[place] -= size
    if rows:
        yield rows
