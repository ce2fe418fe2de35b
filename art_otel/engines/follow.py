"""Follow: incremental conversions in a loop, while others go on writing.

Invariant: it may be killed at any moment and started again: what was committed stays, and the rest is read again.
"""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import msgspec

from art_otel.engines.compact import compact
from art_otel.engines.convert import Conversion, convert, has_work
from art_otel.errors import BusyError, SourceError, StorageError, UsageError
from art_otel.sources.files.inputs import STDIN
from art_otel.store import read_manifest

if TYPE_CHECKING:
    from art_otel.store import ConversionReport

_MOST_SMALL: Final = 64
"""So many small parts come together before they are put together."""


def follow(
    conversion: Conversion,
    *,
    every: float,
    tell: "Callable[[ConversionReport], None]",
    warn: Callable[[str], None],
    rounds: int | None = None,
) -> None:
    """Convert what is new every so many seconds, until something is raised, as by Ctrl+C, or for so many `rounds`.

    `tell` gets the report of each round that had something to do, `warn` what cannot be read at the moment: a source
    may come later. Raises UsageError for what no round could do.
    """
    if STDIN in conversion.sources:
        raise UsageError("standard input cannot be followed; name files or folders")
    conversion = msgspec.structs.replace(conversion, incremental=True, follows=True)
    warned = ""
    while rounds is None or rounds > 0:
        began = time.monotonic()
        try:
            if has_work(conversion):
                tell(convert(conversion))
                _compact_many(conversion)
            warned = ""
        except (SourceError, StorageError, BusyError) as error:
            if str(error) != warned:
                warned = str(error)
                warn(warned)
        rounds = None if rounds is None else rounds - 1
        time.sleep(max(0.0, every - (time.monotonic() - began)) if rounds != 0 else 0.0)


def _compact_many(conversion: Conversion) -> None:
    """Keep the number of files small."""
    from art_otel.store.write import SMALL  # noqa: PLC0415 # loads pyarrow

    manifest = read_manifest(str(conversion.out))
    if manifest is not None and sum(part.bytes < SMALL for part in manifest.parts) > _MOST_SMALL:
        compact(conversion.out)
