"""ListColumn: a few texts for each row, as the reasons why rollouts are incomplete.

Invariant: every text stands once in `names`; a row costs 4 bytes for each of its texts.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, kw_only=True, slots=True)
class ListColumn:
    """Row i has the names of `codes[offsets[i]:offsets[i + 1]]`; -1 is an unknown one."""

    names: list[str]
    codes: NDArray[np.int32]
    offsets: NDArray[np.int64]

    @classmethod
    def of(cls, rows: Iterable[Iterable[str]]) -> Self:
        """The column of these rows."""
        numbers: dict[str, int] = {}
        codes: list[int] = []
        offsets = [0]
        for row in rows:
            codes.extend([numbers.setdefault(name, len(numbers)) for name in row])
            offsets.append(len(codes))
        return cls(names=list(numbers), codes=np.array(codes, np.int32), offsets=np.array(offsets, np.int64))

    def row(self, number: int) -> list[str]:
        """The different texts of a row, in their order."""
        codes = self.codes[self.offsets[number] : self.offsets[number + 1]].tolist()
        return [self.names[code] for code in dict.fromkeys(codes) if code >= 0]

    def having(self, name: str) -> NDArray[np.bool_]:
        """Mark the rows that have the text. Shape: (rows,)."""
        if name not in self.names:
            return np.zeros(len(self.offsets) - 1, np.bool_)
        before = np.concatenate([[0], np.cumsum(self.codes == self.names.index(name))])
        return before[self.offsets[1:]] > before[self.offsets[:-1]]

    def counts(self) -> dict[str, int]:
        """In how many rows each text is, the most frequent first."""
        counts = Counter({name: int(np.count_nonzero(self.having(name))) for name in self.names})
        return dict(counts.most_common())
