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
    free_tokens: list[int] = []
    for sequence in sequences:
        size = len(sequence)
        row = next((row for row, free in enumerate(free_tokens) if free >= size), None)
        if row is None and len(rows) == batch_size:
            yield rows
            rows, free_tokens = [], []
        if row is None:
            row = len(rows)
            rows.append([])
            free_tokens.append(max_tokens)
        rows[row].append(sequence)
        free_tokens[row] -= size
    if rows:
        yield rows
