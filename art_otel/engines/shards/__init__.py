"""Shards: records on their way from the tasks that read them to the tasks that assemble them, in shuffle files.

A shuffle file is written once by one task and has a region for each slot that the task had records for. A region is one
or more blocks, each compressed alone and with a checksum of its own; an index at the end of the file says where they
are. The slot of a record follows from its trace id, so that all records of a trace are in one slot of every file.

Invariant: a file is never changed, and what is read from it is what was written, or a StorageError names it. How many
bytes a slot counts depends on its records only, not on how they were spread over files.
"""

from art_otel.engines.shards.catalog import Catalogued, Shuffle, ShuffleCatalog
from art_otel.engines.shards.reader import Shards
from art_otel.engines.shards.shuffle_file import (
    NOTHING,
    REWARDS,
    Arrival,
    GivenRow,
    Membership,
    Outcome,
    OutcomeState,
    Record,
    Shuffled,
    ShuffleFile,
    SlotSize,
    Stored,
    encode,
    hash_of,
    link_region,
    size_of,
)
from art_otel.engines.shards.writer import ShuffleWriter

__all__ = [
    "NOTHING",
    "REWARDS",
    "Arrival",
    "Catalogued",
    "GivenRow",
    "Membership",
    "Outcome",
    "OutcomeState",
    "Record",
    "Shards",
    "Shuffle",
    "ShuffleCatalog",
    "ShuffleFile",
    "ShuffleWriter",
    "Shuffled",
    "SlotSize",
    "Stored",
    "encode",
    "hash_of",
    "link_region",
    "size_of",
]
