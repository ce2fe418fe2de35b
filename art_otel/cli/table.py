"""Table: rows in columns, a line a row, printed as they come.

Invariant: memory and the time to the first line do not depend on how many rows there are, and every cell stands whole
in its line: one that is wider than its column moves what is behind it.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Final

from art_otel.cli.printable import printable

_LOOKED_AT: Final = 200
"""The first rows, which decide how wide the columns are."""

_WIDEST: Final = 48
_GAP: Final = "  "
_ONE_LINE: Final = {ord("\n"): "\u240a", ord("\t"): "\u2409"}


def table_lines(rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """The lines of rows that have equally many cells."""
    from rich.cells import cell_len  # noqa: PLC0415 # loads for a verb that needs it

    cleaned = ([printable(cell).translate(_ONE_LINE) for cell in row] for row in rows)
    first = list(islice(cleaned, _LOOKED_AT))
    widths = [min(_WIDEST, max(map(cell_len, column))) for column in zip(*first, strict=True)]
    for row in chain(first, cleaned):
        padded = (cell + " " * (width - cell_len(cell)) for cell, width in zip(row, widths, strict=True))
        yield _GAP.join(padded).rstrip() + "\n"
