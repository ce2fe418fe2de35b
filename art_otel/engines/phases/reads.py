"""Reads: what all read tasks found, added up as it comes.

Invariant: memory is that of sums, of the files' accounts and of a bit for each slot of a shuffle file.
"""

from art_otel.engines.shards import Shuffle
from art_otel.engines.tasks.read import LISTED_BYTES, ReadSummary
from art_otel.errors import SourceError
from art_otel.spans import list_quarantined


class Reads:
    """The sums. `response_ids` are those that rewards name and nothing else beside; None: too many to list."""

    def __init__(self) -> None:
        self.counts = ReadSummary()
        self.shuffle = Shuffle()
        self.response_ids: set[str] | None = set()
        self._listed = 0

    def add(self, summary: ReadSummary) -> None:
        """Add what the next task found; a file that several tasks read is one again."""
        counts = self.counts
        for file in summary.files:
            if counts.files and counts.files[-1].path == file.path:
                counts.files[-1].add(file)
            else:
                counts.files.append(file)
        counts.quarantined += summary.quarantined
        counts.quarantined_logs += summary.quarantined_logs
        list_quarantined(counts.quarantine, summary.quarantine)
        self.shuffle.add(summary.shuffled)
        self._list(summary.response_ids)

    def require_something(self) -> None:
        """Leave an earlier dataset alone when no source could be read at all. Raises SourceError."""
        errors = [file.error for file in self.counts.files if file.error is not None]
        if errors and len(errors) == len(self.counts.files) and not self.counts.spans:
            raise SourceError("; ".join(dict.fromkeys(errors)))

    def _list(self, response_ids: tuple[str, ...] | None) -> None:
        if self.response_ids is None or response_ids is None:
            self.response_ids = None
            return
        self.response_ids.update(response_ids)
        self._listed += sum(map(len, response_ids))
        if self._listed > LISTED_BYTES:
            self.response_ids = None
