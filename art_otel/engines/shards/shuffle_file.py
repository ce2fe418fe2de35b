"""ShuffleFile: one file of records in regions, and how its bytes are laid out.

A region is one or more blocks, each compressed alone. A block is a sequence of batches: a header (`HEADER`), and a
list of records of one kind in MessagePack. Invariant: spans stand behind their resource, without it.
"""

import struct
import zlib
from collections.abc import Sequence
from hashlib import blake2b
from typing import Final, Literal, TypeAlias

import msgspec

from art_otel import storage
from art_otel.errors import StorageError
from art_otel.spans import LogRecord, Quarantined, Resource, Span
from art_otel.trajectories import ExternalReward


class Membership(msgspec.Struct, frozen=True, array_like=True):
    """That a trace has spans of a rollout id."""

    rollout_id: str
    trace_id: str


class Arrival(msgspec.Struct, frozen=True, array_like=True):
    """That records of a trace came in a round of an incremental conversion.

    `changed` is when a file that had them was written to last (ns). `spans` and `logs` count them.
    """

    trace_id: str
    round: int
    changed: int
    spans: int = 0
    logs: int = 0


class GivenRow(msgspec.Struct, frozen=True, array_like=True):
    """A row that a trace has in the dataset. `key` is unique in the trace, `digest` is of what the row says."""

    key: tuple[str, int, int]
    revision: int
    digest: bytes
    part: str
    row: int


OutcomeState: TypeAlias = Literal["open", "given", "closed", "nothing"]


class Outcome(msgspec.Struct, frozen=True, array_like=True):
    """What a round made of a trace, and when that was (ns); the last round counts.

    `open`: more of it is expected. `given`: it has rows, or the traces that it is linked to have. `closed`: that was so
    too long ago, and what comes now is too late. `nothing`: no rollout is in it.
    """

    trace_id: str
    round: int
    at: int
    state: OutcomeState
    rows: tuple[GivenRow, ...] = ()

    def is_over(self, horizon: int) -> bool:
        """Whether nothing more is taken of the trace, as nothing came of it since then."""
        return self.state == "closed" or (self.state != "open" and self.at < horizon)


Record: TypeAlias = Span | LogRecord | Quarantined | ExternalReward
Stored: TypeAlias = Record | Membership | Arrival | Outcome

HEADER: Final = struct.Struct("<cI")
"""Kind, bytes behind the header."""

KINDS: Final[dict[type[Stored], bytes]] = {
    Span: b"s",
    LogRecord: b"l",
    Quarantined: b"q",
    ExternalReward: b"r",
    Membership: b"m",
    Arrival: b"a",
    Outcome: b"e",
}
DECODERS: Final = {kind: msgspec.msgpack.Decoder(list[record]) for record, kind in KINDS.items()}
ENCODER: Final = msgspec.msgpack.Encoder()
RESOURCE: Final = b"o"
"""The resource of the spans behind it in a block: a process has one, and its spans need it once."""

RESOURCE_DECODER: Final = msgspec.msgpack.Decoder(Resource)
_NO_RESOURCE: Final = Resource()
OVERHEAD: Final = 64
"""Bytes that a record counts besides its own."""

Block: TypeAlias = tuple[int, int, int]
"""Where it begins in the file, its bytes, their CRC-32."""

Index: TypeAlias = dict[int, list[Block]]
INDEX_DECODER: Final[msgspec.msgpack.Decoder[Index]] = msgspec.msgpack.Decoder(Index)

_READ: Final = 16 << 20


class ShuffleFile(msgspec.Struct, frozen=True, kw_only=True):
    """A shuffle file. `crc32` is of all its `size` bytes, of which the last from `index_start` on are the index."""

    location: str
    size: int
    crc32: int
    index_start: int

    def is_intact(self) -> bool:
        """Whether the file is there as it was written."""
        try:
            return storage.size_of(self.location) == self.size and self._crc32() == self.crc32
        except (OSError, StorageError):
            return False

    def _crc32(self) -> int:
        crc = 0
        with storage.open_reader(self.location) as reader:
            for start in range(0, self.size, _READ):
                crc = zlib.crc32(reader.read_at(min(_READ, self.size - start), start), crc)
        return crc


class SlotSize(msgspec.Struct, frozen=True, array_like=True):
    """How many records a slot has, and how many bytes they are when nothing is compressed."""

    records: int = 0
    bytes: int = 0

    def __add__(self, other: "SlotSize") -> "SlotSize":
        """Both together."""
        return SlotSize(self.records + other.records, self.bytes + other.bytes)


class Shuffled(msgspec.Struct, frozen=True, kw_only=True):
    """What a task wrote: its file (None when there was nothing to write) and how much is in each region."""

    file: ShuffleFile | None
    regions: dict[int, SlotSize]

    def is_intact(self) -> bool:
        """Whether the file is there as it was written."""
        return self.file is None or self.file.is_intact()


NOTHING: Final = Shuffled(file=None, regions={})

REWARDS: Final = -1
"""The region of rewards that name nothing but a response: nobody knows their trace yet."""

LINK_REGIONS: Final = 256
"""So many that who links the traces of a hundred million rollouts holds half a million at once."""

FIRST_REGION: Final = REWARDS - LINK_REGIONS


def link_region(rollout_id: str) -> int:
    """The region of what names a rollout id: memberships and rewards. It is before REWARDS."""
    return REWARDS - 1 - hash_of(rollout_id) % LINK_REGIONS


def hash_of(text: str) -> int:
    """64 bits, the same in every process and run."""
    return int.from_bytes(blake2b(text.encode(errors="surrogatepass"), digest_size=8).digest())


def encode(record: Stored) -> bytes:
    """A record as it stands in a batch."""
    if isinstance(record, Span):
        record = msgspec.structs.replace(record, resource=_NO_RESOURCE)
    return ENCODER.encode(record)


def size_of(encoded: Sequence[bytes]) -> SlotSize:
    """How much some records count."""
    return SlotSize(len(encoded), sum(map(len, encoded)) + OVERHEAD * len(encoded))
